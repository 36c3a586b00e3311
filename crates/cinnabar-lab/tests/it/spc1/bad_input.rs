//! What can't be run is one clear line with a hint, and nothing is overwritten or made.

use super::super::rig::{Ended, MIB, Site, pattern};
use super::site;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const GOOD: &str = "--asu1 a1 --asu2 a2 --asu3 a3 --overwrite";
const CACHED: &str = "--asu1 a1 --asu2 a2 --asu3 a3 --overwrite --cache c.img --cache-size 20MiB";

/// Arguments, part of the line, part of the hint. All of them are mistakes in usage: exit code 2.
type Case = (&'static str, &'static str, &'static str);

/// In a folder with `a1` and `a2` (9 MiB), `a3` (2 MiB), `link` and `hard` to `a1`, `half` (4 MiB),
/// `log` (1 MiB), `tiny1` to `tiny3` (100 KiB), `empty`, `odd` (700 bytes), `pipe`, `notes`, and a daemon that serves
/// `ro` for reading only.
const CASES: &[Case] = &[
    ("--asu1 a1 --asu2 a1 --asu3 a3", "asu1 (a1) and asu2 (a1) are one and the same", "once"),
    ("--asu1 a1 --asu2 link --asu3 a3", "asu1 (a1) and asu2 (link) are one and the same", "once"),
    ("--asu1 a1,hard --asu2 a2 --asu3 a3", "(a1) and asu1 (hard) are one and the same", "once"),
    (
        "--asu1 nbd:unix:s --asu2 nbd+unix:///?socket=s --asu3 a3",
        "asu1 (nbd:unix:s) and asu2 (nbd+unix:///?socket=s) are one and the same",
        "once",
    ),
    ("--asu1 a1 --asu2 half --asu3 a3", "they must be of one size", "45 : 45 : 10"),
    ("--asu1 half,a3 --asu2 a1 --asu3 half", "asu1 (half) and asu3 (half)", "once"),
    ("--asu1 a1 --asu2 a2 --asu3 log", "ASU3 has 256 blocks of 4 KiB; it needs at least 2/9", "45"),
    ("--asu1 tiny1 --asu2 tiny2 --asu3 tiny3", "a region of the walk without a leaf", "640 KiB"),
    ("--asu1 empty --asu2 a2 --asu3 a3", "empty: it is empty", "truncate"),
    ("--asu1 odd --asu2 a2 --asu3 a3", "700 bytes", "truncate"),
    ("--asu1 . --asu2 a2 --asu3 a3", "is a directory", "block device"),
    ("--asu1 pipe --asu2 a2 --asu3 a3", "it is a pipe", "block device"),
    ("--asu1 /dev/null --asu2 a2 --asu3 a3", "it is a character device", "block device"),
    ("--asu1 none --asu2 a2 --asu3 a3", "none: no such file", "truncate -s"),
    ("--asu1 a1, --asu2 a2 --asu3 a3", "a place is missing", "--help"),
    ("--asu1 a1 --asu2 a2", "--asu3", "--help"),
    ("--asu1 a1 --asu2 a2 --asu3 nbd:unix:none.sock", "none.sock: connecting", "start the server"),
    ("--asu1 sim:floppy:file:a1 --asu2 a2 --asu3 a3", "unknown preset \"floppy\"", "sim:PRESET"),
    ("GOOD --bsu 0", "'0' for '--bsu", ""),
    ("GOOD --bsu 20001", "'20001' for '--bsu", ""),
    ("GOOD --runlen 0", "0.1 s to 7 d", ""),
    ("GOOD --runlen -1", "'-1'", ""),
    ("GOOD --mix tpcc", "pblio, spc1", ""),
    ("GOOD --find-max --limit 0", "'0' for '--limit", ""),
    ("GOOD --find-max --limit 0ms", "from 1us to 1h", ""),
    ("GOOD --limit 1ms", "--find-max", ""),
    ("GOOD --cache c.img", "c.img: there is no such cache", "--cache-size"),
    ("GOOD --cache-size 20MiB", "--cache-size without --cache", "--cache FILE"),
    ("GOOD --cache c.img --cache-size 19MiB", "a cache of 19.0 MiB is impossible", "20.0 MiB"),
    ("GOOD --cache c.img --cache-size 50TiB", "there is no room", "--cache"),
    ("GOOD --cache no/c.img --cache-size 20MiB", "its folder does not exist", "--cache"),
    ("GOOD --cache . --cache-size 20MiB", "is a directory", "--cache"),
    ("GOOD --cache notes", "holds data that is not a Cinnabar cache", "--cache"),
    ("GOOD --cache notes --cache-size 20MiB", "holds data that is not a Cinnabar cache", "--cache"),
    ("GOOD --cache a1", "asu1 (a1) is the cache device", "of its own"),
    ("GOOD --cache link --cache-fresh", "asu1 (a1) is the cache device", "of its own"),
    ("--asu1 a1 --asu2 a2 --asu3 a3", "asu1: \"a1\" is a file that holds data", "--overwrite"),
    ("--asu1 sim:ssd:file:a1 --asu2 a2 --asu3 a3", "is a file that holds data", "--overwrite"),
    ("CACHED --html no/x.html", "--html no/x.html: its folder does not exist", "create"),
    ("CACHED --html .", "--html .: it is a directory", "name a file"),
    ("CACHED --html a3", "--html a3: that is storage under test", "another file"),
    ("CACHED --data no/x.json", "--data no/x.json: its folder does not exist", "create"),
    ("CACHED --data link", "--data link: that is storage under test", "another file"),
    (
        "CACHED --data c.img",
        "--data c.img: that is storage under test, or the cache",
        "another file",
    ),
    ("CACHED --find-max --data x.json", "--data", ""),
    ("--mock --cache-size 2TiB", "more than --mock can hold", "choose up to"),
    ("--mock --mock-sizes 1GiB,1GiB", "it takes three sizes", ""),
    ("--mock --mock-sizes 1GiB,2GiB,1GiB", "they must be of one size", "45 : 45 : 10"),
    ("--mock --asu1 a1", "--mock", ""),
];

fn bench(site: &Site, arguments: &str) -> Ended {
    let arguments = arguments.replace("GOOD", GOOD).replace("CACHED", CACHED);
    // So that a mistake that is not found does not take 300 s.
    let length: &[&str] = if arguments.contains("--runlen") { &[] } else { &["--runlen", "1"] };
    let words: Vec<&str> = arguments.split_whitespace().collect();
    site.run(&[&["bench", "spc1"], &words[..], length].concat())
}

fn check(ended: &Ended, case: &Case) {
    let (arguments, message, hint) = case;
    assert_eq!(ended.code, Some(2), "{arguments}: {ended:?}");
    assert_eq!(ended.stdout, "", "{arguments}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let errors = lines.iter().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "{arguments}: {ended:?}");
    assert!(ended.stderr.contains(message), "{arguments}: {ended:?}");
    let last = lines.last().expect("a line");
    assert!(last.starts_with("hint: ") && last.contains(hint), "{arguments}: {ended:?}");
}

fn check_untouched(site: &Site, what: &str) {
    for (name, mib) in [("a1", 9), ("a2", 9), ("a3", 2)] {
        let bytes = fs::read(site.path(name)).expect("it is there");
        assert!(bytes == pattern(0, mib * MIB), "{what}: {name} was written");
    }
    for name in ["c.img", "c.img.state", "x.json", "notes.state", "a1.state", "no"] {
        assert!(!site.path(name).exists(), "{what}: {name} was made");
    }
}

#[test]
fn it_is_one_line_and_costs_nothing() {
    let site = site();
    site.disk("half", 4 * MIB);
    site.disk("log", MIB);
    for name in ["tiny1", "tiny2", "tiny3"] {
        site.disk(name, 100 << 10);
    }
    site.disk("odd", 700);
    site.write("empty", "");
    let notes = site.write("notes", "precious");
    std::os::unix::fs::symlink(site.path("a1"), site.path("link")).expect("a link");
    fs::hard_link(site.path("a1"), site.path("hard")).expect("a link");
    let made = Command::new("mkfifo").arg(site.path("pipe")).status().expect("coreutils");
    assert!(made.success());
    for case in CASES {
        check(&bench(&site, case.0), case);
        check_untouched(&site, case.0);
    }
    assert_eq!(fs::read_to_string(notes).expect("the notes"), "precious");
}

#[test]
fn storage_that_somebody_else_uses_is_left_alone() {
    let site = site();
    let held = File::open(site.path("a2")).expect("it is there");
    flock(&held, FlockOperation::LockExclusive).expect("it is free");
    for arguments in ["GOOD", "CACHED"] {
        check(
            &bench(&site, arguments),
            &(arguments, "a2: it is in use", "stop the process that uses it"),
        );
        check_untouched(&site, arguments);
    }
}

#[test]
fn zeros_are_somebodys_storage_too() {
    let site = Site::new();
    for (name, mib) in [("z1", 90), ("z2", 90), ("z3", 20)] {
        let file = File::create(site.path(name)).expect("a file");
        file.set_len(mib * MIB).expect("it has room");
    }
    let asus = "--asu1 z1 --asu2 z2 --asu3 z3 --cache z3";
    check(&bench(&site, asus), &(asus, "asu3 (z3) is the cache device", "of its own"));
    let bytes = fs::read(site.path("z3")).expect("it is there");
    assert!(bytes.iter().all(|byte| *byte == 0), "it was formatted");
}

/// A mount or a loop device, undone at the end.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).status();
    }
}

