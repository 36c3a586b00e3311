//! The canonical reader: good lines, and every kind of bad one.

use cinnabar_trace::canonical::Reader;
use cinnabar_trace::{Op, Problem, Record, Reference, TraceError, references, source};
use std::io::BufReader;

fn problem_of(text: &[u8]) -> (u64, Problem) {
    let mut reader = Reader::new(text);
    let error = reader.find_map(Result::err).expect("an error");
    assert!(reader.next().is_none(), "nothing comes after an error");
    match error {
        TraceError::Line { line, source } => (line, source),
        error => panic!("{error}"),
    }
}

#[test]
fn good_lines() {
    let text = b"5,3,R,512,4096\r\n6,0,F,0,0\n7,1,D,8192,512\n18446744073709551615,1,W,0,1";
    let records: Vec<Record> =
        Reader::new(&text[..]).collect::<Result<_, _>>().expect("valid lines");
    assert_eq!(
        records[0],
        Record { ts_us: 5, volume: 3, op: Op::Read, offset_bytes: 512, length_bytes: 4096 }
    );
    let ops: Vec<Op> = records.iter().map(|record| record.op).collect();
    assert_eq!(ops, [Op::Read, Op::Flush, Op::Discard, Op::Write]);
    assert_eq!(records[3].ts_us, u64::MAX);
}

#[test]
fn bad_lines_are_named() {
    let cases: &[(&[u8], u64, Problem)] = &[
        (b"\n", 1, Problem::Number("ts_us")),
        (b"1,0,R,0,512\n1", 2, Problem::Missing("vol")),
        (b"1,0,R,0", 1, Problem::Missing("length_bytes")),
        (b"1,0,R,0,512,9", 1, Problem::Surplus(5)),
        (b"+1,0,R,0,512", 1, Problem::Number("ts_us")),
        (b"1, 0,R,0,512", 1, Problem::Number("vol")),
        (b"1,0,R,-5,512", 1, Problem::Number("offset_bytes")),
        (b"1,0,R,0,18446744073709551616", 1, Problem::Number("length_bytes")),
        (b"1,0,r,0,512", 1, Problem::Op),
        (b"1,16777216,R,0,512", 1, Problem::Volume),
        (b"1,4294967296,R,0,512", 1, Problem::Volume),
        (b"1,0,R,18446744073709551615,512", 1, Problem::End),
        (b"1,0,R,4503599627370496,1", 1, Problem::End),
        (b"1,0,\xff,0,512", 1, Problem::Op),
    ];
    for &(text, line, problem) in cases {
        assert_eq!(problem_of(text), (line, problem), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn lines_are_bounded() {
    let mut text = b"1,0,R,0,512\n".to_vec();
    text.resize(1 << 20, b'1');
    assert_eq!(problem_of(&text), (2, Problem::TooLong(1024)));
}

#[test]
fn damaged_compression_is_an_error_after_a_line() {
    let text = b"1,0,R,0,512\n".repeat(50_000);
    let packed = zstd::encode_all(&text[..], 1).expect("it compresses");
    let open = |bytes: Vec<u8>| {
        let input = Box::new(BufReader::new(std::io::Cursor::new(bytes)));
        Reader::new(source::decompress(input).expect("it begins as zstd"))
    };
    assert_eq!(open(packed.clone()).flatten().count(), 50_000);
    let error = open(packed[..packed.len() - 20].to_vec()).find_map(Result::err);
    assert!(matches!(error, Some(TraceError::Io { .. })), "{error:?}");
}

#[test]
fn requests_expand_to_the_blocks_they_touch() {
    let text = b"0,0,R,4095,2\n1,2,W,8192,4096\n2,0,F,0,4096\n3,0,R,0,0\n";
    let keys: Vec<Reference> =
        references(Reader::new(&text[..])).collect::<Result<_, _>>().expect("valid lines");
    let reference = |key, write| Reference { key, write };
    assert_eq!(keys, [reference(0, false), reference(1, false), reference(2 << 40 | 2, true)]);
}
