//! `cinnabar-lab bench probe`: a preset measures as its device did, nothing is overwritten unasked, and
//! what can't be probed is said in one line.

use super::rig::{MIB, Site, pattern};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runs that may be spoilt by what else the host does.
const ATTEMPTS: u32 = 3;

fn probe(site: &Site, args: &[&str]) -> Value {
    let text = site.ask(&[&["bench", "probe", "--json"], args].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

/// The row of reads of 4 KiB at a depth.
fn row(report: &Value, depth: u64) -> &Value {
    let rows = report["cells"].as_array().expect("rows");
    let is =
        |row: &&Value| row["op"] == "read" && row["size_bytes"] == 4096 && row["depth"] == depth;
    rows.iter().find(is).expect("it was asked for")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// How far one is from the other, as a share.
fn off(is: &Value, should: &Value) -> f64 {
    (number(is) / number(should) - 1.0).abs()
}

/// A file in memory, where there is such a place: then only the model takes time.
fn in_memory(bytes: u64) -> tempfile::NamedTempFile {
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let file = tempfile::NamedTempFile::new_in(folder).expect("a file");
    fs::write(file.path(), pattern(0, bytes)).expect("it has room");
    file
}

#[test]
fn a_preset_measures_as_its_device_did() {
    let site = Site::new();
    let disk = in_memory(64 * MIB);
    let disk = disk.path().display();
    // Bounds on the mean latency of 4 KiB at depth 1 and on reads a second at depth 32. A disk's
    // mean over 120 reads is itself known to within 3 %.
    for (preset, time, mean_max, iops_max) in [("ssd", "0.3", 0.10, 0.20), ("hdd", "1", 0.15, 0.15)]
    {
        let flags = ["--sizes", "4KiB,256KiB", "--depths", "1,32", "--time", time];
        let run = |device: String, more: &[&str]| {
            probe(&site, &[&[device.as_str()], &flags[..], more].concat())
        };
        let mut seen = Vec::new();
        let agrees = (0..ATTEMPTS).any(|_| {
            let first = run(format!("sim:{preset}:file:{disk}"), &["--preset", "p.toml"]);
            let again = run(format!("sim:@p.toml,seed=5:file:{disk}"), &[]);
            let (one, other) = (row(&first, 1), row(&again, 1));
            let mean = off(&other["latency_us"]["mean"], &one["latency_us"]["mean"]);
            let iops = off(&row(&again, 32)["iops"], &row(&first, 32)["iops"]);
            seen.push((mean, iops));
            mean < mean_max && iops < iops_max
        });
        assert!(agrees, "{preset}: mean and IOPS off by {seen:?}");
        let text = fs::read_to_string(site.path("p.toml")).expect("the preset");
        assert!(text.contains("version = 1") && text.contains("[sim]"), "{text}");
        assert!(text.contains("writes and flushes were not measured"), "{text}");
    }
}

#[test]
fn the_table_has_a_row_for_each_cell_and_reads_change_nothing() {
    let site = Site::new();
    let disk = site.disk("d.raw", 4 * MIB);
    let flags =
        ["bench", "probe", "d.raw", "--time", "0.05", "--sizes", "4KiB,16KiB", "--depths", "1,2"];
    for pattern in ["random", "sequential"] {
        let table = site.ask(&[&flags[..], &["--pattern", pattern]].concat());
        let lines: Vec<&str> = table.lines().collect();
        let header: Vec<&str> = lines[0].split_whitespace().collect();
        let columns = "OP SIZE DEPTH IOPS MB/s MEAN P50 P90 P99 P99.9 MAX";
        assert_eq!(header.join(" "), columns, "{table}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("read ")).count(), 4, "{table}");
    }
    assert_eq!(fs::read(disk).expect("the disk"), pattern(0, 4 * MIB));
}

#[test]
fn a_file_of_its_own_is_written_and_removed_or_kept() {
    let site = Site::new();
    let flags =
        ["--size", "4MiB", "--write", "--time", "0.05", "--sizes", "4KiB,64KiB", "--depths", "1,4"];
    let report = probe(&site, &[&["own.img"], &flags[..]].concat());
    let rows = report["cells"].as_array().expect("rows");
    let count = |op: &str| rows.iter().filter(|row| row["op"] == op).count();
    assert_eq!((count("read"), count("write"), count("flush")), (4, 4, 1));
    assert!(rows.iter().all(|row| number(&row["iops"]) > 0.0), "{report}");
    assert!(!site.path("own.img").exists(), "it is removed");

    probe(&site, &[&["own.img", "--keep", "--preset", "own.toml"], &flags[..]].concat());
    let metadata = fs::metadata(site.path("own.img")).expect("it is kept");
    assert!(metadata.len() == 4 * MIB && metadata.blocks() * 512 >= 4 * MIB, "whole");
    let bytes = fs::read(site.path("own.img")).expect("it");
    assert!(bytes.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "not zero");
    let preset = fs::read_to_string(site.path("own.toml")).expect("the preset");
    assert!(!preset.contains("were not measured") && preset.contains("flush = "), "{preset}");
    // A preset may be replaced by a newer one; the next test of the file overwrites it, if told to.
    let flags = ["--preset", "own.toml", "--write", "--destroy-contents", "--time", "0.05"];
    let small = ["--sizes", "4KiB", "--depths", "1"];
    probe(&site, &[&["own.img"], &flags[..], &small].concat());
    assert_ne!(fs::read(site.path("own.img")).expect("it"), bytes, "it was written");
}

/// Arguments, part of the line, part of the hint.
type Case = (&'static [&'static str], &'static str, &'static str);

/// In a folder with `d.raw` (4 MiB), `small.raw` (64 KiB), `empty.raw`, `odd.raw` (700 bytes),
/// `held.raw`, which somebody has locked, and `notes.txt`. All of them are mistakes in usage.
const CASES: &[Case] = &[
    (&["none.raw"], "none.raw: no such file", "--size 1GiB"),
    (&["."], "is a directory", "file or a block device"),
    (&["empty.raw"], "it is empty", "truncate"),
    (&["odd.raw"], "700 bytes", "truncate"),
    (&["small.raw"], "small.raw: it has 64.0 KiB, which is less than", "--sizes"),
    (&["d.raw", "--sizes", "1MiB", "--depths", "8"], "too little for 8 operations", "--depths"),
    (&["held.raw"], "in use", "stop the process that uses it"),
    (&["d.raw", "--write"], "writes would overwrite what d.raw holds", "--destroy-contents"),
    (&["d.raw", "--size", "4MiB"], "is there already", "--size"),
    (&["no/x.img", "--size", "4MiB"], "can't make", "folder"),
    (&["x.img", "--size", "64KiB"], "less than the largest operation", "--sizes"),
    (&["nbd:unix:none.sock", "--size", "4MiB"], "only a file can be made", "--size"),
    (&["nbd+unix:///x?socket=none.sock"], "connecting", "start the server"),
    (&["nbds://host/x"], "\"nbds://\" is not supported", "nbd+unix:///EXPORT"),
    (&["sim:floppy:file:d.raw"], "unknown preset \"floppy\"", "sim:PRESET"),
    (&["sim:@none.toml:file:d.raw"], "none.toml", "sim:@FILE"),
    (&["sim:@notes.txt:file:d.raw"], "notes.txt\": line 1", "sim:@FILE"),
    (&["sim:ssd,read_errors=1:file:d.raw", "--depths", "1"], "failed: the model says so", "log"),
    (&[""], "is missing", "PATH"),
    (&["d.raw", "--preset", "p.toml", "--depths", "2"], "a preset needs", "add them"),
    (&["d.raw", "--preset", "no/p.toml", "--depths", "1"], "its folder does not exist", "create"),
    (&["d.raw", "--preset", "a,b.toml", "--depths", "1"], "comma or colon", "another name"),
    (&["new.img", "--size", "4MiB", "--preset", "new.img"], "that is the device", "another name"),
    (&["d.raw", "--preset", "notes.txt", "--depths", "1"], "is no preset", "another name"),
    (&["d.raw", "--sizes", "4KiB,5000"], "not a multiple of 4 KiB", ""),
    (&["d.raw", "--sizes", "8MiB"], "more than 4.0 MiB", ""),
    (&["d.raw", "--sizes", "0"], "0 bytes", ""),
    (&["d.raw", "--sizes", "4MiB", "--depths", "256"], "more than 256.0 MiB at a time", "--depths"),
    (&["d.raw", "--depths", "0"], "--depths", ""),
    (&["d.raw", "--depths", "257"], "--depths", ""),
    (&["d.raw", "--time", "0"], "0.01 to 3600", ""),
    (&["d.raw", "--time", "nan"], "0.01 to 3600", ""),
    (&["d.raw", "--keep"], "--size", ""),
    (&["d.raw", "--destroy-contents"], "--write", ""),
];

#[test]
fn what_can_not_be_probed_is_said_in_one_line() {
    let site = Site::new();
    let disk = site.disk("d.raw", 4 * MIB);
    site.disk("small.raw", 64 << 10);
    site.disk("odd.raw", 700);
    site.write("empty.raw", "");
    let notes = site.write("notes.txt", "precious");
    let held = File::open(site.disk("held.raw", 4 * MIB)).expect("it is there");
    flock(&held, FlockOperation::LockExclusive).expect("it is free");
    for (args, message, hint) in CASES {
        // Depths and a time that fit, where the case names none.
        let mut all = [&["bench", "probe"], *args].concat();
        for (flag, value) in [("--depths", "1,2"), ("--time", "0.05")] {
            if !all.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        let ended = site.run(&all);
        let code = if message.contains("failed") { 1 } else { 2 };
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{args:?}");
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let errors: Vec<_> = lines.iter().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(message), "{args:?}: {ended:?}");
        let last = lines.last().expect("a line");
        assert!(last.starts_with("hint: ") && last.contains(hint), "{args:?}: {ended:?}");
        assert!(!site.path("x.img").exists(), "{args:?}: nothing stays");
    }
    assert_eq!(fs::read(disk).expect("the disk"), pattern(0, 4 * MIB), "untouched");
    assert_eq!(fs::read_to_string(notes).expect("the notes"), "precious");
}
