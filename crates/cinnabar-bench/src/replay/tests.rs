//! Whole replays on small files: what is played, what reaches the storage, what warming does.

use super::outcome::WITHOUT;
use super::{Plan, Progress, Replay, ReplayError, Row, Warm, Watch};
use crate::drive::Pace;
use crate::target::CacheOptions;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const DISK: u64 = 32 * MIB;
/// Far from any real pace.
const HOUR_US: u64 = 3_600_000_000;

#[derive(Default)]
struct Heard {
    rows: Vec<Row>,
    played: u64,
}

impl Watch for Heard {
    fn progress(&mut self, progress: &Progress) {
        if let Progress::Playing { ios, .. } = progress {
            self.played = *ios;
        }
    }

    fn row(&mut self, row: &Row) {
        self.rows.push(row.clone());
    }
}

struct Site(TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn disk(&self, name: &str) -> String {
        fs::write(self.path(name), vec![7; DISK as usize]).expect("a disk");
        format!("file:{}", self.path(name).display())
    }

    fn trace(&self, lines: impl IntoIterator<Item = String>) -> PathBuf {
        fs::write(self.path("t.csv"), lines.into_iter().collect::<String>()).expect("a trace");
        self.path("t.csv")
    }

    fn plan(&self, trace: PathBuf) -> Plan {
        Plan {
            trace,
            targets: vec![self.disk("disk")],
            wrap: false,
            read_only: false,
            overwrite: true,
            pace: Pace::Closed { depth: 4 },
            idle_max: None,
            warm: Vec::new(),
            period: Duration::from_hours(1),
            cache: None,
            row: Duration::from_secs(1),
        }
    }

    fn cache(&self) -> CacheOptions {
        CacheOptions { size_bytes: Some(64 * MIB), ..CacheOptions::new(self.path("cache")) }
    }
}

fn play(plan: Plan) -> Result<super::Outcome, ReplayError> {
    Replay::prepare(plan, &mut Heard::default())?.run(&mut Heard::default())
}

/// Three hours: each reads 100 blocks; of those of the last, 90 were read in the hour before and all
/// in the two hours before. Five writes in each.
fn three_hours() -> impl Iterator<Item = String> {
    let hour = |hour: u64, blocks: std::ops::Range<u64>| {
        let reads = blocks.map(move |block| {
            format!("{},0,R,{},4096\n", hour * HOUR_US + 50 * block, block * 8192)
        });
        let write =
            move |n: u64| format!("{},0,W,{},512\n", (hour + 1) * HOUR_US - 9 + n, DISK - 4096);
        reads.chain((0..5).map(write))
    };
    hour(0, 10..110).chain(hour(1, 100..200)).chain(hour(2, 105..205))
}

#[test]
fn warming_is_what_comes_before_the_last_period() {
    let site = Site::new();
    let warm = vec![Warm::Without, Warm::Periods(0), Warm::Periods(1), Warm::Periods(2)];
    let mut plan = Plan { warm, cache: Some(site.cache()), ..site.plan(site.trace(three_hours())) };
    plan.targets = vec![plan.targets[0].replacen("file:", "sim:ssd,read=20ms:file:", 1)];
    let outcome = play(plan).expect("it plays");
    let labels: Vec<&str> = outcome.runs.iter().map(|run| run.warm.as_str()).collect();
    assert_eq!(labels, [WITHOUT, "0", "1", "2"]);
    for run in &outcome.runs {
        assert_eq!((run.ios, run.reads, run.failures), (105, 100, 0), "{run:?}");
        assert_eq!(run.latency.count, 105);
        assert_eq!(run.server.writes, 5, "written through: {run:?}");
    }
    let reads: Vec<u64> = outcome.runs.iter().map(|run| run.server.reads).collect();
    assert_eq!(reads, [100, 100, 5, 5]);
    let warmed: Vec<u64> = outcome.runs.iter().filter_map(|run| Some(run.warmed?.ios)).collect();
    assert_eq!(warmed, [0, 105, 210]);
    let hits: Vec<Option<f64>> = outcome.runs.iter().map(|run| run.hit_ratio).collect();
    assert_eq!(hits[..2], [None, Some(0.0)]);
    assert!((hits[2].expect("a cache") - 0.95).abs() < 1e-9);
    let change = outcome.runs[3].change.expect("there is one to compare with");
    assert!((change.server_requests_percent + 100.0 * 95.0 / 105.0).abs() < 1e-9, "{change:?}");
    // Twenty milliseconds each without: no machine is so slow that a hit takes as long.
    assert!(change.service_percent < -25.0, "{change:?}");
    assert!(outcome.runs[0].change.is_none() && outcome.published.is_some());
}

