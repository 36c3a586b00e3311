//! What is wrong is named with its place and a hint: wrong formats, truncated and corrupt files of
//! every kind, absurd numbers, times out of order, nothing at all.

use crate::packing::pack;
use crate::samples::{all, error_of, lines, oracle, trace};
use cinnabar_trace::error::Unknown;
use cinnabar_trace::source::Packing;
use cinnabar_trace::{Format, Problem, Record, Settings, TraceError};
use std::io::Cursor;

fn line_problem(text: &str) -> (u64, Problem) {
    match error_of(text.as_bytes()) {
        TraceError::Line { line, source } => (line, source),
        error => panic!("{error}"),
    }
}

fn record_problem(bytes: &[u8]) -> (u64, Problem) {
    match error_of(bytes) {
        TraceError::Record { byte, source } => (byte, source),
        error => panic!("{error}"),
    }
}

#[test]
fn an_empty_trace_is_empty() {
    for format in Format::ALL {
        let settings = Settings { format: Some(format), ..Settings::default() };
        let empty = Box::new(Cursor::new(Vec::new()));
        let mut trace = cinnabar_trace::read(empty, settings).expect("nothing is wrong with it");
        assert!(trace.next().is_none(), "{format}");
        assert!(trace.volumes().is_empty());
    }
    assert_eq!(trace(b"").expect("as text").format(), Format::Canonical);
    for header in
        ["fio version 3 iolog\n", "Timestamp,Response,IOType,LUN,Offset,Size", "# tracer: nop"]
    {
        assert_eq!(trace(header.as_bytes()).expect("known").count(), 0, "{header}");
    }
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    let text = |text: &str| Unknown::Text(text.to_owned());
    let long = format!("{}...", "x".repeat(60));
    let mut tar = vec![b'a'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let cases: Vec<(Vec<u8>, Unknown)> = vec![
        (b"hello world\nsecond".to_vec(), text("hello world")),
        ("x".repeat(100).into_bytes(), text(&long)),
        (b"\n\n\xff\x1b".to_vec(), Unknown::Binary),
        ("\n\u{e4}\n".into(), text("\\u{e4}")),
        (b"\n \n".to_vec(), text("")),
        (b"1,2,3".to_vec(), text("1,2,3")),
        (b"\x89PNG\r\n\x1a\n".repeat(40), Unknown::Binary),
        ((0..=255).collect(), Unknown::Binary),
        (vec![0; 23], Unknown::Binary),
        (b"BZh91AY&SY".to_vec(), Unknown::Packed("bzip2")),
        (b"PK\x03\x04".to_vec(), Unknown::Packed("zip")),
        (tar, Unknown::Packed("tar")),
        (pack(Packing::Gzip, &pack(Packing::Zstd, b"1,0,R,0,1\n")), Unknown::Packed("zstd")),
        (pack(Packing::Zstd, &pack(Packing::Gzip, b"1,0,R,0,1\n")), Unknown::Packed("gzip")),
    ];
    for (bytes, expected) in cases {
        let error = error_of(&bytes);
        assert!(!error.hint().is_empty());
        match error {
            TraceError::Unknown(found) => assert_eq!(found, expected),
            error => panic!("{error}: {expected}"),
        }
    }
}

/// A good first line, then a bad one.
#[test]
fn bad_lines_of_every_format_are_named() {
    let cases = [
        ("1,hm,0,Read,0,512,1", "1,hm,0,read,0,512,1", Problem::OpOf("Read, Write")),
        ("1,hm,0,Read,0,512,1", "1,hm,0,Read,0", Problem::Missing("size")),
        ("1,hm,0,Read,0,512,1", "1,hm,0,Read,0,512,1,1", Problem::Surplus(7)),
        ("1,hm,0,Read,0,512,1", "1,,x,Read,0,512,1", Problem::Number("disk")),
        ("0,1,512,R,1.5", "0,36028797018963968,512,R,1.5", Problem::End),
        ("0,1,512,R,1.5", "0,1,512,R,1.5s", Problem::Decimal("timestamp")),
        ("0,1,512,R,1.5", "0,1,512,x,1.5", Problem::OpOf("r, R, w, W")),
        ("7,R,0,512,1", "7,R,4503599627370496,1,1", Problem::End),
        ("7,R,0,512,1", ",R,0,1,1", Problem::Number("device_id")),
        ("7,R,0,512,1", "7,R,18446744073709551616,1,1", Problem::Number("offset")),
        ("1,0,1,0,7", "1,0,1,2,7", Problem::OpOf("0 (read), 1 (write)")),
        ("1,0,1,0,7", "18446744073709551,0,1,0,7", Problem::Number("timestamp")),
        ("1.5,,R,1,0,512", "1.5,x,R,1,0,512", Problem::Decimal("Response")),
        ("1.5,,R,1,0,512", "1.5,,R,1,0", Problem::Missing("Size")),
        ("1 4 p 2 1 R 6 0 aa", "1 4 2 1 R 6 0 aa", Problem::Missing("md5")),
        ("1 4 p 2 1 R 6 0 aa", "1 4 p 2 1 T 6 0 aa", Problem::OpOf("R, W")),
        ("8,0 1 1 0.5 9 Q R 2 + 1 [x]", "8,0 1 1 0.5 9 Q R 2 - 1 [x]", Problem::Missing("+")),
        ("8,0 1 1 0.5 9 Q R 2 + 1 [x]", "8:0 1 1 0.5 9 Q R 2 + 1", Problem::Number("device")),
        ("8,0 1 1 0.5 9 Q R 2 + 1 [x]", "8,0 1 1 0.5 9 Q R 2 +", Problem::Missing("sectors")),
        (
            "x-1 [0] . 2.5: block_rq_issue: 8,0 R 512 () 8 + 1 [x]",
            "x-1 [0] . 2.5: block_rq_issue: 8,0 R 512 8 + 1 [x]",
            Problem::Missing("()"),
        ),
        ("# tracer: nop", "no event at all", Problem::Missing("block_rq_issue")),
        ("fio version 2 iolog", "/a jump 0 512", Problem::OpOf(FIO)),
        ("fio version 3 iolog", "/a read 0 512", Problem::Number("timestamp")),
        ("fio version 3 iolog", "1 /a wait 0 512", Problem::OpOf(FIO)),
        ("fio version 2 iolog", "/a read 0", Problem::Missing("length")),
        ("1000 7 2 1 1", "1000 7 2 1 -1", Problem::OpOf("0 (write), 1 (read)")),
        ("0.5 7 2 1 1", "0.5 7 2 1 +1", Problem::Number("flags")),
        ("1 1 0 0", "1 1 0", Problem::Missing("request")),
        ("1 1 0 0", "1099511627776 1 0 0", Problem::End),
    ];
    for (good, bad, problem) in cases {
        assert_eq!(line_problem(&format!("{good}\n\n{bad}\n{good}\n")), (3, problem), "{bad}");
        assert!(!problem.hint().is_empty());
    }
}

const FIO: &str = "read, write, trim, sync, datasync, wait, add, open, close";

#[test]
fn a_bad_first_line_is_named_if_others_are_good() {
    assert_eq!(line_problem("1,0,R,0,x\n1,0,R,0,1\n"), (1, Problem::Number("length_bytes")));
    assert_eq!(line_problem("what\n1 4 p 2 1 R 6 0 aa\n"), (1, Problem::Number("timestamp")));
}

#[test]
fn what_comes_before_a_bad_line_comes_out() {
    let results: Vec<_> = trace(b"7,R,0,512,1\n7,W,0,512,2\nbad\n").expect("Alibaba").collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2);
    assert!(results.last().is_some_and(Result::is_err) && results.len() == 3);
}

