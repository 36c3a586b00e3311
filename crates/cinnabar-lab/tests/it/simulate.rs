//! `cinnabar-lab simulate faults`: the same seeds give the same run, whatever runs beside them.

use super::rig::Site;
use serde_json::Value;

fn run(site: &Site, args: &[&str]) -> Value {
    let text = site.ask(&[&["simulate", "faults", "--json"], args].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn seeds_repeat_on_any_number_of_threads() {
    let site = Site::new();
    let one = run(&site, &["--first", "40", "--seeds", "6", "--jobs", "1"]);
    let two = run(&site, &["--first", "40", "--seeds", "6", "--jobs", "2"]);
    assert_eq!(one["seeds"], 6);
    assert_eq!(one["failures"], Value::Array(Vec::new()), "{one}");
    for key in ["requests", "sectors_judged", "simulated_seconds", "faults", "recovery_paths"] {
        assert_eq!(one[key], two[key], "{key}");
    }
    assert!(one["requests"].as_u64().is_some_and(|requests| requests > 3000), "{one}");
    assert!(one["faults"].as_object().is_some_and(|faults| faults.contains_key("kill")), "{one}");
}

#[test]
fn one_seed_alone_is_the_run_it_was_among_others() {
    let site = Site::new();
    let sum: u64 = ["7", "8"]
        .iter()
        .map(|seed| run(&site, &["--seed", seed])["sectors_judged"].as_u64().expect("a count"))
        .sum();
    let both = run(&site, &["--first", "7", "--seeds", "2"]);
    assert_eq!(both["sectors_judged"], sum);
}

#[test]
fn what_was_never_met_can_be_an_error() {
    let site = Site::new();
    let table = site.ask(&["simulate", "faults", "--seeds", "2"]);
    assert!(table.contains("power_cut") && table.contains("seeds/s"), "{table}");
    // Two seeds can't meet everything.
    let ended = site.run(&["simulate", "faults", "--seeds", "2", "--all-kinds"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("never met: "), "{ended:?}");
    assert!(ended.stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
}
