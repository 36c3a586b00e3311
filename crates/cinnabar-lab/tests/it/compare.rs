//! `cinnabar-lab analyze --compare`: the same figures however many threads, for people, programs and
//! pages, and requests for what can't be compared.

use super::rig::Site;
use serde_json::Value;
use std::fmt::Write;
use std::fs;

const ALLOCATORS: [&str; 10] = [
    "none",
    "urd",
    "eci",
    "centaur",
    "s-cave",
    "vcacheshare",
    "cloudcache",
    "equal",
    "proportional",
    "shared",
];

/// A loop of reads and a volume that is mostly written, in eight intervals of a second.
fn trace(site: &Site, name: &str, blocks: u64) {
    let mut text = String::new();
    let (mut chance, mut cursor) = (1_u64, 0);
    for at in 0..16_000_u64 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let rng = chance >> 33;
        let (volume, op, block) = if at.is_multiple_of(2) {
            cursor = (cursor + 4) % blocks;
            (0, "R", cursor)
        } else {
            (1, if rng % 10 < 8 { "W" } else { "R" }, rng / 10 % blocks)
        };
        writeln!(text, "{},{volume},{op},{},16384", at * 500, block * 4096).expect("there is room");
    }
    fs::write(site.path(name), text).expect("there is room");
}

fn json(site: &Site, args: &[&str]) -> Value {
    let all = [&["analyze", "a.csv", "--compare", "--interval=1s", "--json"], args].concat();
    serde_json::from_str(&site.ask(&all)).expect("it is JSON")
}

#[test]
fn the_same_on_any_number_of_threads() {
    let site = Site::new();
    trace(&site, "a.csv", 12_000);
    let found = json(&site, &["--jobs=1"]);
    assert_eq!(found, json(&site, &["--jobs=3"]));
    assert_eq!((&found["version"], &found["interval_us"]), (&1.into(), &1_000_000.into()));
    assert_eq!(found["intervals"].as_array().map(Vec::len), Some(8));
    let caches = found["caches"].as_array().expect("a list");
    assert_eq!(caches.len(), 2);
    for cache in caches {
        let capacity = cache["capacity_blocks"].as_u64().expect("a size");
        let contestants = cache["contestants"].as_array().expect("a list");
        let names: Vec<_> = contestants.iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ALLOCATORS);
        for one in contestants {
            check_contestant(one, capacity);
        }
        for model in ["engine", "papers"] {
            let none = &contestants[0]["models"][model];
            assert_eq!((&none["read_hits"], &none["ssd_writes"]), (&0.into(), &0.into()));
            assert_eq!(contestants[3]["models"][model]["gains"]["performance"], 0.0, "centaur");
            assert!(cache["eci_over_centaur"][model]["lifetime"].is_number(), "{cache}");
        }
    }
}

fn check_contestant(one: &Value, capacity: u64) {
    let plans = one["plans"].as_array().expect("a list");
    assert_eq!(plans.len(), if one["name"] == "none" { 0 } else { 8 });
    for plan in plans {
        let blocks = plan["blocks"].as_array().expect("a list");
        let sum: u64 = blocks.iter().map(|blocks| blocks.as_u64().expect("a size")).sum();
        assert!(sum <= capacity, "{}: {plan}", one["name"]);
        assert_eq!(plan["shared"], one["name"] == "shared");
        assert_eq!(blocks.len(), if one["name"] == "shared" { 0 } else { 2 });
        assert_eq!(plan["policies"].as_array().map(Vec::len), Some(2));
    }
    for model in ["engine", "papers"] {
        let found = &one["models"][model];
        let count = |key: &str| found[key].as_u64().expect("a count");
        assert_eq!(count("reads"), count("read_hits") + count("backend_reads"));
        // Each second request is a read of 4 blocks, and a fifth of the others.
        assert!((36_000..41_000).contains(&count("reads")), "{found}");
        assert_eq!(count("reads") + count("writes"), 64_000);
        assert!(count("writes_back") <= count("writes"));
        assert!(count("backend_writes") <= count("writes"));
        let mean = found["mean_us"].as_f64().expect("a latency");
        assert!(mean > 20.0 && mean < 928.0, "{found}");
    }
}

#[test]
fn tables_for_people_and_a_page() {
    let site = Site::new();
    trace(&site, "a.csv", 12_000);
    let args = ["analyze", "a.csv", "--compare", "--interval=1s", "--allocator=eci,centaur,none"];
    let text = site.ask(&[&args[..], &["--html=c.html"]].concat());
    for wanted in
        ["2 volumes, 8 intervals of 1 s", "papers' model", "the engine as it is", "IF BACK"]
    {
        assert!(text.contains(wanted), "no {wanted} in\n{text}");
    }
    let of = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((of("eci "), of("centaur "), of("none "), of("urd ")), (4, 4, 4, 0), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" %, ")).count(), 4, "claims\n{text}");
    let page = fs::read_to_string(site.path("c.html")).expect("a page");
    assert!(page.contains("Allocators compared") && page.contains("<svg"), "a page with charts");
    assert!(page.contains("Allocation over time, 30 % of demand"));
    let papers = site.ask(&[&args[..], &["--model=papers", "--feasible=80%"]].concat());
    assert!(papers.contains("80 %") && !papers.contains("IF BACK"), "{papers}");
}

#[test]
fn what_cannot_be_compared() {
    let site = Site::new();
    trace(&site, "a.csv", 12_000);
    trace(&site, "small.csv", 600);
    let cases: &[(&[&str], &str)] = &[
        (&["a.csv", "--compare", "--allocator=eci,lru"], "no allocator is called `lru`"),
        (&["a.csv", "--allocator=eci,centaur"], "one allocator at a time"),
        (&["a.csv", "--allocator=all"], "one allocator at a time"),
        (&["a.csv", "--compare"], "1 intervals"),
        (&["a.csv", "--compare", "--interval=1s", "--infeasible=0%"], "above 0"),
        (&["a.csv", "--compare", "--interval=1s", "--feasible=2000%"], "up to 1000"),
        (&["a.csv", "--infeasible=20%"], "--compare"),
        (&["a.csv", "--compare", "--cache=1GiB"], "cannot be used with"),
        (&["a.csv", "--compare", "--jobs=0"], "'0'"),
        (&["a.csv", "--compare", "--model=lru"], "possible values"),
        (&["a.csv", "--compare", "--interval=1s", "--weight=web=2"], "no volume is called \"web\""),
        (&["a.csv", "--compare", "--interval=1s", "--min=1=1GiB"], "the minima of the volumes"),
        (&["small.csv", "--compare", "--interval=1s"], "too small for 2 shares"),
        (&["missing.csv", "--compare", "--interval=1s"], "missing.csv"),
        (&["/dev/null", "--compare", "--interval=1s"], "not a file"),
    ];
    for (args, wanted) in cases {
        let ended = site.run(&[&["analyze"], *args].concat());
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(wanted), "{args:?} does not say {wanted}: {ended:?}");
        let last = ended.stderr.trim_end().lines().last();
        assert!(last.is_some_and(|line| line.starts_with("hint: ")), "{args:?}: {ended:?}");
    }
    let text = site.ask(&["analyze", "small.csv", "--compare", "--interval=1s", "--model=papers"]);
    assert!(text.contains("papers' model"), "without the engine it is large enough: {text}");
}