#[test]
fn lines_and_volumes_are_bounded() {
    let long = format!("7,R,0,512,1\n{}\n", "1".repeat(5000));
    assert_eq!(line_problem(&long), (2, Problem::TooLong(1024)));
    let name = "n".repeat(300);
    let text = format!("fio version 2 iolog\n/{name} read 0 512\n");
    assert_eq!(line_problem(&text), (2, Problem::Name(256)));
    let many = lines(0..=1 << 20, |volume| format!("{volume},R,0,1,1\n"));
    assert_eq!(line_problem(&many), ((1 << 20) + 1, Problem::Volumes(1 << 20)));
}

/// Cut anywhere, a trace gives records or an error, never a panic; a binary one names the place.
#[test]
fn truncated_traces_of_every_format() {
    for sample in all() {
        let settings = Settings { format: Some(sample.format), ..Settings::default() };
        for end in 0..sample.bytes.len() {
            let cut = Cursor::new(sample.bytes[..end].to_vec());
            let cut = cinnabar_trace::read(Box::new(cut), settings).expect("no detection");
            let good = cut.flatten().count();
            assert!(good <= sample.records.len(), "{}", sample.format);
        }
    }
    let whole = oracle(1, 2, 4096, -1).repeat(2);
    assert_eq!(record_problem(&whole[..47]), (24, Problem::Cut { bytes: 23, of: 24 }));
    let blktrace = all().into_iter().find(|sample| sample.format == Format::BlkTrace);
    let bytes = blktrace.expect("a sample").bytes;
    assert_eq!(record_problem(&bytes[..50]), (0, Problem::Cut { bytes: 50, of: 52 }));
    assert_eq!(record_problem(&bytes[..60]), (52, Problem::Cut { bytes: 8, of: 48 }));
}

