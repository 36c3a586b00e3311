//! `cinnabar-lab bench replay`: real runs on small files, and requests that can't be fulfilled.

use super::rig::{MIB, Site};
use serde_json::Value;
use std::fs;

/// Three days of a small desktop, 1000 requests each.
const DAYS: &[&str] = &[
    "trace",
    "generate",
    "desktop",
    "--days=3",
    "--requests-per-day=1000",
    "--disk-size=130MiB",
    "--out=days.csv.zst",
];

fn replay(site: &Site, flags: &[&str]) -> Value {
    let text = site.ask(&[&["bench", "replay"], flags, &["--json"]].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_desktop_experiment() {
    let site = Site::new();
    site.ask(DAYS);
    fs::File::create(site.path("disk")).expect("a disk").set_len(130 * MIB).expect("room");
    let flags = [
        "days.csv.zst",
        "--target=sim:ssd,read=3ms,write=500us:file:disk",
        "--closed",
        "--cache=cache.img",
        "--cache-size=64MiB",
        "--warm=none,0,1,2",
        "--data=rows.json",
        "--data-period=100ms",
        "--html=days.html",
    ];
    let outcome = replay(&site, &flags);
    let runs = outcome["runs"].as_array().expect("a list");
    let labels: Vec<&str> = runs.iter().filter_map(|run| run["warm"].as_str()).collect();
    assert_eq!(labels, ["none", "0", "1", "2"]);
    for run in runs {
        assert_eq!(run["ios"], runs[0]["ios"], "the same day each time");
        assert_eq!(run["failures"], 0);
        let server = &run["server"];
        let sum = number(&server["reads"]) + number(&server["writes"]);
        assert!((number(&server["requests"]) - sum).abs() < 0.5);
        assert_eq!(server["writes"], runs[0]["server"]["writes"], "written through");
    }
    assert!(number(&runs[0]["ios"]) > 800.0);
    assert!(runs[0]["hit_ratio"].is_null() && runs[0]["warmed"].is_null());
    let hits: Vec<f64> = runs[1..].iter().map(|run| number(&run["hit_ratio"])).collect();
    assert!(hits[0] < 0.3 && hits[1] > hits[0] + 0.3 && hits[2] > hits[1], "{hits:?}");
    let reads: Vec<f64> = runs.iter().map(|run| number(&run["server"]["reads"])).collect();
    assert!(reads[3] < 0.4 * reads[0], "{reads:?}");
    let change = &runs[3]["change"];
    // Writes may wait for a slow SSD, but a hit saves three milliseconds.
    let means: Vec<f64> = runs.iter().map(|run| number(&run["latency_reads"]["mean_ms"])).collect();
    assert!(means[3] < 0.7 * means[0] && means[0] >= 3.0, "{means:?}");
    // With writes in it, on a disk that others use, it may be of either sign.
    assert!(number(&change["service_percent"]).is_finite(), "{change}");
    assert!(number(&change["server_requests_percent"]) < -25.0, "{change}");
    assert_eq!(outcome["published"]["service_percent"], -40.0);

    let rows = fs::read_to_string(site.path("rows.json")).expect("the rows");
    let rows: Vec<Value> =
        rows.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
    let of_test = rows.iter().filter(|row| row["run"] == "2");
    let ios: f64 = of_test.map(|row| number(&row["ios"])).sum();
    assert!((ios - number(&runs[3]["ios"])).abs() < 0.5, "{ios}");
    let page = fs::read_to_string(site.path("days.html")).expect("the page");
    for part in ["<!DOCTYPE html>", "<svg", "Mean service time", "published", "days.csv.zst"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"));
}

#[test]
fn what_people_see() {
    let site = Site::new();
    site.write("t.csv", "0,0,R,0,4096\n10,0,W,4096,4096\n20,0,F,0,0\n");
    let before = fs::read(site.disk("disk", MIB)).expect("a disk");
    let ended = site.run(&["bench", "replay", "t.csv", "--target", "disk"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("is a file that holds data"), "{ended:?}");
    assert!(ended.stderr.contains("--overwrite"), "{ended:?}");
    assert_eq!(fs::read(site.path("disk")).expect("the disk"), before, "it was written");
    let ended = site.run(&["bench", "replay", "t.csv", "--target", "disk", "--overwrite"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("note: what is on disk is overwritten"), "{ended:?}");
    assert!(ended.stderr.contains("1 flushes, discards and empty requests are left out"));
    for part in ["volume 0", "on disk", "WARM", "SERVER READS", "none"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("AGAINST"), "nothing to compare: {}", ended.stdout);
    let after = fs::read(site.path("disk")).expect("the disk");
    assert_eq!((&after[..4096], &after[8192..]), (&before[..4096], &before[8192..]));
    assert_ne!(after[4096..8192], before[4096..8192]);

    let dry = site.run(&["bench", "replay", "t.csv", "--target=disk", "--read-only-replay"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(!dry.stderr.contains("overwritten"), "{dry:?}");
    assert_eq!(fs::read(site.path("disk")).expect("the disk"), after);
}

#[test]
fn a_cache_stays_warm_from_run_to_run_unless_it_is_to_be_empty() {
    let site = Site::new();
    let lines = (0..100).map(|n| format!("{n},0,R,{},4096\n", n * 4096));
    site.write("t.csv", &lines.collect::<String>());
    site.disk("disk", MIB);
    let flags = [
        "t.csv",
        "--target=disk",
        "--closed",
        "--cache=c.img",
        "--cache-size=64MiB",
        "--overwrite",
    ];
    let hits = |more: &[&str]| {
        let outcome = replay(&site, &[&flags[..], more].concat());
        number(&outcome["runs"][0]["hit_ratio"])
    };
    assert!(hits(&[]) < 1e-9, "empty");
    assert!(hits(&[]) > 0.999, "as the first run left it");
    assert!(hits(&["--cache-fresh"]) < 1e-9, "empty again");
    // With --warm it would be emptied: not without being told so.
    let ended = site.run(&[&["bench", "replay"], &flags[..], &["--warm=0"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("hint: --cache-fresh"), "{ended:?}");
    assert!(hits(&["--warm=0", "--cache-fresh"]) < 1e-9);
}

#[test]
fn what_can_not_be_replayed_is_one_clear_line() {
    let site = Site::new();
    site.write("good.csv", "0,0,R,0,4096\n5,0,W,4096,4096\n");
    site.write("two.csv", "0,0,R,0,4096\n5,3,W,4096,4096\n");
    site.write("far.csv", "0,0,R,1048576,4096\n");
    site.write("back.csv", "5,0,R,0,4096\n4,0,R,0,4096\n");
    site.write("bad.csv", "5,0,R,0,4096\n6,0,read,0,4096\n");
    site.write("flushes.csv", "5,0,F,0,0\n");
    site.write("empty.csv", "");
    let before = fs::read(site.disk("disk", MIB)).expect("a disk");
    site.disk("other", MIB);
    let cases: &[(&[&str], &str)] = &[
        (&["none.csv", "--target=disk"], "none.csv: cannot read the trace"),
        (&[".", "--target=disk"], "not a file"),
        (&["/dev/null", "--target=disk"], "not a file"),
        (&["empty.csv", "--target=disk"], "no reads and no writes"),
        (&["flushes.csv", "--target=disk"], "no reads and no writes"),
        (&["bad.csv", "--target=disk"], "line 2 of the trace is not valid"),
        (&["back.csv", "--target=disk"], "line 2 is earlier"),
        (&["far.csv", "--target=disk"], "needs 1052672 bytes, and disk has 1048576"),
        (&["two.csv", "--target=disk"], "2 volumes (0, 3), and 1 targets"),
        (&["good.csv", "--target=disk", "--target=other"], "1 volumes (0), and 2 targets"),
        (&["two.csv", "--target=disk", "--target=./disk"], "one and the same"),
        (&["good.csv", "--target=absent"], "absent"),
        (&["good.csv", "--target=nbd:unix:absent.sock"], "absent.sock"),
        (&["good.csv", "--target=sim:nonsense:file:disk"], "nonsense"),
        (&["good.csv", "--target=disk", "--warm=1"], "0 periods before its last one"),
        (&["good.csv", "--target=disk", "--warm=0"], "warming needs a cache"),
        (&["good.csv", "--target=disk", "--overwrite", "--cache=c.img"], "there is no such cache"),
        (&["good.csv", "--target=disk", "--data=none/rows"], "its folder does not exist"),
        (&["good.csv", "--target=disk", "--html=./disk"], "that is storage under test"),
        (&["good.csv", "--target=sim:ssd:file:disk", "--data=disk"], "that is storage under test"),
        (&["good.csv", "--target=disk", "--data=./good.csv"], "that is the trace"),
        (&["good.csv", "--target=./good.csv"], "that is a target"),
        (&["good.csv", "--target=disk", "--data=r", "--html=r"], "name one file"),
    ];
    for (flags, what) in cases {
        let ended = site.run(&[&["bench", "replay"], *flags].concat());
        assert_eq!(ended.code, Some(2), "{flags:?}: {ended:?}");
        assert!(ended.stderr.contains(what), "{flags:?}: {ended:?}");
        assert!(ended.stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
        assert!(ended.stdout.is_empty() && !ended.stderr.contains("panicked"), "{ended:?}");
    }
    assert_eq!(fs::read(site.path("disk")).expect("the disk"), before, "nothing was written");
    assert!(!site.path("c.img").exists() && !site.path("r").exists());
    let wrapped = replay(&site, &["far.csv", "--target=disk", "--wrap"]);
    assert_eq!(wrapped["runs"][0]["ios"], 1);
}

#[test]
fn a_back_end_that_fails_is_told_behind_the_table() {
    let site = Site::new();
    site.write("t.csv", "0,0,R,0,4096\n1,0,W,0,4096\n");
    site.disk("disk", MIB);
    let target = "--target=sim:ssd,read_errors=1:file:disk";
    let ended = site.run(&["bench", "replay", "t.csv", target, "--overwrite"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("1 requests failed, the first one with:"), "{ended:?}");
    assert!(ended.stdout.contains("SERVER READS"), "{ended:?}");
}
