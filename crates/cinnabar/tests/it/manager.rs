//! The manager of a real daemon: why shares are what they are, and the operator's word against them.

use super::nbd::Client;
use super::rig::{MIB, Site};
use serde_json::Value;
use std::fs::File;
use std::time::{Duration, Instant};

/// Longest wait for plans that are due.
const PLANS_WAIT_MAX: Duration = Duration::from_secs(30);

fn volumes(names: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "[[volume]]\nname = \"{name}\"\nbackend = \"file:{name}.raw\"\nbypass_sequential = \"0\"\n"
        )
    };
    names.iter().map(one).collect()
}

/// Empty disks of 2 GiB: what is not written takes no room.
fn site(manager: &str, names: &[&str]) -> Site {
    let site = Site::new();
    for name in names {
        let file = File::create(site.path(&format!("{name}.raw"))).expect("a disk");
        file.set_len(2 << 30).expect("a sparse file");
    }
    site.config(&format!("{manager}{}", volumes(names)));
    site
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

/// The plans there are once one of this interval or of a later one is among them.
fn plans_up_to(site: &Site, interval: u64) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let history = json(&site.ask(&["policy", "history", "--last", "256", "--json"]));
        let plans = history["plans"].as_array().expect("plans").clone();
        let last = plans.last().and_then(|plan| plan["interval"].as_u64());
        if last.is_some_and(|last| last >= interval) {
            return plans;
        }
        assert!(begun.elapsed() < PLANS_WAIT_MAX, "no plan of interval {interval}: {history}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_operator_sees_why_and_overrules() {
    // Guests are served by two threads. The files here are in the page cache: by measured prices a share
    // would bring nothing.
    let site = site(
        "shards = 2\nthreads = 2\n[manager]\ninterval_s = 1\nprices = \"told\"\n",
        &["hot", "idle"],
    );
    let daemon = site.serve();
    let attach = |name: &str| Client::attach(&site.path(&format!("{name}.sock")), name);
    let (mut hot, mut idle) = (attach("hot").expect("it is let in"), attach("idle").expect("too"));
    idle.flush().expect("it flushes");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        for block in 0..500_u64 {
            hot.read(block * 4096, 4096).expect("it reads");
        }
    }
    let history = plans_up_to(&site, 1);
    let last = history.last().expect("a plan");
    assert_eq!((&last["applied"], &last["allocator"]), (&Value::from(true), &Value::from("urd")));
    let share = |plan: &Value, name: &str| -> Value {
        let volumes = plan["volumes"].as_array().expect("volumes");
        volumes.iter().find(|share| share["volume"] == name).cloned().expect("it is there")
    };
    let target = |plan: &Value, name: &str| share(plan, name)["target_bytes"].as_u64();
    assert!(target(last, "hot") >= Some(500 * 4096), "it gets what it uses: {last}");
    let status = site.status();
    let granted = status["volumes"][0]["share_blocks"].as_u64();
    assert!(granted >= Some(375), "and the cache has granted it: {status}");

    let explained = site.ask(&["policy", "explain", "hot"]);
    for words in ["reuses are reads", "next GiB", "NEIGHBOUR", "READ HITS", "idle"] {
        assert!(explained.contains(words), "{words}: {explained}");
    }
    let missing = site.run(&["policy", "explain", "other"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");

    let pinned = site.ask(&["policy", "pin", "hot", "16MiB"]);
    assert!(pinned.contains("16") && pinned.contains("pinned"), "{pinned}");
    let plan = json(&site.ask(&["policy", "plan", "--json", "--allocator", "centaur"]));
    assert_eq!(target(&plan, "hot"), Some(16 * MIB), "a pin holds whoever plans");
    assert_eq!(plan["allocator"], "centaur");
    assert!(site.ask(&["policy", "history"]).contains("pinned: hot"));
    site.ask(&["policy", "unpin", "hot"]);
    assert_eq!(site.run(&["policy", "unpin", "hot"]).code, Some(1), "it is not pinned any more");
    let plan = json(&site.ask(&["policy", "plan", "--apply", "--allocator", "equal", "--json"]));
    assert_eq!((&plan["applied"], &plan["allocator"]), (&Value::from(true), &Value::from("equal")));
    drop((hot, idle));
    daemon.stop();
}

#[test]
fn without_a_manager_there_is_a_hint() {
    let site = site("", &["vm1"]);
    let daemon = site.serve();
    let ended = site.run(&["policy", "plan"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("hint: add [manager]"), "{ended:?}");
    daemon.stop();
}
