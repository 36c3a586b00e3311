//! `cinnabar-lab analyze`: published examples, golden counts, plans, and what can't be analyzed.

mod document;

use super::files;
use super::rig::{Ended, Site, finish_within};
use serde_json::Value;
use std::time::Duration;

/// Some of it takes seconds of computing, and the machine may have other work.
const PATIENCE: Duration = Duration::from_mins(10);

/// ECI-Cache's own example: W1 W2 R1 R3 R5 R6 R2.
const SLIDES: &str = "0,0,W,4096,4096\n1,0,W,8192,4096\n2,0,R,4096,4096\n3,0,R,12288,4096\n\
    4,0,R,20480,4096\n5,0,R,24576,4096\n6,0,R,8192,4096\n";

fn run(site: &Site, flags: &[&str]) -> Ended {
    finish_within(&mut site.command(&[&["analyze"], flags].concat()), PATIENCE)
}

fn ask(site: &Site, flags: &[&str]) -> String {
    let ended = run(site, flags);
    assert_eq!(ended.code, Some(0), "{flags:?}: {ended:?}");
    ended.stdout
}

fn analyze(site: &Site, flags: &[&str]) -> Value {
    serde_json::from_str(&ask(site, &[flags, &["--json"]].concat())).expect("it is JSON")
}

/// A recorded trace; says so if it is not there.
fn shared(name: &str) -> Option<String> {
    files::find(name).map(|path| path.to_string_lossy().into_owned())
}

/// The part of a trace that small tests use.
fn fixture() -> String {
    files::fixture().to_string_lossy().into_owned()
}

