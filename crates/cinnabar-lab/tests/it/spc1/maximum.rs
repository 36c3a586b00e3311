//! `--find-max` on storage whose limit is known.

use super::super::rig::{Site, finish_within};
use super::{CACHE, Value, list, number, site, whole};
use std::fs;
use std::time::Duration;

/// Runs that may be spoilt by what else the host does.
const ATTEMPTS: u32 = 3;
/// One I/O at a time on ASU1, of 20 ms each; ASU2 and ASU3 take no time. ASU1 gets 59.6 % of the I/Os,
/// 29.8 a second for each BSU, so that 1 BSU keeps it busy for .6 of the time, and 2 for 1.2.
const ASUS: [&str; 6] = [
    "--asu1",
    "sim:ssd,depth=1,read=20ms,write=20ms,bandwidth=0:file:a1",
    "--asu2",
    "a2",
    "--asu3",
    "a3",
];
/// A queue with fixed times waits for .6 * 20 / (2 * .4) = 15 ms at 1 BSU: a mean of 35 ms on ASU1, 21
/// of all. At 2 BSU it grows without end.
const SEARCH: [&str; 9] =
    ["--find-max", "--limit", "60ms", "--bsu", "1", "--runlen", "0.5s", "--seed", "5"];
/// Longest search: a dozen steps of some seconds each.
const PATIENCE: Duration = Duration::from_mins(4);

fn search(site: &Site, flags: &[&str]) -> Value {
    let all = [&["bench", "spc1", "--json", "--overwrite"], &ASUS[..], &SEARCH, flags].concat();
    let ended = finish_within(&mut site.command(&all), PATIENCE);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

fn bsu_max(of: &Value) -> u64 {
    whole(&of["bsu_max"])
}

#[test]
fn it_is_where_queueing_theory_puts_it() {
    let site = site();
    let mut found = Vec::new();
    // A host that is busy may make 1 BSU look like too much, but never 2 like little.
    let agrees = (0..ATTEMPTS).any(|_| {
        let report = search(&site, &[]);
        let without = &report["without"];
        assert!(report["with"].is_null() && report["ratio"].is_null(), "{report}");
        assert!(bsu_max(without) <= 1, "{report}");
        let steps = list(&without["steps"]);
        let rates: Vec<u64> = steps.iter().map(|step| whole(&step["bsu"])).collect();
        assert!(rates.is_sorted() && rates.contains(&1), "{report}");
        for step in steps {
            let (within, mean) = (step["within"] == true, number(&step["latency"]["mean_ms"]));
            assert!(!within || mean <= 60.0, "{step}");
            assert_eq!(within, whole(&step["bsu"]) <= bsu_max(without), "{step}");
            // What one step leaves under way is not taken for what the next one asked.
            for cut in ["reads_cut", "all_cut"] {
                assert!(number(&step[cut]).abs() < 1e-9, "there is no cache: {step}");
            }
        }
        found.push(number(&steps[0]["latency"]["mean_ms"]));
        bsu_max(without) == 1
    });
    assert!(agrees, "1 BSU is not within the limit: {found:?}");
    // No mean is less than the time that its I/Os take.
    assert!(found.iter().all(|mean| *mean > 0.4 * 20.0), "{found:?}");
}

#[test]
fn a_cache_raises_it_and_the_ratio_says_by_how_much() {
    let site = site();
    let flags = ["--html", "max.html", "--warm-max", "3s"];
    let mut found = Vec::new();
    // Nearly all reads are found, and a fifth of ASU1's I/Os are writes: six times as many fit.
    let agrees = (0..ATTEMPTS).any(|_| {
        let report = search(&site, &[&CACHE[..], &flags].concat());
        let (without, with) = (bsu_max(&report["without"]), bsu_max(&report["with"]));
        let warming = &report["with"]["warming"];
        assert!(whole(&warming["ios"]) > 0 && report["without"]["warming"].is_null(), "{report}");
        found.push((without, with));
        let sound = without == 1 && with >= 3;
        if sound {
            let ratio = number(&report["ratio"]);
            assert!((ratio - with as f64 / without as f64).abs() < 1e-9, "{report}");
            let best = list(&report["with"]["steps"]).iter().find(|step| step["bsu"] == with);
            let best = best.expect("it was played");
            assert!(best["within"] == true && number(&best["hit_ratio"]) > 0.5, "{best}");
        }
        sound
    });
    assert!(agrees, "BSU without and with: {found:?}");
    let page = fs::read_to_string(site.path("max.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("Response time over load"));
}
