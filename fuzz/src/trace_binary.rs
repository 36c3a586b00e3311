//! Binary and packed traces: the first byte says which format, or how the rest is compressed, or that
//! it is to be detected. No panic, no memory that the file asks for, and whatever comes out is a valid
//! record.

use crate::trace_check;
use cinnabar_trace::Format;

/// Those of the first bytes 0, 1, ...
pub const FORMATS: [Format; 4] =
    [Format::Vscsi1, Format::Vscsi2, Format::OracleGeneral, Format::BlkTrace];
/// The others are text; `trace_text` has them.
const TEXT: usize = 14;
const _: () = assert!(FORMATS.len() + TEXT == Format::ALL.len(), "a format is not fuzzed");
/// gzip, xz, zstd: the rest is such a stream. Those of the first bytes behind.
pub const MAGICS: [&[u8]; 3] = [b"\x1F\x8B\x08", b"\xFD7zXZ\0", b"\x28\xB5\x2F\xFD"];

/// The format or packing (`u8`), and the trace; whether it has records.
pub fn run(input: &[u8]) -> bool {
    let Some((&choice, bytes)) = input.split_first() else { return false };
    let kind = usize::from(choice) % (FORMATS.len() + MAGICS.len() + 1);
    let window = usize::from(choice);
    let read = if let Some(&format) = FORMATS.get(kind) {
        trace_check::read(bytes, Some(format), window)
    } else if let Some(magic) = MAGICS.get(kind - FORMATS.len()) {
        trace_check::read(&[magic, bytes].concat(), None, window)
    } else {
        trace_check::read(bytes, None, window)
    };
    read.is_some_and(|(_, records)| !records.is_empty())
}