fn classes(value: &Value) -> [u64; 4] {
    ["rar", "raw", "war", "waw"].map(|key| value[key].as_u64().expect("a count"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_slides_example_asks_for_five_blocks() {
    let site = Site::new();
    site.write("slides.csv", SLIDES);
    for look in ["--exact", "--sample-blocks=8192", "--sample-rate=1"] {
        let flags = ["slides.csv", "--cache=64KiB", "--allocator=eci", "--reach-part=1", look];
        let found = analyze(&site, &flags);
        let volume = &found["volumes"][0];
        assert_eq!((&volume["urd_max_blocks"], &volume["share_blocks"]), (&5.into(), &5.into()));
        assert_eq!(volume["outcome"]["read_hits"], 2.0, "{look}");
        // Nothing is written that was used before: written back.
        assert_eq!(volume["policy"], "write-back");
        assert_eq!(found["intervals"][0]["volumes"][0]["share_blocks"], 5);
    }
}

#[test]
fn reuse_mixes_are_golden() {
    let site = Site::new();
    let golden = [
        ("cp_vscsi.canon.csv.zst", [105_309, 319_702, 179_096, 268_552], [267_666, 266_320]),
        ("raw_msr_hm_0_sample1000.csv.xz", [88, 0, 7, 461], [1_501, 200]),
    ];
    for (name, mix, reach) in golden {
        let Some(path) = shared(name) else { continue };
        let found = analyze(&site, &[&path, "--exact", "--cache=1GiB"]);
        let volume = &found["volumes"][0];
        assert_eq!(classes(volume), mix, "{name}");
        let reached = ["trd_max_blocks", "urd_max_blocks"].map(|key| volume[key].as_u64());
        assert_eq!(reached, reach.map(Some), "{name}: maximum distances and one");
    }
}

#[test]
fn self_loop4_wants_opposite_policies() {
    wants_opposite_policies(&fixture(), false);
    if let Some(path) = shared("self_loop4.canon.csv.zst") {
        wants_opposite_policies(&path, true);
    }
}

fn wants_opposite_policies(path: &str, is_whole: bool) {
    let site = Site::new();
    for look in ["--exact", "--seed=1", "--seed=2"] {
        let found = analyze(&site, &[path, look, "--interval=30s"]);
        let of = |name: &str| {
            let volumes = found["volumes"].as_array().expect("a list");
            volumes.iter().find(|volume| volume["name"] == name).expect("it is there").clone()
        };
        let (git, compiler) = (of("1"), of("3"));
        if is_whole && look == "--exact" {
            let sum = ["0", "1", "2", "3"].map(|name| classes(&of(name)));
            let sum = std::array::from_fn(|class| sum.iter().map(|mix| mix[class]).sum::<u64>());
            assert_eq!(sum, [1_558_779, 196_151, 42_880, 1_971_288]);
        }
        // 99.6 % of its reuses overwrite: caching writes would be worthless.
        let policy = git["policy"].as_str().expect("a policy");
        assert!(["bypass", "read-only"].contains(&policy), "{look}: {policy}");
        assert!(number(&git["outcome"]["ssd_writes"]) < 0.01 * number(&git["writes"]), "{look}");
        // 95 % are read again.
        let hits = number(&compiler["outcome"]["read_hit_ratio"]);
        assert!(hits > 0.95, "{look}: {hits}");
        assert_eq!(found["helps"], "yes");
        let last = found["intervals"].as_array().and_then(|all| all.last()).expect("intervals");
        let shares = last["volumes"].as_array().expect("a list").iter();
        let room: u64 = shares.filter_map(|volume| volume["share_blocks"].as_u64()).sum();
        assert!(room > 0 && room <= found["cache_blocks"].as_u64().expect("a size"), "{look}");
    }
}

#[test]
fn the_same_comes_out_twice() {
    let site = Site::new();
    let path = fixture();
    let flags = [&path, "--interval=5s", "--json", "--html=a.html"];
    let first = ask(&site, &flags);
    let page = std::fs::read(site.path("a.html")).expect("the page");
    assert_eq!(ask(&site, &flags), first);
    assert_eq!(std::fs::read(site.path("a.html")).expect("the page"), page);
    assert!(first.len() > 10_000, "there is something to compare");
}

#[test]
fn people_are_told_whether_how_large_and_which() {
    let site = Site::new();
    let ended = run(&site, &[&fixture(), "--html=a.html"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["VOLUME", "A cache would help, and ", " are enough: ", "Policies: "] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(ended.stderr.contains("note: "), "{ended:?}");
    let page = std::fs::read_to_string(site.path("a.html")).expect("the page");
    for part in ["<!DOCTYPE html>", "<svg", "Miss ratios", "What reuses are", "Shares planned"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"));
}

#[test]
fn several_traces_are_read_side_by_side() {
    let site = Site::new();
    // The second one's clock starts elsewhere.
    let read = |at: u64, block: u64| format!("{at},7,R,{},4096\n", block * 4096);
    let loops = |origin: u64| (0..40).map(|n| read(origin + n * 100_000, n % 10)).collect();
    let (one, other): (String, String) = (loops(0), loops(9_000_000_000));
    site.write("one.csv", &one);
    site.write("other.csv", &other);
    let found = analyze(&site, &["one.csv", "other.csv", "--cache=64KiB", "--interval=1s"]);
    let names: Vec<_> = found["volumes"].as_array().expect("a list").iter().collect();
    let names: Vec<_> = names.iter().filter_map(|volume| volume["name"].as_str()).collect();
    assert_eq!(names, ["one.csv:7", "other.csv:7"]);
    assert_eq!((&found["first_us"], &found["last_us"]), (&0.into(), &3_900_000.into()));
    assert_eq!(found["intervals"].as_array().map(Vec::len), Some(4));
    // Two loops of ten blocks, room for sixteen: one fits, and both get what they were promised.
    let bounded = analyze(
        &site,
        &[
            "one.csv",
            "other.csv",
            "--cache=64KiB",
            "--min=other.csv:7=40KiB",
            "--weight=one.csv:7=9",
        ],
    );
    assert_eq!(bounded["volumes"][1]["share_blocks"], 10);
    assert_eq!(bounded["volumes"][1]["outcome"]["read_hits"], 30.0);
}

#[test]
fn requests_out_of_order_are_told() {
    let site = Site::new();
    site.write("good.csv", SLIDES);
    site.write("late.csv", "9,0,R,0,4096\n5,0,R,0,4096\n7,0,R,0,4096\n6,0,R,0,4096\n");
    let is_told = |trace: &str| {
        let notes = analyze(&site, &[trace])["notes"].to_string();
        (notes.contains("2 requests are earlier than"), notes.contains("earlier"))
    };
    assert_eq!((is_told("late.csv"), is_told("good.csv")), ((true, true), (false, false)));
}

#[test]
fn stdin_is_a_trace() {
    let site = Site::new();
    site.write("good.csv", SLIDES);
    for command in [&["analyze", "-"][..], &["simulate", "hits", "-", "--size=2"]] {
        let file = std::fs::File::open(site.path("good.csv")).expect("it is there");
        let piped = site.command(command).stdin(file).output().expect("it runs");
        assert!(piped.status.success() && !piped.stdout.is_empty(), "{command:?}: {piped:?}");
    }
}

#[test]
fn a_budget_for_the_ssd_is_kept() {
    let site = Site::new();
    let path = fixture();
    let free = analyze(&site, &[&path, "--cache=256MiB"]);
    let a_day = |found: &Value| number(&found["total"]["ssd_write_bytes_per_day"]);
    let most = a_day(&free) / 3.0;
    let flag = format!("--ssd-budget={}B/day", most.round());
    let kept = analyze(&site, &[&path, "--cache=256MiB", &flag]);
    assert!(a_day(&kept) <= most + 1.0, "{} of {most}", a_day(&kept));
    assert!(number(&kept["total"]["read_hits"]) > 0.0, "it is spent, not refused");
    assert!(number(&kept["total"]["read_hits"]) < number(&free["total"]["read_hits"]));
}

#[test]
fn thousands_of_volumes_make_a_page_that_opens() {
    let Some(path) = shared("tencent_cbs_50k.canon.csv.zst") else { return };
    let site = Site::new();
    let found = analyze(&site, &[&path, "--cache=64MiB", "--html=many.html"]);
    assert_eq!(found["volumes"].as_array().map(Vec::len), Some(2038));
    let page = std::fs::metadata(site.path("many.html")).expect("the page").len();
    assert!(page < 1 << 20, "{page} bytes");
}

#[test]
fn what_can_not_be_analyzed_is_one_clear_line() {
    let site = Site::new();
    site.write("good.csv", SLIDES);
    site.write("untimed.csv", "0,0,R,0,4096\n0,0,R,0,4096\n");
    site.write("flushes.csv", "5,0,F,0,0\n6,0,D,0,4096\n");
    site.write("empty.csv", "");
    site.write("bad.csv", "5,0,R,0,4096\n6,0,read,0,4096\n");
    site.write("prose.txt", "It was a dark and stormy night.\n");
    site.write("days.csv", "0,0,R,0,4096\n100000000000,0,R,0,4096\n");
    let many = (0..8193).map(|volume| format!("1,{volume},R,0,1\n"));
    site.write("many.csv", &many.collect::<String>());
    let long = (0..32_770).map(|n| format!("{},0,R,0,1\n", n * 1000));
    site.write("long.csv", &long.collect::<String>());
    let cases: &[(&[&str], &str)] = &[
        (&["none.csv"], "none.csv: cannot read the trace"),
        (&["."], "it is a directory"),
        (&["empty.csv"], "empty.csv"),
        (&["flushes.csv"], "no reads and no writes"),
        (&["bad.csv"], "bad.csv: line 2 of the trace is not valid"),
        (&["prose.txt"], "prose.txt: the trace is in no format"),
        (&["good.csv", "none.csv"], "none.csv: cannot read the trace"),
        (&["many.csv"], "more than 8192 volumes"),
        (&["long.csv", "--cache=1MiB", "--interval=1ms", "--json"], "too many intervals"),
        (&["good.csv", "--cache=0"], "not even a block"),
        (&["good.csv", "--cache=4095"], "not even a block"),
        (&["good.csv", "--cache=2000TiB"], "more than 1 PiB"),
        (&["good.csv", "--cache=8G"], "is not a size"),
        (&["good.csv", "--cache=99999999EiB"], "more than any device has"),
        (&["good.csv", "--allocator=best"], "best"),
        (&["good.csv", "--interval=0s"], "less than 1ms"),
        (&["good.csv", "--interval=0refs"], "above 0"),
        (&["good.csv", "--interval=often"], "no interval"),
        (&["good.csv", "--decay=1.5"], "from 0 to 1"),
        (&["good.csv", "--sample-rate=0"], "above 0"),
        (&["good.csv", "--sample-blocks=0"], "0 is not in"),
        (&["good.csv", "--sample-rate=.1", "--exact"], "cannot be used with"),
        (&["good.csv", "--ssd-read=5"], "not a time"),
        (&["good.csv", "--omega=-1"], "omega"),
        (&["good.csv", "--ssd-budget=5GiB"], "in a day"),
        (&["untimed.csv", "--ssd-budget=5GiB/day"], "no times"),
        (&["good.csv", "--min=0"], "VOLUME=VALUE"),
        (&["good.csv", "--min=vm9=4KiB"], "no volume is called \"vm9\": there are 0"),
        (
            &["good.csv", "--cache=64KiB", "--min=0=68KiB"],
            "the minima of the volumes need 68.0 KiB",
        ),
        (&["good.csv", "--min=0=8KiB", "--max=0=4KiB"], "--min is above --max"),
        (&["good.csv", "--html=none/a.html"], "its folder does not exist"),
        (&["good.csv", "--html=."], "it is a directory"),
        (&["good.csv", "--html=./good.csv"], "that is a trace"),
        (&["/dev/stdin", "--json"], "a trace is read twice"),
    ];
    for (flags, what) in cases {
        let Ended { code, stdout, stderr } = run(&site, flags);
        assert_eq!(code, Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(what), "{flags:?}: {stderr}");
        assert!(stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
        assert!(stdout.is_empty() && !stderr.contains("panicked"), "{flags:?}: {stderr}");
    }
    // A long silence is no long work.
    let silent = analyze(&site, &["days.csv", "--cache=1MiB", "--interval=1ms"]);
    assert_eq!(silent["intervals"].as_array().map(Vec::len), Some(2));
}