#[test]
fn writes_reach_the_storage_where_the_trace_says_and_nowhere_else() {
    for cache in [false, true] {
        let site = Site::new();
        let lines = ["0,0,W,8192,4096\n", "1,0,W,100000,100\n", "2,0,R,0,4096\n", "3,0,F,0,0\n"];
        let plan = site.plan(site.trace(lines.map(str::to_owned)));
        let plan = Plan { cache: cache.then(|| site.cache()), ..plan };
        let replay = Replay::prepare(plan.clone(), &mut Heard::default()).expect("it fits");
        assert!(replay.overwrites());
        assert_eq!(replay.survey().left_out, 1);
        let outcome = replay.run(&mut Heard::default()).expect("it plays");
        assert_eq!((outcome.runs[0].ios, outcome.runs[0].server.writes), (3, 2));
        assert_eq!(outcome.runs[0].bytes, 8192 + 512);
        let file = fs::File::open(site.path("disk")).expect("the disk");
        let mut disk = vec![0; DISK as usize];
        file.read_exact_at(&mut disk, 0).expect("all of it");
        // 100,000 lies in sector 195.
        let written = [8192..12_288, 99_840..100_352];
        let inside = |at: usize| written.iter().any(|range| range.contains(&at));
        let foreign = (0..disk.len()).find(|&at| disk[at] != 7 && !inside(at));
        assert_eq!(foreign, None);
        for range in written {
            let noise = disk[range.clone()].iter().filter(|&&byte| byte != 7).count();
            assert!(noise > range.len() / 2, "{noise} of {range:?}");
        }
        let dry = Plan { read_only: true, ..plan };
        fs::write(site.path("disk"), vec![7; DISK as usize]).expect("a disk");
        let outcome = play(dry).expect("it plays");
        assert_eq!((outcome.runs[0].ios, outcome.runs[0].server.writes), (1, 0));
        let after = fs::read(site.path("disk")).expect("the disk");
        assert!(after.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn an_open_loop_keeps_the_trace_s_time() {
    let site = Site::new();
    // 100 requests, one every 10 ms, but for a pause of an hour.
    let at = |n: u64| if n < 50 { n * 10_000 } else { HOUR_US + n * 10_000 };
    let trace = site.trace((0..100).map(|n| format!("{},0,R,{},4096\n", at(n), n * 4096)));
    let pace = Pace::Open { from_ns: 0, speed: 2.0 };
    let idle_max = Some(Duration::from_millis(110));
    let plan = Plan { pace, idle_max, row: Duration::from_millis(200), ..site.plan(trace) };
    let mut heard = Heard::default();
    let replay = Replay::prepare(plan, &mut heard).expect("it fits");
    let outcome = replay.run(&mut heard).expect("it plays");
    let run = &outcome.runs[0];
    // 98 pauses of 10 ms and one of 110 ms, twice as fast.
    assert!((0.54..5.0).contains(&run.seconds), "{}", run.seconds);
    assert_eq!(run.ios, 100);
    assert_eq!(run.rows.iter().map(|row| row.ios).sum::<u64>(), 100);
    assert!(heard.rows.len() >= 2 && heard.played > 0, "{} rows", heard.rows.len());
    assert_eq!(heard.rows.len(), run.rows.len());
}

#[test]
fn every_volume_has_a_target() {
    let site = Site::new();
    let lines = (0..40).map(|n| format!("{n},{},W,{},4096\n", [4, 2][n % 2], n * 4096));
    let plan = site.plan(site.trace(lines));
    let targets = vec![site.disk("two"), site.disk("four")];
    let outcome = play(Plan { targets, ..plan }).expect("it plays");
    let run = &outcome.runs[0];
    let counts: Vec<u64> = run.latency_volumes.iter().map(|one| one.count).collect();
    assert_eq!(counts, [20, 20]);
    let numbers: Vec<u32> = outcome.volumes.iter().map(|volume| volume.number).collect();
    assert_eq!(numbers, [2, 4]);
    // The first record is of volume 4, at its first block.
    assert_ne!(fs::read(site.path("four")).expect("a disk")[..4096], [7; 4096]);
    assert_eq!(fs::read(site.path("two")).expect("a disk")[..4096], [7; 4096]);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_touched() {
    let site = Site::new();
    let plan = |lines: &[&str]| site.plan(site.trace(lines.iter().map(|line| (*line).to_owned())));
    let error = |plan: Plan| {
        let error = Replay::prepare(plan, &mut Heard::default()).expect_err("it does not fit");
        assert!(!error.hint().is_empty() && error.is_usage());
        error.to_string()
    };
    let beyond = format!("0,0,R,{DISK},4096\n");
    let small = error(plan(&[&beyond]));
    assert!(small.contains(&format!("needs {} bytes", DISK + 4096)), "{small}");
    assert!(small.contains(&format!("has {DISK}")), "{small}");
    let wrapped = Plan { wrap: true, ..plan(&[&beyond]) };
    assert_eq!(play(wrapped).expect("it plays").runs[0].ios, 1);

    let two = ["0,0,R,0,4096\n", "1,7,R,0,4096\n"];
    assert!(error(plan(&two)).starts_with("the trace has 2 volumes (0, 7), and 1 targets"));
    let same = plan(&two);
    let targets = vec![same.targets[0].clone(), same.targets[0].clone()];
    assert!(error(Plan { targets, ..same }).contains("one and the same"));
    let none = Plan { targets: vec!["file:/nowhere/disk".into()], ..plan(&two[..1]) };
    assert!(error(none).contains("/nowhere/disk"));

    let warm = |count| vec![Warm::Periods(count)];
    let no_cache = Plan { warm: warm(0), ..plan(&two[..1]) };
    assert_eq!(error(no_cache), "warming needs a cache");
    let too_long = Plan { warm: warm(2), cache: Some(site.cache()), ..plan(&two[..1]) };
    assert!(error(too_long).contains("has 0 periods before its last one, and 2 are"));
    assert!(!site.path("cache").exists(), "no cache is made for what is refused");
}

#[test]
fn failures_are_counted() {
    let site = Site::new();
    let mut plan = site.plan(site.trace(three_hours()));
    plan.targets = vec![plan.targets[0].replacen("file:", "sim:ssd,read_errors=1:file:", 1)];
    let run = play(plan).expect("it plays").runs.remove(0);
    assert_eq!((run.ios, run.failures), (15, 300), "{run:?}");
    assert!(run.first_failure.is_some());
}
