//! Traces of every format, by themselves and packed: the samples of the readers' own tests.

use crate::samples::{Sample, all};
use cinnabar_fuzz::{trace_binary, trace_text};
use cinnabar_trace::Format;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use std::io::Write;

/// What says that the format is to be detected.
const DETECT_TEXT: u8 = trace_text::FORMATS.len() as u8;
const DETECT_BINARY: u8 = (trace_binary::FORMATS.len() + trace_binary::MAGICS.len()) as u8;

/// Inputs of the target `trace_text`: each sample as what it is, and as what it looks like.
pub(crate) fn text() -> Vec<Vec<u8>> {
    choices(&trace_text::FORMATS, DETECT_TEXT)
}

/// Inputs of the target `trace_binary`: the same, and a text packed in each way.
pub(crate) fn binary() -> Vec<Vec<u8>> {
    let packed =
        packings().into_iter().zip(trace_binary::MAGICS).zip(trace_binary::FORMATS.len()..);
    let packed = packed.map(|((bytes, magic), choice)| {
        let rest = bytes.strip_prefix(magic).expect("that is how it begins");
        [&[choice as u8], rest].concat()
    });
    choices(&trace_binary::FORMATS, DETECT_BINARY).into_iter().chain(packed).collect()
}

fn choices(formats: &[Format], detect: u8) -> Vec<Vec<u8>> {
    let of = |sample: Sample| {
        let choice = formats.iter().position(|format| *format == sample.format)? as u8;
        Some([choice, detect].map(|choice| [vec![choice], sample.bytes.clone()].concat()))
    };
    let inputs: Vec<_> = all().into_iter().filter_map(of).flatten().collect();
    assert!(inputs.len() >= 2 * formats.len(), "a format has no sample");
    inputs
}

/// A text as gzip, xz and zstd.
fn packings() -> [Vec<u8>; 3] {
    let text = b"7,R,1024,512,100\n3,W,4096,1024,105\n";
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).expect("it packs");
    let mut xz = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).expect("it packs");
    xz.write_all(text).expect("it packs");
    let zstd = zstd::encode_all(&text[..], 1).expect("it packs");
    [gzip.finish().expect("it packs"), xz.finish().expect("it packs"), zstd]
}
