//! What the writers of foreign formats write reads back, and fio itself takes it.

use crate::samples::{record, trace};
use cinnabar_trace::write::Output;
use cinnabar_trace::write_fio::{self, Version};
use cinnabar_trace::{Format, Op, Record, Reference, TraceError, references, write_oracle};
use proptest::prelude::*;
use std::fs;

fn requests() -> impl Strategy<Value = Vec<Record>> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Flush, Op::Discard]);
    let one = (0..5_000_u64, 0..4_u32, op, 0..64_u64, 1..40_u64);
    prop::collection::vec(one, 0..120).prop_map(|steps| {
        let mut ts_us = 0;
        let mut requests = Vec::new();
        for (step, volume, op, sector, sectors) in steps {
            ts_us += step;
            let (sector, sectors) = if op == Op::Flush { (0, 0) } else { (sector, sectors) };
            requests.push(record(ts_us, volume, op, sector * 512, sectors * 512));
        }
        requests
    })
}

/// As readers give them: from time 0 on, volumes in order of first appearance.
fn as_read(requests: &[Record]) -> Vec<Record> {
    let origin = requests.first().map_or(0, |first| first.ts_us);
    let mut seen: Vec<u32> = Vec::new();
    let mut read = Vec::new();
    for request in requests {
        if !seen.contains(&request.volume) {
            seen.push(request.volume);
        }
        let place = seen.iter().position(|&volume| volume == request.volume);
        let volume = place.expect("it was put there") as u32;
        read.push(Record { ts_us: request.ts_us - origin, volume, ..*request });
    }
    read
}

fn fio(requests: &[Record], version: Version) -> Vec<u8> {
    let mut writer = write_fio::Writer::new(Vec::new(), version).expect("memory");
    for request in requests {
        writer.write(request, &format!("disk {}", request.volume)).expect("a good request");
    }
    writer.finish().expect("memory")
}

fn oracle(requests: &[Record]) -> Vec<u8> {
    let mut writer = write_oracle::Writer::new(tempfile::tempfile().expect("a spool"));
    for request in requests {
        writer.write(request).expect("a good request");
    }
    let mut bytes = Vec::new();
    let records = writer.finish(&mut bytes).expect("memory");
    assert_eq!(bytes.len() as u64, records * 24);
    bytes
}

fn read(bytes: &[u8]) -> (Format, Vec<Record>) {
    let trace = trace(bytes).expect("a known format");
    let format = trace.format();
    (format, trace.collect::<Result<_, _>>().expect("valid throughout"))
}

fn keys(records: &[Record]) -> Vec<Reference> {
    references(records.iter().copied().map(Ok::<_, TraceError>)).flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn fio_3_reads_back_as_it_was(requests in requests()) {
        let (format, records) = read(&fio(&requests, Version::V3));
        prop_assert_eq!(format, Format::Fio3);
        prop_assert_eq!(records, as_read(&requests));
    }

    #[test]
    fn fio_2_reads_back_but_for_short_pauses(requests in requests()) {
        let text = fio(&requests, Version::V2);
        let (format, records) = read(&text);
        prop_assert_eq!(format, Format::Fio2);
        let expected = as_read(&requests);
        prop_assert_eq!(records.len(), expected.len());
        for (record, expected) in records.iter().zip(&expected) {
            prop_assert_eq!(Record { ts_us: expected.ts_us, ..*record }, *expected);
            prop_assert!(record.ts_us.abs_diff(expected.ts_us) < 100);
        }
        for line in String::from_utf8_lossy(&text).lines().filter(|line| line.contains(" wait ")) {
            let wait: u64 = line.split(' ').nth(2).expect("a time").parse().expect("a number");
            prop_assert!(wait >= 100);
        }
    }

    #[test]
    fn oracle_general_has_the_references_and_their_next(requests in requests()) {
        let bytes = oracle(&requests);
        let expected = keys(&requests);
        let object = |record: &[u8]| u64::from_le_bytes(*record[4..].first_chunk().expect("8"));
        let next = |record: &[u8]| i64::from_le_bytes(*record[16..].first_chunk().expect("8"));
        for (number, record) in bytes.chunks(24).enumerate() {
            prop_assert_eq!(object(record), expected[number].key);
            let behind = expected[number + 1..].iter().position(|other| other.key == object(record));
            let wanted = behind.map_or(-1, |behind| (number as u64 + 1 + behind as u64).cast_signed());
            prop_assert_eq!(next(record), wanted);
        }
        prop_assert_eq!(bytes.len(), expected.len() * 24);
        if !bytes.is_empty() {
            let (format, records) = read(&bytes);
            prop_assert_eq!(format, Format::OracleGeneral);
            let reads = expected.iter().map(|reference| Reference { write: false, ..*reference });
            prop_assert_eq!(keys(&records), reads.collect::<Vec<_>>());
        }
    }
}