/// What a command prints; `None`, with a message, where it may not be done.
fn may(command: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(command).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        other => {
            eprintln!("skipped: {command} can't be used here: {other:?}");
            None
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain text")
}

#[test]
fn a_disk_without_room_for_the_cache_gets_none() {
    let site = site();
    let full = site.path("full");
    fs::create_dir(&full).expect("a folder");
    let mount = ["-t", "tmpfs", "-o", "size=22m", "tmpfs", text(&full)];
    if may("mount", &mount).is_none() {
        return;
    }
    let _mounted = Undo("umount", vec![text(&full).to_owned()]);
    let case = ("GOOD --cache full/c.img --cache-size 40MiB", "there is no room for", "--cache");
    check(&bench(&site, case.0), &case);
    check_untouched(&site, case.0);
    assert_eq!(fs::read_dir(&full).expect("it is there").count(), 0, "half a cache stays");
    let ended = bench(&site, "GOOD --cache full/c.img --cache-size 20MiB --cache-state state");
    assert_eq!(ended.code, Some(0), "there is room for this one: {ended:?}");
}

#[test]
fn a_device_that_holds_something_is_overwritten_only_if_that_is_said() {
    let site = site();
    let Some(device) = may("losetup", &["--find", "--show", text(&site.path("a1"))]) else {
        return;
    };
    let _attached = Undo("losetup", vec!["--detach".into(), device.clone()]);
    let asus = format!("--asu1 {device} --asu2 a2 --asu3 a3 --bsu 4");
    check(&bench(&site, &asus), &("a device", "is a block device that holds data", "--overwrite"));
    check_untouched(&site, &asus);
    let ended = bench(&site, &format!("{asus} --overwrite"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let bytes = fs::read(site.path("a2")).expect("it is there");
    assert!(bytes != pattern(0, 9 * MIB), "it was run");
}
