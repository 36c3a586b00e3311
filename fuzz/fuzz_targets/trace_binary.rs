//! Binary and packed traces: the first byte says which format, or how the rest is compressed, or that
//! it is to be detected. No panic, no memory that the file asks for, and whatever comes out is a valid
//! record.

#![no_main]

#[path = "trace_check.rs"]
mod trace_check;

use cinnabar_trace::Format;
use libfuzzer_sys::fuzz_target;

const FORMATS: [Format; 4] =
    [Format::Vscsi1, Format::Vscsi2, Format::OracleGeneral, Format::BlkTrace];
/// The others are text; `trace_text` has them.
const TEXT: usize = 14;
const _: () = assert!(FORMATS.len() + TEXT == Format::ALL.len(), "a format is not fuzzed");
/// gzip, xz, zstd: the rest is such a stream.
const MAGICS: [&[u8]; 3] = [b"\x1F\x8B\x08", b"\xFD7zXZ\0", b"\x28\xB5\x2F\xFD"];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let kind = usize::from(choice) % (FORMATS.len() + MAGICS.len() + 1);
    let window = usize::from(choice);
    if let Some(&format) = FORMATS.get(kind) {
        trace_check::read(bytes, Some(format), window);
    } else if let Some(magic) = MAGICS.get(kind - FORMATS.len()) {
        trace_check::read(&[magic, bytes].concat(), None, window);
    } else {
        trace_check::read(bytes, None, window);
    }
});