/// More records than are walked at a time: the next access is found across strides.
#[test]
fn oracle_general_across_strides() {
    let block = |number: u64| record(number, 0, Op::Write, number % 70_000 * 4096, 4096);
    let requests: Vec<Record> = (0..200_000).map(block).collect();
    for (number, record) in (0_i64..).zip(oracle(&requests).chunks(24)) {
        let next = i64::from_le_bytes(*record[16..].first_chunk().expect("8"));
        let expected = if number + 70_000 < 200_000 { number + 70_000 } else { -1 };
        assert_eq!(next, expected);
    }
}

#[test]
fn what_a_form_cannot_hold_is_refused() {
    let late = record((1 << 32) * 1_000_000, 0, Op::Read, 0, 4096);
    let mut writer = write_oracle::Writer::new(tempfile::tempfile().expect("a spool"));
    assert!(writer.write(&late).is_err());
    let mut writer = write_fio::Writer::new(Vec::new(), Version::V3).expect("memory");
    let one = record(5, 0, Op::Read, 0, 3 << 30);
    writer.write(&one, "a b").expect("in pieces");
    assert!(writer.write(&one, "").is_err(), "no name");
    assert!(writer.write(&one, &"n".repeat(300)).is_err(), "a long name");
    assert!(writer.write(&Record { ts_us: 4, ..one }, "a").is_err(), "time goes back");
    assert!(writer.write(&Record { offset_bytes: u64::MAX, ..one }, "a").is_err());
    let text = String::from_utf8(writer.finish().expect("memory")).expect("text");
    let piece = |number: u64| format!("5 a_b read {} {}\n", number << 30, 1 << 30);
    let pieces: String = (0..3).map(piece).collect();
    assert_eq!(text, format!("fio version 3 iolog\n5 a_b add\n5 a_b open\n{pieces}5 a_b close\n"));
}

#[test]
fn an_output_is_packed_by_name_and_whole_or_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.zst");
    let request = record(0, 0, Op::Read, 4096, 4096);
    let mut writer =
        write_oracle::Writer::new(tempfile::tempfile_in(folder.path()).expect("a spool"));
    writer.write(&request).expect("a good request");
    let mut output = Output::create(&path).expect("a new file");
    assert_eq!(writer.finish(&mut output).expect("room"), 1);
    assert!(!path.exists());
    assert_eq!(output.finish().expect("whole"), fs::metadata(&path).expect("a file").len());
    let trace = cinnabar_trace::open(&path).expect("it opens");
    assert_eq!(trace.packing().name(), "zstd");
    assert_eq!(trace.flatten().collect::<Vec<_>>(), [request]);
}

/// The real one replays what was written, where it is installed.
#[test]
fn fio_replays_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let requests: Vec<Record> =
        (0..50).map(|number| record(number * 200, 0, Op::Write, number * 4096, 4096)).collect();
    for version in [Version::V2, Version::V3] {
        let log = folder.path().join("iolog");
        let disk = folder.path().join("disk");
        fs::write(&disk, vec![0; 1 << 20]).expect("room");
        let name = disk.to_str().expect("text");
        let mut writer = write_fio::Writer::new(Vec::new(), version).expect("memory");
        for request in &requests {
            writer.write(request, name).expect("a good request");
        }
        fs::write(&log, writer.finish().expect("memory")).expect("room");
        let mut fio = std::process::Command::new("fio");
        fio.args(["--name=replay", "--ioengine=psync", "--output-format=json"]);
        fio.arg(format!("--read_iolog={}", log.display())).current_dir(folder.path());
        let Ok(done) = fio.output() else {
            println!("skipped: fio is not installed");
            return;
        };
        let report = String::from_utf8_lossy(&done.stdout);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{version:?}: {report} {said}");
        let written = report.split("\"write\" : {").nth(1).expect("a part on writes");
        assert!(written.contains("\"total_ios\" : 50"), "{version:?}: {report} {said}");
    }
}
