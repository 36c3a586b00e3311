//! `cinnabar-lab simulate timed`: plans, sweeps that go on after a crash, equal results on any number of
//! cores.

use super::rig::{Ended, Site};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Ten small points, and a last one that takes a while.
const PLAN: &str = "title = \"Ten points\"\nscale = 4096\n\
    [[axis]]\nkey = \"flash.size\"\nvalues = [\"0\", \"16GiB\", \"32GiB\", \"64GiB\", \"128GiB\"]\n\
    [[axis]]\nkey = \"ram.policy\"\nvalues = [\"s\", \"p1\"]\n";

fn timed(site: &Site, args: &[&str]) -> Ended {
    site.run(&[&["simulate", "timed"], args].concat())
}

fn json(site: &Site, args: &[&str]) -> Value {
    let text = site.ask(&[&["simulate", "timed", "--json"], args].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

fn lines(site: &Site, folder: &str) -> usize {
    let text = fs::read_to_string(site.path(folder).join("points.jsonl")).unwrap_or_default();
    text.matches('\n').count()
}

fn is_refused(ended: &Ended, message: &str, hint: &str) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(ended.stderr.contains(message), "{ended:?}");
    assert!(last.starts_with("hint: ") && last.contains(hint), "{ended:?}");
}

#[test]
fn results_are_the_same_on_any_number_of_cores() {
    let site = Site::new();
    site.write("p.toml", PLAN);
    let one = json(&site, &["p.toml", "--jobs", "1"]);
    let two = json(&site, &["p.toml", "--jobs", "3"]);
    assert_eq!(one, two);
    let points = one["points"].as_array().expect("a list");
    assert_eq!(points.len(), 10);
    assert_eq!(points[3]["name"], "flash.size=16GiB ram.policy=p1");
    let read_us = |at: usize| points[at]["outcome"]["reads"]["mean_us"].as_f64().expect("a time");
    assert!(read_us(1) > 1.5 * read_us(7), "64 GiB of flash for a working set of 60: {one}");
    let writes = &points[6]["outcome"]["writes"];
    assert!(writes["mean_us"].as_f64().expect("a time") > 20.0, "synchronous to flash: {writes}");
    let other = json(&site, &["p.toml", "--set", "seed=2"]);
    assert_ne!(other["points"][0]["outcome"]["digest"], points[0]["outcome"]["digest"]);
}

#[test]
fn a_killed_sweep_goes_on() {
    let site = Site::new();
    let mut plan = PLAN.to_owned();
    // The last point is long enough to be killed in.
    plan += "[[axis]]\nkey = \"scale\"\nvalues = [4096, 4095, 64]\n";
    site.write("p.toml", &plan);
    let expected = json(&site, &["p.toml"]);
    let args = ["simulate", "timed", "p.toml", "--jobs", "1", "--out", "out"];
    let mut sweep = site.start(&mut site.command(&args));
    sweep.wait_until("two finished points", || lines(&site, "out") >= 2);
    sweep.crash();
    let kept = lines(&site, "out");
    assert!((2..30).contains(&kept), "{kept} of 30");
    // Half a line, as if it had been killed in a write.
    let path = site.path("out/points.jsonl");
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text + "{\"identity\":{\"flash.si").expect("there is room");
    let ended = timed(&site, &["p.toml", "--jobs", "2", "--out", "out", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(&format!("{kept} of 30 points were finished")), "{ended:?}");
    let found: Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    assert_eq!(found, expected, "as if nothing had happened");
    let written = fs::read(site.path("out/points.json")).expect("it was written");
    assert_eq!(serde_json::from_slice::<Value>(&written).expect("it is JSON"), expected);
    assert_eq!(lines(&site, "out"), 30);
    let again = timed(&site, &["p.toml", "--out", "out"]);
    assert!(again.stderr.contains("30 of 30 points were finished"), "{again:?}");
    let other = timed(
        &site,
        &["p.toml", "--set", "flash.read=89us", "--set", "scale=4096", "--out", "out"],
    );
    assert!(!other.stderr.contains("were finished"), "other settings, other points: {other:?}");
    let fresh = timed(&site, &["p.toml", "--set", "scale=4096", "--out", "out", "--fresh"]);
    assert_eq!(fresh.code, Some(0), "{fresh:?}");
    assert_eq!(lines(&site, "out"), 10);
}

#[test]
fn two_sweeps_do_not_share_a_folder() {
    let site = Site::new();
    site.write("p.toml", "scale = 4096\n[workload]\nvolume = 10000\n");
    let mut first = site.start(&mut site.command(&["simulate", "timed", "p.toml", "--out", "out"]));
    first.wait_until("a folder", || site.path("out/points.jsonl").exists());
    let second = timed(&site, &["p.toml", "--set", "workload.volume=1", "--out", "out"]);
    is_refused(&second, "another sweep is using it", "another folder");
    assert!(first.is_running(), "{}", first.log());
    first.crash();
    let third = timed(&site, &["p.toml", "--set", "workload.volume=1", "--out", "out"]);
    assert_eq!(third.code, Some(0), "a dead one holds nothing: {third:?}");
}

#[test]
fn tables_and_pages_show_every_point() {
    let site = Site::new();
    site.write("p.toml", PLAN);
    let args = ["p.toml", "--out", "out", "--html", "out/p.html", "--recommend"];
    let ended = timed(&site, &args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = ended.stdout.lines().filter(|line| line.starts_with("64GiB"));
    assert_eq!(rows.count(), 2, "{ended:?}");
    assert!(ended.stdout.contains("\nrecommended: flash.size="), "{ended:?}");
    let csv = fs::read_to_string(site.path("out/points.csv")).expect("it was written");
    let mut rows = csv.lines();
    let header = rows.next().unwrap_or_default();
    assert!(header.starts_with("flash.size,ram.policy,reads,read_mean_us,"), "{header}");
    let columns = header.split(',').count();
    assert!(rows.clone().all(|row| row.split(',').count() == columns), "{csv}");
    assert_eq!(rows.count(), 10);
    let page = fs::read_to_string(site.path("out/p.html")).expect("it was written");
    assert!(page.contains("Ten points") && page.contains("<svg") && page.contains("ram.policy p1"));
    let list = site.ask(&["simulate", "timed", "p.toml", "--dry-run"]);
    assert!(list.contains("\n10 points, "), "{list}");
}

/// A volume of 2,000 blocks, of which 1,200 are asked for again and again.
fn trace(requests: u64) -> String {
    let mut text = String::new();
    for at in 0..requests {
        let block = if at % 5 == 0 { at * 7919 % 2000 } else { at * 104_729 % 1000 };
        let op = if at % 3 == 0 { "W" } else { "R" };
        writeln!(text, "{},0,{op},{},4096", at * 200, block * 4096).expect("a string");
    }
    text
}

#[test]
fn a_trace_is_played_and_a_cache_for_it_recommended() {
    let site = Site::new();
    site.write("t.csv", &trace(20_000));
    let plan = site.write(
        "p.toml",
        "[workload]\ntrace = \"t.csv\"\nwarm_up = \"50%\"\n[ram]\nsize = \"64KiB\"\n\
         [[axis]]\nkey = \"flash.size\"\nvalues = [\"0\", \"2MiB\", \"8MiB\", \"64MiB\"]\n\
         [[axis]]\nkey = \"ram.policy\"\nvalues = [\"s\", \"a\"]\n",
    );
    let found = json(&site, &["p.toml", "--recommend"]);
    assert_eq!(found["trace"]["requests"], 20_000);
    assert_eq!(found["trace"]["different_blocks"], 1200);
    let chosen = &found["recommended"];
    let point = chosen["point"].as_str().expect("a name");
    assert!(point.starts_with("flash.size=8MiB "), "its 4.7 MiB fit 8: {chosen}");
    let measured = |point: &Value| {
        ["reads", "writes"].map(|kind| point["outcome"][kind]["count"].as_u64().expect("a count"))
    };
    assert!(
        found["points"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|point| { measured(point).iter().sum::<u64>() == 10_000 })
    );
    let recorded = json(&site, &["p.toml", "--set", "workload.pace=recorded"]);
    assert_ne!(recorded["points"][0]["outcome"], found["points"][0]["outcome"]);
    // A path in the plan begins where the plan is, one of the command line where that was typed.
    fs::create_dir(site.path("sub")).expect("a folder");
    fs::rename(plan, site.path("sub/p.toml")).expect("it is there");
    let lost = timed(&site, &["sub/p.toml"]);
    is_refused(&lost, "sub/p.toml:2: sub/t.csv: ", "begins where the plan is");
    let again = json(&site, &["sub/p.toml", "--set", "workload.trace=t.csv", "--recommend"]);
    assert_eq!(again["points"], found["points"]);
}

#[test]
fn mistakes_are_told_before_anything_is_simulated() {
    let site = Site::new();
    site.write("bad.toml", "[flash]\nsize = 64\n");
    is_refused(&timed(&site, &["bad.toml"]), "bad.toml:2: flash.size: 64 has no unit", "64GiB");
    is_refused(&timed(&site, &["none.toml"]), "none.toml: can't be read", "plans/");
    site.write("p.toml", PLAN);
    let tight = timed(&site, &["p.toml", "--set", "scale=1", "--memory", "1GiB"]);
    is_refused(&tight, "and 1.0 GiB can be used", "--memory");
    let typo = timed(&site, &["p.toml", "--set", "flash.sise=1GiB"]);
    assert_eq!(typo.code, Some(2));
    assert!(typo.stderr.contains("did you mean \"flash.size\"?"), "{typo:?}");
    let over = timed(&site, &["p.toml", "--html", "p.toml"]);
    is_refused(&over, "that is the plan", "another file");
    let nowhere = timed(&site, &["p.toml", "--html", "no/p.html"]);
    is_refused(&nowhere, "its folder does not exist", "create");
    site.write("w.toml", "[[axis]]\nkey = \"workload.writes\"\nvalues = [0.1, 0.2]\n");
    let given = timed(&site, &["w.toml", "--recommend"]);
    is_refused(&given, "workload.writes is varied", "--set workload.writes=");
    site.write("t.csv", "1,0,R,0,4096\n2,0,W,0,4096\n3,0,Q,0,1\n");
    site.write("t.toml", "[workload]\ntrace = \"t.csv\"\n");
    is_refused(&timed(&site, &["t.toml"]), "t.toml:2: t.csv: line 3", "trace info");
    site.write("out", "a file");
    let file = timed(&site, &["p.toml", "--out", "out"]);
    assert_eq!(file.code, Some(1), "{file:?}");
    assert!(file.stderr.contains("--out"), "{file:?}");
    assert_eq!(fs::read_to_string(site.path("out")).expect("it is there"), "a file");
    assert_eq!(fs::read_to_string(site.path("p.toml")).expect("it is there"), PLAN);
}
