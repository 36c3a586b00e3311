//! `cinnabar trace record`: what guests ask a running daemon for, as they ask it.

mod ends;
mod flood;
mod refusals;

use super::nbd::Client;
use super::rig::{Ended, MIB, PATIENCE, Site};
use cinnabar_trace::{Op, Record};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TWO: &str = "[[volume]]\nname = \"a\"\nbackend = \"file:a.raw\"\n\
    [[volume]]\nname = \"b\"\nbackend = \"file:b.raw\"\n";

/// Two volumes, on two threads.
fn site() -> Site {
    let site = Site::new();
    site.disk("a.raw", 8 * MIB);
    site.disk("b.raw", 8 * MIB);
    site.config(&format!("shards = 2\nthreads = 2\n{TWO}"));
    site
}

fn attach(site: &Site, name: &str) -> Client {
    Client::attach(&site.path(&format!("{name}.sock")), name).expect("it is let in")
}

/// A command that records, killed when dropped.
struct Recorder {
    child: Child,
    log: PathBuf,
}

impl Recorder {
    /// Starts it and waits until it records.
    fn start(site: &Site, args: &[&str]) -> Self {
        let name = format!("rec-{}", fs::read_dir(site.path(".")).expect("a folder").count());
        let log = site.path(&name);
        let mut command = site.command(&[&["trace", "record"], args].concat());
        command.stdout(Stdio::piped()).stderr(File::create(&log).expect("a log"));
        let mut new = Self { child: command.spawn().expect("it starts"), log };
        new.wait_until("recording", |log| log.contains("recording "));
        new
    }

    fn wait_until(&mut self, what: &str, happened: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !happened(&fs::read_to_string(&self.log).expect("its log")) {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "ended before {what}: {}", self.stderr());
            assert!(start.elapsed() < PATIENCE, "not {what}: {}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// Waits for its end.
    fn wait(mut self) -> Ended {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end: {}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        };
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().expect("it is piped");
        pipe.read_to_string(&mut stdout).expect("text");
        Ended { code: status.code(), stdout, stderr: self.stderr() }
    }

    /// Waits for a good end, for what it reports.
    fn report(self) -> Value {
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).expect("it is JSON")
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> Value {
        self.signal(Signal::INT);
        self.report()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A trace, checked for times that never go back.
fn trace(site: &Site, name: &str) -> Vec<Record> {
    let records = cinnabar_trace::open(&site.path(name)).expect("it opens");
    let records: Vec<Record> = records.collect::<Result<_, _>>().expect("valid lines");
    assert!(records.is_sorted_by_key(|record| record.ts_us), "{records:?}");
    records
}

/// A request without its time.
fn what(record: &Record) -> (u32, Op, u64, u64) {
    (record.volume, record.op, record.offset_bytes, record.length_bytes)
}

#[test]
fn what_is_asked_for_is_recorded_in_order() {
    let site = site();
    let daemon = site.serve();
    let (mut a, mut b) = (attach(&site, "a"), attach(&site, "b"));
    a.read(0, 4096).expect("it reads");
    // The second one is number 0.
    let recorder = Recorder::start(&site, &["b", "a", "--out", "r.csv", "--json"]);
    let mut expected = Vec::new();
    for round in 0..50 {
        // Unaligned, across the shards' stripes, and far beyond one block.
        let (offset, len) = (4 * MIB - 512 * round, 512 * (2 * round + 1));
        a.write(offset, &vec![7; len as usize]).expect("it writes");
        b.read(offset, len as u32).expect("it reads");
        a.trim(offset, len as u32).expect("it trims");
        a.flush().expect("it flushes");
        b.zero(512 * round, 1024).expect("it zeroes");
        expected.extend([
            (1, Op::Write, offset, len),
            (0, Op::Read, offset, len),
            (1, Op::Discard, offset, len),
            (1, Op::Flush, 0, 0),
            (0, Op::Discard, 512 * round, 1024),
        ]);
    }
    let report = recorder.interrupt();
    let records = trace(&site, "r.csv");
    assert_eq!(records.iter().map(what).collect::<Vec<_>>(), expected);
    assert!(records[0].ts_us < records[249].ts_us, "time passed");
    for (key, value) in
        [("requests", 250), ("reads", 50), ("writes", 50), ("flushes", 50), ("discards", 100)]
    {
        assert_eq!(report[key], value, "{key}: {report}");
    }
    assert_eq!((&report["ended"], &report["dropped"]), (&"signal".into(), &0.into()), "{report}");
    assert_eq!(report["file_bytes"], fs::metadata(site.path("r.csv")).expect("it is there").len());
    assert_eq!(report["last_ts_us"], records[249].ts_us);
    let volumes = report["volumes"].as_array().expect("a list");
    let names: Vec<_> = volumes.iter().map(|v| (&v["number"], &v["name"])).collect();
    assert_eq!(names, [(&0.into(), &"b".into()), (&1.into(), &"a".into())]);
    assert_eq!((&volumes[1]["writes"], &volumes[0]["discards"]), (&50.into(), &50.into()));
    drop((a, b));
    daemon.stop();
}

#[test]
fn all_volumes_and_compressed() {
    let site = site();
    let daemon = site.serve();
    let recorder = Recorder::start(&site, &["--all", "--out", "r.csv.zst", "--json"]);
    let one = Recorder::start(&site, &["b", "--out", "one.csv", "--json"]);
    let (mut a, mut b) = (attach(&site, "a"), attach(&site, "b"));
    for block in 0..20 {
        a.read(block * 4096, 4096).expect("it reads");
        b.write(block * 4096, &[1; 4096]).expect("it writes");
    }
    assert_eq!(recorder.interrupt()["requests"], 40);
    assert_eq!(one.interrupt()["requests"], 20);
    let magic = fs::read(site.path("r.csv.zst")).expect("it is there");
    assert_eq!(magic[..4], [0x28, 0xB5, 0x2F, 0xFD], "zstd");
    // Two recordings hear the same, each with its own numbers.
    let of_b = |volume: u32, name: &str| -> Vec<_> {
        let records = trace(&site, name);
        records.iter().filter(|r| r.volume == volume).map(|r| what(r).2).collect()
    };
    assert_eq!(of_b(1, "r.csv.zst"), of_b(0, "one.csv"));
    assert_eq!(of_b(0, "r.csv.zst").len(), 20);
    drop((a, b));
    daemon.stop();
}
