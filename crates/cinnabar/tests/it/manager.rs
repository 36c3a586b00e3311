//! The manager of a real daemon: plans as `cinnabar analyze` makes them of a recording of the same
//! requests, and the operator's word against them.

use super::files;
use super::nbd::Client;
use super::rig::{MIB, Site};
use cinnabar_trace::{Op, Record};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Requests of the trace that are played, in a few seconds.
const REQUESTS: usize = 15_000;
/// After so many there is a pause, so that it takes some intervals.
const PAUSE_AFTER: usize = 3000;
const PAUSE: Duration = Duration::from_millis(600);
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

fn play(clients: &mut [Client], record: &Record) {
    let client = &mut clients[record.volume as usize];
    let (offset, length) = (record.offset_bytes, record.length_bytes as u32);
    match record.op {
        Op::Read => drop(client.read(offset, length).expect("it reads")),
        Op::Write => client.write(offset, &vec![1; length as usize]).expect("it writes"),
        Op::Flush => client.flush().expect("it flushes"),
        Op::Discard => client.trim(offset, length).expect("it trims"),
    }
}

/// The beginning of a recording of four real workloads.
#[test]
fn live_plans_are_those_of_a_recording() {
    live_equals_offline(4, |_| files::fixture());
}

/// The beginning of the generated day of sixteen servers.
#[test]
fn live_plans_of_sixteen_volumes_are_those_of_a_recording() {
    live_equals_offline(16, |site| {
        site.ask(&["trace", "generate", "sixteen", "--scale", "0.002", "--out", "day.csv.zst"]);
        site.path("day.csv.zst")
    });
}

/// Plays a trace as fast as it goes, and analyses a recording of it.
fn live_equals_offline(volumes: usize, trace: impl Fn(&Site) -> PathBuf) {
    let names: Vec<String> = (0..volumes).map(|volume| format!("vm{volume}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let manager = "[manager]\ninterval_s = 1\nprices = \"told\"\nsample_blocks = 2048\n";
    let site = site(manager, &names);
    let daemon = site.serve();
    let trace = cinnabar_trace::open(&trace(&site)).expect("a trace");
    let attach = |name: &&str| {
        Client::attach(&site.path(&format!("{name}.sock")), name).expect("it is let in")
    };
    let mut clients: Vec<Client> = names.iter().map(attach).collect();
    let log = File::create(site.path("record.log")).expect("a log");
    let mut recorder = site
        .command(&["trace", "record", "--all", "--out", "r.csv", "--json"])
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while !fs::read_to_string(site.path("record.log")).expect("its log").contains("recording ") {
        assert!(begun.elapsed() < PLANS_WAIT_MAX, "it does not record");
        std::thread::sleep(Duration::from_millis(5));
    }
    for (at, record) in trace.take(REQUESTS).enumerate() {
        if at % PAUSE_AFTER == PAUSE_AFTER - 1 {
            std::thread::sleep(PAUSE);
        }
        play(&mut clients, &record.expect("a good line"));
    }
    // Ends the interval that is open, by a request in the next one.
    std::thread::sleep(Duration::from_millis(1100));
    clients[0].flush().expect("it flushes");
    std::thread::sleep(Duration::from_millis(200));
    site.ask(&["policy", "plan"]);
    let id = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it is our child");
    let mut report = String::new();
    let mut pipe = recorder.stdout.take().expect("it is piped");
    std::io::Read::read_to_string(&mut pipe, &mut report).expect("text");
    assert!(recorder.wait().expect("it ends").success(), "{report}");
    let report = json(&report);
    assert_eq!(report["dropped"], 0, "equality holds where nothing is missing: {report}");

    let first = report["intervals"]["first"].as_u64().expect("where the recording begins");
    let cache = report["cache_bytes"].as_u64().expect("the size of the cache").to_string();
    let settings = ["--ssd-read", "88us", "--ssd-write", "21us", "--backend-read", "927us"];
    let asked = ["analyze", "r.csv", "--json", "--interval", "1s", "--cache", &cache];
    let more = ["--sample-blocks", "2048", "--backend-write", "141us"];
    let offline = json(&site.ask(&[&asked[..], &settings, &more].concat()));
    let expected: Vec<(u64, &Value)> = offline["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .map(|planned| (planned["number"].as_u64().expect("a number") + first, &planned["digest"]))
        .collect();
    // The last one is open in the daemon.
    let (_, expected) = expected.split_last().expect("there are intervals");
    assert!(expected.len() >= 3, "{} intervals", expected.len());
    let live = plans_up_to(&site, expected[expected.len() - 1].0);
    let lost: u64 = live.iter().filter_map(|plan| plan["lost"].as_u64()).sum();
    assert_eq!(lost, 0, "equality holds where nothing was dropped");
    let number = |plan: &Value| plan["interval"].as_u64().expect("a number");
    let live: Vec<(u64, &Value)> =
        live.iter().map(|plan| (number(plan), &plan["digest"])).collect();
    println!("{} intervals of a second", expected.len());
    assert_eq!(live, expected, "interval by interval");
    drop(clients);
    daemon.stop();
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
        for block in 0..2000_u64 {
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
    assert!(target(last, "hot") >= Some(2000 * 4096), "it gets what it uses: {last}");
    let status = site.status();
    let granted = status["volumes"][0]["share_blocks"].as_u64();
    assert!(granted >= Some(1500), "and the cache has granted it: {status}");

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
