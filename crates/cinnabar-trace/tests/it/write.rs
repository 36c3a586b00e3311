//! The writer: what it writes reads back, and a file is whole or not there.

use cinnabar_trace::canonical::Reader;
use cinnabar_trace::write::{TraceFile, Writer};
use cinnabar_trace::{Op, Problem, Record};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn record() -> impl Strategy<Value = Record> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Flush, Op::Discard]);
    let end = 0..=Record::END_BYTES_MAX;
    (any::<u64>(), 0..=Record::VOLUME_MAX, op, end.clone(), end).prop_map(
        |(ts_us, volume, op, one, other)| {
            let (offset_bytes, length) = (one.min(other), one.abs_diff(other));
            let is_transfer = matches!(op, Op::Read | Op::Write);
            let length_bytes =
                if is_transfer { length.min(Record::LENGTH_BYTES_MAX) } else { length };
            Record { ts_us, volume, op, offset_bytes, length_bytes }
        },
    )
}

fn read(path: &Path) -> Vec<Record> {
    let reader = cinnabar_trace::open(path).expect("it opens");
    reader.collect::<Result<_, _>>().expect("valid lines")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_reads_back(
        records in prop::collection::vec(record(), 0..300),
        name in prop::sample::select(vec!["t.csv", "t.csv.zst"]),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        let mut file = TraceFile::create(&path).expect("a new file");
        for record in &records {
            file.write(record).expect("room for it");
        }
        prop_assert!(!path.exists(), "no file before the end");
        let bytes = file.finish().expect("it is whole");
        prop_assert_eq!(bytes, fs::metadata(&path).expect("a file").len());
        prop_assert_eq!(read(&path), records);
        prop_assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}

#[test]
fn compressed_is_smaller() {
    let folder = tempfile::tempdir().expect("a folder");
    let size = |name| {
        let mut file = TraceFile::create(&folder.path().join(name)).expect("a new file");
        for ts_us in 0..10_000 {
            file.write(&Record { ts_us, ..ONE }).expect("room for it");
        }
        file.finish().expect("it is whole")
    };
    assert!(size("a.zst") * 4 < size("a.csv"));
}

const ONE: Record =
    Record { ts_us: 1, volume: 2, op: Op::Write, offset_bytes: 4096, length_bytes: 512 };

#[test]
fn a_folder_that_is_not_there_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = TraceFile::create(&folder.path().join("new/")).expect_err("it is no file");
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is left");
}

#[test]
fn what_no_reader_would_take_is_not_written() {
    let cases = [
        (Record { volume: Record::VOLUME_MAX + 1, ..ONE }, Problem::Volume),
        (Record { offset_bytes: Record::END_BYTES_MAX, ..ONE }, Problem::End),
        (Record { op: Op::Discard, length_bytes: u64::MAX, ..ONE }, Problem::End),
        (Record { length_bytes: Record::LENGTH_BYTES_MAX + 1, ..ONE }, Problem::Length),
        (Record { length_bytes: u64::MAX, ..ONE }, Problem::Length),
    ];
    let mut writer = Writer::new(Vec::new());
    for (bad, problem) in cases {
        let error = writer.write(&bad).expect_err("a bad record");
        assert_eq!(error.to_string(), problem.to_string());
    }
    writer.write(&ONE).expect("a good one");
    let text = writer.into_inner();
    assert_eq!(String::from_utf8_lossy(&text), "1,2,W,4096,512\n");
    assert_eq!(Reader::new(&text[..]).flatten().collect::<Vec<_>>(), [ONE]);
}

#[test]
fn what_is_given_up_leaves_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    fs::write(&path, "9,9,R,0,512\n").expect("an older trace");
    let mut file = TraceFile::create(&path).expect("a new file");
    file.write(&ONE).expect("room for it");
    drop(file);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "9,9,R,0,512\n");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn others_may_read_it_and_a_link_stays_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let (real, link) = (folder.path().join("real.csv"), folder.path().join("link.csv"));
    fs::write(&real, "").expect("a file");
    symlink(&real, &link).expect("a link");
    let mut file = TraceFile::create(&link).expect("a new file");
    file.write(&ONE).expect("room for it");
    file.finish().expect("it is whole");
    assert!(link.is_symlink());
    assert_eq!(read(&real), [ONE]);
    // Whatever the umask is, it is that of any other new file.
    let plain = folder.path().join("plain");
    fs::write(&plain, "").expect("a file");
    let mode = |path| fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode(&real), mode(&plain));
}

#[test]
fn a_device_is_written_and_stays_one() {
    let mut file = TraceFile::create(Path::new("/dev/null")).expect("it opens");
    file.write(&ONE).expect("room for it");
    assert_eq!(file.finish().expect("it takes everything"), 15);
    assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
    let folder = tempfile::tempdir().expect("a folder");
    assert!(TraceFile::create(folder.path()).is_err(), "a folder is no trace");
    assert!(TraceFile::create(&folder.path().join("none/t.csv")).is_err());
}

#[test]
fn a_canonical_trace_keeps_the_names_of_its_volumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("named.csv.zst");
    let mut file = TraceFile::create(&path).expect("a new file");
    let names = ["vm-disk", "with a blank, and comma", "2", "tab\there", ""];
    for (volume, name) in (0..).zip(names) {
        file.name(volume, name).expect("there is room");
    }
    // More names than lines are looked at to tell the format.
    for volume in 5..1000 {
        file.name(volume, &format!("volume-{volume}")).expect("there is room");
    }
    for volume in [0, 1, 2, 3, 4, 999] {
        let op = cinnabar_trace::Op::Read;
        let record = Record { ts_us: 1, volume, op, offset_bytes: 0, length_bytes: 4096 };
        file.write(&record).expect("there is room");
    }
    file.finish().expect("there is room");
    let mut trace = cinnabar_trace::open(&path).expect("it is a trace");
    assert_eq!(trace.format(), cinnabar_trace::Format::Canonical);
    let records: Vec<Record> = trace.by_ref().map(|record| record.expect("it is one")).collect();
    assert_eq!(records.len(), 6, "names are no requests");
    let found = [0, 1, 2, 3, 4, 999].map(|volume| trace.volume_name(volume).into_owned());
    assert_eq!(found, ["vm-disk", "with a blank, and comma", "2", "tab\\there", "4", "volume-999"]);
}

#[test]
fn other_comments_are_passed_over() {
    let text =
        "# recorded on host 7\n#\n# volume x y\n# volume 1\n# volume 99999999999 a\n1,1,R,0,512\n";
    let mut reader = Reader::new(text.as_bytes());
    assert_eq!(reader.by_ref().count(), 1);
    assert_eq!(reader.volume_name(1), None);
    let only = "# volume 3 vm\n";
    let settings = cinnabar_trace::Settings::default();
    let trace = cinnabar_trace::read(Box::new(only.as_bytes()), settings).expect("it is canonical");
    assert_eq!(trace.count(), 0, "a recording of nothing");
}
