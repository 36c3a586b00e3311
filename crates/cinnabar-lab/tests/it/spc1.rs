//! `cinnabar-lab bench spc1`: real runs on small files, whose books must balance.

mod bad_input;
mod maximum;

use super::rig::{MIB, PATIENCE, Site, pattern};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

/// Small ASUs for most runs; far below what the random walk wants, which is said, and does not matter
/// here.
const ASUS: [&str; 6] = ["--asu1", "a1", "--asu2", "a2", "--asu3", "a3"];
/// A thousand I/Os in a second.
const LOAD: [&str; 5] = ["--bsu", "20", "--runlen", "1", "--overwrite"];
const CACHE: [&str; 4] = ["--cache", "c.img", "--cache-size", "20MiB"];

/// A folder with three ASUs.
fn site() -> Site {
    let site = Site::new();
    for (name, mib) in [("a1", 9), ("a2", 9), ("a3", 2)] {
        site.disk(name, mib * MIB);
    }
    site
}

fn run(site: &Site, flags: &[&[&str]]) -> Value {
    let text = site.ask(&[&["bench", "spc1", "--json"], &*flags.concat()].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// What must hold of every run.
fn check_books(report: &Value) {
    let ios = whole(&report["ios"]);
    let count = |of: &Value| whole(&of["count"]);
    let streams: u64 = list(&report["streams"]).iter().map(|of| count(&of["latency"])).sum();
    let periods: u64 = list(&report["periods"]).iter().map(|of| whole(&of["ios"])).sum();
    assert_eq!((streams, periods), (ios, ios), "{report}");
    let (reads, writes) = (count(&report["read_latency"]), count(&report["write_latency"]));
    assert_eq!((reads + writes, count(&report["latency"])), (ios, ios), "{report}");
    let server = &report["server"];
    assert_eq!((whole(&server["asked_reads"]), whole(&server["asked_writes"])), (reads, writes));
    for (server_count, of_periods) in [("reads", "server_reads"), ("writes", "server_writes")] {
        let sum: u64 = list(&report["periods"]).iter().map(|of| whole(&of[of_periods])).sum();
        assert_eq!(sum, whole(&server[server_count]), "{of_periods}: {report}");
    }
    // What waits to be submitted waits, too.
    let (scheduled, dispatched) = (&report["latency"], &report["dispatched_latency"]);
    assert!(number(&scheduled["mean_ms"]) >= number(&dispatched["mean_ms"]), "{report}");
    let within = number(&scheduled["mean_ms"]) <= 30.0;
    assert_eq!(report["within_30_ms"], within);
}

/// Of each stream: I/Os, share of reads, mean length.
fn drawn(report: &Value) -> Vec<(u64, String, String)> {
    let row = |of: &Value| {
        let text = |key: &str| of[key].to_string();
        (whole(&of["latency"]["count"]), text("read_share"), text("mean_blocks"))
    };
    list(&report["streams"]).iter().map(row).collect()
}

#[test]
fn without_a_cache_all_that_is_asked_reaches_the_storage() {
    let site = site();
    let seed = ["--seed", "7"];
    let files = ["--data", "rows.json", "--html", "run.html", "--dataperiod", "0.3s"];
    let report = run(&site, &[&ASUS, &LOAD, &seed, &files]);
    check_books(&report);
    let server = &report["server"];
    for (reached, asked) in [("reads", "asked_reads"), ("writes", "asked_writes")] {
        assert!(server[reached] == server[asked] && whole(&server[asked]) > 300, "{server}");
    }
    assert!(number(&server["all_cut"]).abs() < 1e-9 && report["cache"].is_null(), "{report}");
    assert_eq!(report["asu_bytes"], serde_json::json!([9 * MIB, 9 * MIB, 2 * MIB]));
    for name in ["a1", "a2", "a3"] {
        let path = site.path(name);
        let len = path.metadata().expect("it is there").len();
        assert_ne!(fs::read(path).expect("it is there"), pattern(0, len), "{name} is written");
    }

    let rows = fs::read_to_string(site.path("rows.json")).expect("the rows");
    let rows: Vec<Value> =
        rows.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
    assert_eq!(rows, list(&report["periods"]), "as many as periods, and the same");
    assert!(rows.len() >= 3, "{rows:?}");
    let page = fs::read_to_string(site.path("run.html")).expect("the page");
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.contains("ASU1_4")
    );
    for outside in ["<script", "<link", "src=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "{outside}: it needs nothing from elsewhere");
    }

    let again = run(&site, &[&ASUS, &LOAD, &seed]);
    assert_eq!(drawn(&again), drawn(&report), "a seed gives the same I/Os");
    assert_eq!(again["server"]["read_bytes"], server["read_bytes"]);
    let other = run(&site, &[&ASUS, &LOAD, &["--seed", "8"]]);
    assert_ne!(drawn(&other), drawn(&report));
    let spc1 = run(&site, &[&ASUS, &LOAD, &seed, &["--mix", "spc1"]]);
    let share = |of: &Value| number(&of["read_latency"]["count"]) / number(&of["ios"]);
    let (pblio, spc1) = (share(&report), share(&spc1));
    assert!(pblio > 0.5 && spc1 < 0.45, "55 % and 40 %: {pblio} {spc1}");
}

/// What must hold of every run with a cache that writes pass through.
fn check_cache(report: &Value) {
    check_books(report);
    let (cache, server) = (&report["cache"], &report["server"]);
    let of = |key: &str| whole(&cache[key]);
    let cached_streams = &list(&report["streams"])[..7];
    let blocks: f64 = cached_streams
        .iter()
        .map(|of| number(&of["mean_blocks"]) * number(&of["latency"]["count"]))
        .sum();
    let seen = of("reads") + of("invalidations");
    assert!((blocks - seen as f64).abs() < 0.5, "the log is not cached: {blocks} {cache}");
    assert_eq!(of("ram_hits") + of("buffer_hits") + of("storage_hits"), of("read_hits"));
    // The log is never read, so that every block the storage was asked for is one not found.
    let missed = of("reads") - of("read_hits");
    assert_eq!(whole(&server["read_bytes"]), missed * 4096, "{cache} {server}");
    assert_eq!(server["writes"], server["asked_writes"], "written through");
    assert!(of("invalidate_hits") <= of("invalidations"));
    assert!(of("cached_blocks") <= of("capacity_blocks") && of("capacity_blocks") <= 5120);
}

#[test]
fn a_second_run_begins_with_what_the_first_one_left() {
    let site = site();
    let first = run(&site, &[&ASUS, &LOAD, &CACHE, &["--seed", "1"]]);
    check_cache(&first);
    assert_eq!(first["cache"]["began"], "New");
    // Another seed: what is found was not asked for in the same order, but it was asked for.
    let second = run(&site, &[&ASUS, &LOAD, &["--cache", "c.img", "--seed", "2"]]);
    check_cache(&second);
    assert_eq!(second["cache"]["began"], "Loaded");
    let ratio = |of: &Value| number(&of["cache"]["read_hits"]) / number(&of["cache"]["reads"]);
    let (cold, warm) = (ratio(&first), ratio(&second));
    assert!(warm > cold + 0.1, "{cold} {warm}");
    let server = &second["server"];
    assert!(whole(&server["reads"]) < whole(&server["asked_reads"]), "{server}");
    // A loaded cache is asked for the very same blocks again: pblcache's second runs.
    let replayed = run(&site, &[&ASUS, &LOAD, &["--cache", "c.img", "--seed", "2"]]);
    assert!(ratio(&replayed) > 0.95, "{}", replayed["cache"]);

    let fresh = run(&site, &[&ASUS, &LOAD, &["--cache", "c.img", "--cache-fresh", "--seed", "1"]]);
    check_cache(&fresh);
    assert_eq!(fresh["cache"]["began"], "New");
    assert_eq!(fresh["cache"]["reads"], first["cache"]["reads"]);
    let around = ["--eviction", "clock", "--write-policy", "around", "--cache-fresh"];
    let around = run(&site, &[&ASUS, &LOAD, &CACHE, &around, &["--seed", "1"]]);
    check_cache(&around);
    let entered = |of: &Value| whole(&of["cache"]["insertions"]);
    assert!(entered(&around) < entered(&first), "writes do not enter");
}

#[test]
fn an_asu_may_be_many_files_whose_odd_ends_are_left_alone() {
    let site = Site::new();
    let files =
        [("a", 5 * MIB + 512), ("b", 4 * MIB + 3584), ("c", 9 * MIB), ("d", MIB + 512), ("e", MIB)];
    for (name, len) in files {
        site.disk(name, len);
    }
    let asus = ["--asu1", "a,b", "--asu2", "c", "--asu3", "d", "--asu3", "e"];
    for cache in [&[][..], &CACHE] {
        let report = run(&site, &[&asus, &LOAD, cache, &["--seed", "3"]]);
        check_books(&report);
        assert_eq!(report["asu_bytes"], serde_json::json!([9 * MIB, 9 * MIB, 2 * MIB]));
        let server = &report["server"];
        // An I/O over two files is two.
        assert!(whole(&server["writes"]) >= whole(&server["asked_writes"]), "{server}");
    }
    for (name, len) in files {
        let bytes = fs::read(site.path(name)).expect("it is there");
        assert_eq!(bytes.len() as u64, len, "{name} keeps its size");
        let used = len / 4096 * 4096;
        assert!(bytes[..used as usize] != pattern(0, used), "{name} is used");
        assert!(
            bytes[used as usize..] == pattern(used, len - used),
            "{name}: its end is left alone"
        );
    }
}

#[test]
fn what_people_see() {
    let site = site();
    let flags = [&["bench", "spc1"], &ASUS[..], &LOAD, &CACHE].concat();
    let ended = site.run(&flags);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let closing = [
        "Cache    : c.img (New)\n",
        "C Size   : 0.02 GB\n",
        "ASU1     : 0.01 GB\n",
        "BSUs     : 20\n",
        "Contexts : 1\n",
        "Run time : 1 s\n",
        "Avg IOPS:",
        " Avg Latency:",
        "Read Hit Rate: ",
        "Invalidate Hit Rate: ",
        "Insertions: ",
        "Evictions: ",
        "Ram Hit Rate: ",
        "Buffer Hit Rate: ",
        "Storage Hits: ",
        "Wraps: ",
        "ASU3_1 ",
        "mean within 30 ms: ",
    ];
    let mut left = ended.stdout.as_str();
    for line in closing {
        let (_, behind) = left.split_once(line).unwrap_or_else(|| panic!("{line:?}: {ended:?}"));
        left = behind;
    }
    assert!(ended.stderr.contains("note: what the ASUs hold is overwritten; seed "), "{ended:?}");
    assert!(ended.stderr.contains("warning: ASUs below 80 MiB"), "{ended:?}");
    assert!(site.run(&flags).stdout.starts_with("Cache    : c.img (Loaded)\n"));
}

#[test]
fn the_engine_alone() {
    let site = Site::new();
    let flags = ["--mock", "--mock-sizes", "45MiB,45MiB,10MiB", "--runlen", "0.3s", "--seed", "1"];
    let report = run(&site, &[&flags, &["--cache-size", "20MiB", "--bsu", "100"]]);
    assert!(whole(&report["ios"]) > 1000 && number(&report["cpu_us_per_io"]) > 0.0, "{report}");
    assert_eq!(report["asu_bytes"], serde_json::json!([45 * MIB, 45 * MIB, 10 * MIB]));
    let (cached, capacity) = (whole(&report["cached_blocks"]), whole(&report["capacity_blocks"]));
    assert!(0 < cached && cached <= capacity && capacity <= 5120, "{report}");
    assert!((0.01..0.99).contains(&number(&report["hit_ratio"])), "{report}");
    let none = run(&site, &[&flags]);
    assert!(number(&none["hit_ratio"]).abs() < 1e-9 && whole(&none["capacity_blocks"]) == 0);
}

#[test]
fn storage_that_fails_is_told_and_nothing_is_reported() {
    let site = site();
    let asus =
        ["--asu1", "a1", "--asu2", "sim:ssd,read_errors=0.5:file:a2", "--asu3", "a3", "--json"];
    for cache in [&[][..], &CACHE] {
        let ended = site.run(&[&["bench", "spc1"], &asus[..], &LOAD, cache].concat());
        assert!(ended.code == Some(1) && ended.stdout.is_empty(), "{ended:?}");
        assert!(ended.stderr.contains("I/Os failed, the first with: "), "{ended:?}");
        assert!(ended.stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
    }
}

#[test]
fn a_run_that_is_interrupted_ends_at_once_and_costs_no_cache() {
    let site = site();
    let flags = ["--bsu", "20", "--runlen", "1h", "--dataperiod", "100ms", "--data", "rows.json"];
    let mut command =
        site.command(&[&["bench", "spc1", "--overwrite"], &ASUS[..], &CACHE, &flags].concat());
    let mut running = site.start(command.stdin(Stdio::null()));
    let rows = || fs::read_to_string(site.path("rows.json")).unwrap_or_default().lines().count();
    running.wait_until("some rows", || rows() >= 3);
    // Not SIGINT, which whoever started the tests in the background has made us ignore.
    running.terminate();
    let begin = std::time::Instant::now();
    let status = running.wait();
    assert!(!status.success() && begin.elapsed() < PATIENCE, "{status:?}");
    let after = run(&site, &[&ASUS, &LOAD, &["--cache", "c.img"]]);
    check_cache(&after);
}
