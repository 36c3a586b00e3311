//! How recordings end: by limits, with their volumes, with the daemon, with its death.

use super::{Recorder, attach, site, trace, what};
use cinnabar_trace::Op;
use rustix::process::Signal;
use std::fs;

#[test]
fn a_time_or_a_size_ends_it() {
    let site = site();
    let daemon = site.serve();
    let mut a = attach(&site, "a");
    let args = ["a", "--out", "t.csv", "--json", "--duration", "300ms"];
    let mut timed = Recorder::start(&site, &args);
    let mut asked = 0;
    while timed.child.try_wait().expect("it is our child").is_none() {
        a.read(0, 512).expect("it reads");
        asked += 1;
    }
    let report = timed.report();
    assert_eq!(report["ended"], "duration", "{report}");
    let records = trace(&site, "t.csv");
    assert!(!records.is_empty() && records.len() <= asked, "{} of {asked}", records.len());
    assert!(records.iter().all(|record| record.ts_us <= 300_000), "{:?}", records.last());

    let sized = Recorder::start(&site, &["a", "--out", "s.csv", "--json", "--max-size", "2KiB"]);
    for block in 0..200 {
        a.read(block * 4096, 4096).expect("it reads");
    }
    let ended = sized.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("warning: ended early"), "{ended:?}");
    let len = fs::metadata(site.path("s.csv")).expect("it is there").len();
    assert!((1900..=2048).contains(&len), "{len}");
    let offsets: Vec<u64> = trace(&site, "s.csv").iter().map(|record| what(record).2).collect();
    let first: Vec<u64> = (0..offsets.len() as u64).map(|block| block * 4096).collect();
    assert_eq!(offsets, first, "the first ones");
    drop(a);
    daemon.stop();
}

#[test]
fn a_volume_that_is_removed_ends_its_part() {
    let site = site();
    let daemon = site.serve();
    let recorder = Recorder::start(&site, &["a", "b", "--out", "r.csv", "--json"]);
    let (mut a, mut b) = (attach(&site, "a"), attach(&site, "b"));
    a.write(0, &[1; 512]).expect("it writes");
    site.ask(&["volume", "remove", "a", "--force"]);
    drop(a);
    b.read(0, 512).expect("it reads");
    // The same name again is another volume, whatever place it gets.
    site.ask(&["volume", "add", "a", "--backend", "file:a.raw"]);
    let mut a = attach(&site, "a");
    a.read(1024, 512).expect("it reads");
    b.read(4096, 512).expect("it reads");
    site.ask(&["volume", "remove", "b", "--force"]);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("warning: volume \"a\" was removed"), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    assert_eq!(report["ended"], "removed", "{report}");
    assert_eq!(report["volumes"][0]["removed"], true, "{report}");
    let records: Vec<_> = trace(&site, "r.csv").iter().map(what).collect();
    let expected = [(0, Op::Write, 0, 512), (1, Op::Read, 0, 512), (1, Op::Read, 4096, 512)];
    // A client that is thrown out may have asked for a flush before.
    let asked: Vec<_> = records.into_iter().filter(|record| record.1 != Op::Flush).collect();
    assert_eq!(asked, expected);
    drop((a, b));
    daemon.stop();
}

#[test]
fn the_daemons_stop_is_a_good_end() {
    let site = site();
    let daemon = site.serve();
    let recorder = Recorder::start(&site, &["--all", "--out", "r.csv", "--json"]);
    let mut a = attach(&site, "a");
    for block in 0..3000 {
        a.read(block % 2000 * 4096, 4096).expect("it reads");
    }
    drop(a);
    // Much of it is still on its way.
    daemon.stop();
    let report = recorder.report();
    assert_eq!(report["ended"], "stopping", "{report}");
    assert_eq!((&report["reads"], &report["dropped"]), (&3000.into(), &0.into()), "{report}");
    assert_eq!(report["volumes"][0]["removed"], false, "{report}");
    let reads = trace(&site, "r.csv").iter().filter(|record| record.op == Op::Read).count();
    assert_eq!(reads, 3000);
}

#[test]
fn the_daemons_death_keeps_what_was_recorded() {
    let site = site();
    let daemon = site.serve();
    let recorder = Recorder::start(&site, &["a", "--out", "r.csv", "--json"]);
    let mut a = attach(&site, "a");
    for block in 0..100 {
        a.read(block * 4096, 4096).expect("it reads");
    }
    daemon.crash();
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("error: lost the daemon; r.csv has"), "{ended:?}");
    assert!(ended.stderr.trim_end().lines().last().is_some_and(|line| line.starts_with("hint: ")));
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    assert_eq!(report["ended"], "lost", "{report}");
    // As many as were sent before it died, and these are the first ones.
    let text = fs::read_to_string(site.path("r.csv")).expect("it is there");
    let text = text.strip_prefix("# volume 0 a\n").expect("its volume has its name");
    assert_eq!(report["requests"], text.lines().count());
    for (block, line) in text.lines().enumerate() {
        assert!(line.ends_with(&format!(",0,R,{},4096", block * 4096)), "{line}");
    }
}

#[test]
fn a_reader_that_is_killed_leaves_nothing_behind() {
    let site = site();
    let daemon = site.serve();
    let mut a = attach(&site, "a");
    let edges = || site.status()["cache"]["ram_bytes"]["edges"].as_u64().expect("a count");
    a.read(0, 512).expect("it reads");
    let before = edges();
    let recorder = Recorder::start(&site, &["a", "--out", "r.csv"]);
    assert!(edges() > before + (2 << 20), "a recording has a buffer");
    recorder.signal(Signal::KILL);
    drop(recorder);
    let start = std::time::Instant::now();
    while edges() > before + (1 << 20) {
        a.read(0, 4096).expect("the load goes on");
        assert!(start.elapsed() < super::PATIENCE, "the buffer is still there");
    }
    assert!(!site.path("r.csv").exists(), "no half trace");
    drop(a);
    daemon.stop();
}
