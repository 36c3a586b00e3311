//! Packed traces: every packer, damaged files, files that ask for too much.

use crate::samples::{error_of, lines, trace};
use cinnabar_trace::TraceError;
use cinnabar_trace::source::Packing;
use std::io::{Read, Write};

pub(crate) fn pack(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    match packing {
        Packing::Plain => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).expect("it packs");
            encoder.finish().expect("it packs")
        }
        Packing::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("it packs");
            encoder.write_all(bytes).expect("it packs");
            encoder.finish().expect("it packs")
        }
        Packing::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("it packs");
            encoder.include_checksum(true).expect("it packs");
            encoder.write_all(bytes).expect("it packs");
            encoder.finish().expect("it packs")
        }
    }
}

const PACKINGS: [Packing; 4] = [Packing::Plain, Packing::Gzip, Packing::Xz, Packing::Zstd];

#[test]
fn every_packing_reads_the_same() {
    let text = lines(0..20_000, |time| format!("{time},3,W,{time},512\n"));
    for packing in PACKINGS {
        // Joined files are one.
        let (one, other) = text.split_at(text.len() / 2);
        let packed = [pack(packing, one.as_bytes()), pack(packing, other.as_bytes())].concat();
        let trace = trace(&packed).expect("it opens");
        assert_eq!(trace.packing(), packing);
        let offsets: Vec<u64> =
            trace.map(|record| record.expect("a valid line").offset_bytes).collect();
        assert!(offsets == (0..20_000).collect::<Vec<_>>(), "{packing:?}");
    }
}

#[test]
fn damaged_packing_is_an_error() {
    // Hard to pack, so that packed files have more than one block.
    let offset = |time: u64| time.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let text = lines(0..100_000, |time| format!("{time},3,W,{},512\n", offset(time)));
    for packing in &PACKINGS[1..] {
        let packed = pack(*packing, text.as_bytes());
        for end in [3 * packed.len() / 4, packed.len() - 3] {
            let error = error_of(&packed[..end]);
            assert!(matches!(error, TraceError::Io { line: 1.., .. }), "{packing:?} {error}");
            assert!(error.hint().contains("zstd -t"));
        }
        let mut flipped = packed.clone();
        flipped[3 * packed.len() / 4] ^= 0x10;
        assert!(matches!(error_of(&flipped), TraceError::Io { .. } | TraceError::Line { .. }));
        let early = error_of(&packed[..packed.len() / 100]);
        assert!(matches!(early, TraceError::Io { line: 0, .. }), "{packing:?} {early}");
    }
}

/// A file that asks for more memory than any trace needs is refused before it gets it.
#[test]
fn windows_of_packers_are_bounded() {
    let mut xz = pack(Packing::Xz, b"1,0,R,0,1\n");
    // The block header: size, flags, filter, size of its properties, and the dictionary's size.
    assert_eq!(xz[14..16], [0x21, 1]);
    xz[16] = 40;
    let crc = {
        let mut crc = flate2::Crc::new();
        crc.update(&xz[12..20]);
        crc.sum()
    };
    xz[20..24].copy_from_slice(&crc.to_le_bytes());
    // Single segment: the window is the content, said to be 1 TiB here.
    let zstd =
        [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &(1_u64 << 40).to_le_bytes(), &[1; 8]].concat();
    for packed in [xz, zstd] {
        let error = error_of(&packed);
        let TraceError::Io { line: 0, source } = error else { panic!("{error}") };
        let text = source.to_string().to_lowercase();
        assert!(text.contains("memory"), "{text}");
    }
}

/// 64 MiB of blank lines in some KiB: read in passing.
#[test]
fn a_bomb_is_only_long() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("it packs");
    encoder.write_all(b"7,R,0,512,1\n").expect("it packs");
    let mut blank = std::io::repeat(b'\n').take(1 << 26);
    std::io::copy(&mut blank, &mut encoder).expect("it packs");
    let packed = encoder.finish().expect("it packs");
    assert!(packed.len() < 1 << 16);
    assert_eq!(trace(&packed).expect("Alibaba").count(), 1);
}