#[test]
fn corrupt_binary_records_are_named() {
    let samples = all();
    let bytes = |format| {
        samples.iter().find(|sample| sample.format == format).expect("a sample").bytes.clone()
    };
    // Behind what is looked at to tell the format, else it would be none.
    for (format, record_bytes, mark) in [(Format::Vscsi1, 32, 15), (Format::Vscsi2, 40, 3)] {
        let mut many = bytes(format)[..record_bytes].repeat(4000);
        let place = 3000 * record_bytes;
        many[place + mark] = 9;
        assert_eq!(record_problem(&many), (place as u64, Problem::Mark("version")));
    }
    let mut blktrace = bytes(Format::BlkTrace);
    blktrace[52] = 0;
    assert_eq!(record_problem(&blktrace), (52, Problem::Mark("magic number")));
    let mut vscsi = bytes(Format::Vscsi1);
    vscsi[32 + 23] = 0xFF;
    assert_eq!(record_problem(&vscsi), (32, Problem::End));
}

#[test]
fn time_out_of_order() {
    let text =
        |times: &[u64]| lines(times.iter().copied(), |time| format!("7,R,{time},512,{time}\n"));
    let read = |text: String, window| {
        let settings = Settings { window, ..Settings::default() };
        let input = Box::new(Cursor::new(text.into_bytes()));
        cinnabar_trace::read(input, settings).expect("Alibaba").collect::<Vec<_>>()
    };
    let times = |results: Vec<Result<Record, TraceError>>| -> Vec<(u64, u64)> {
        let records = results.into_iter().map(|result| result.expect("in the window"));
        records.map(|record| (record.ts_us, record.offset_bytes)).collect()
    };
    // Two behind is all that a window of two can mend.
    let sorted = [(0, 10), (1, 11), (2, 12), (3, 13)];
    assert_eq!(times(read(text(&[11, 12, 10, 13]), 2)), sorted);
    let mut results = read(text(&[11, 12, 13, 10]), 2);
    let error = results.pop().expect("an error").expect_err("too late");
    assert!(error.hint().contains("window"));
    let TraceError::Line { line: 4, source } = error else { panic!("{error}") };
    assert_eq!(source, Problem::Late { by_us: 1, window: 2 });
    assert_eq!(times(results), [(0, 11), (1, 12), (2, 13)], "the rest comes out");
    // Of the same time, the first first; none too late at window 0 if in order.
    assert_eq!(times(read(text(&[5, 5, 6]), 0)), [(0, 5), (0, 5), (1, 6)]);
    // The order of records is what oracleGeneral is about: nothing is sorted.
    let back = [oracle(9, 1, 1, -1), oracle(9, 1, 1, -1), oracle(8, 1, 1, -1)].concat();
    let settings = Settings { format: Some(Format::OracleGeneral), ..Settings::default() };
    let mut trace =
        cinnabar_trace::read(Box::new(Cursor::new(back)), settings).expect("it is said to be");
    let error = trace.find_map(Result::err).expect("an error");
    assert!(matches!(error, TraceError::Record { byte: 48, source: Problem::Late { .. } }));
}
