//! What a real daemon keeps of what happened: samples over a restart, and events as they come.

use super::http;
use super::nbd::Client;
use super::rig::{MIB, PATIENCE, Running, Site};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const VOLUMES: &str = "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n";

fn site(before: &str) -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.disk("vm2.raw", MIB);
    site.config(&format!("{before}{VOLUMES}"));
    site
}

fn read_some(site: &Site) {
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    for block in 0..100 {
        client.read(block * 4096, 4096).expect("it reads");
    }
}

fn history(site: &Site, query: &str) -> Value {
    let answer = http::get(&site.path("control.sock"), &format!("/v1/history{query}"));
    let answer = answer.expect("it answers");
    assert_eq!(answer.code, 200, "{answer:?}");
    answer.json()
}

fn reads(report: &Value) -> u64 {
    let samples = report["samples"].as_array().expect("samples");
    samples.iter().map(|sample| sample["reads"].as_u64().expect("a count")).sum()
}

/// The first look is behind the start: what was done before it is not counted.
fn looked_at(site: &Site, daemon: &mut Running) {
    // Before it there is nothing of this volume.
    let query = "/v1/history?volume=vm1";
    let look =
        || http::get(&site.path("control.sock"), query).is_ok_and(|answer| answer.code == 200);
    daemon.wait_until("looked at", look);
}

#[test]
fn samples_outlive_a_restart_and_a_damaged_file_costs_nothing_but_them() {
    let site = site("");
    let mut daemon = site.serve();
    looked_at(&site, &mut daemon);
    read_some(&site);
    daemon.stop();

    let mut daemon = site.serve();
    looked_at(&site, &mut daemon);
    for query in ["?volume=vm1", "", "?volume=vm1&step=300", "?step=300"] {
        let report = history(&site, query);
        assert_eq!(reads(&report), 100, "{query}: {report}");
    }
    let report = history(&site, "?volume=vm1&step=10");
    let sample = &report["samples"][0];
    assert!(sample["read_mean_us"].as_u64().is_some_and(|us| us > 0), "{report}");
    assert!(sample["seconds"].as_f64().is_some_and(|seconds| seconds <= 20.0), "{report}");
    let shown = site.ask(&["history", "vm1"]);
    assert!(shown.contains("READS/s") && shown.lines().count() >= 2, "{shown}");
    let object: Value = serde_json::from_str(&site.ask(&["history", "--json"])).expect("JSON");
    assert_eq!(reads(&object), 100);
    let unknown = site.run(&["history", "vm9"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert_eq!(site.run(&["history", "--step", "7"]).code, Some(2));
    daemon.stop();

    let file = site.path("cinnabar-state/history.bin");
    let mut bytes = std::fs::read(&file).expect("it is written at a stop");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).expect("it is ours");
    let mut daemon = site.serve();
    looked_at(&site, &mut daemon);
    assert_eq!(reads(&history(&site, "")), 0);
    let log = daemon.stop();
    assert_eq!(log.matches("checksum is wrong").count(), 1, "{log}");
    let mut daemon = site.serve();
    looked_at(&site, &mut daemon);
    assert!(!daemon.stop().contains("history"), "it was replaced");
}

/// A client of server-sent events.
struct Listener(BufReader<UnixStream>);

impl Listener {
    fn new(site: &Site, headers: &str) -> Self {
        let mut stream = UnixStream::connect(site.path("control.sock")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let request = format!("GET /v1/events HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("it takes it");
        let mut listener = Self(BufReader::new(stream));
        while listener.line() != "retry: 2000" {}
        listener
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).expect("it goes on") > 0, "it has ended");
        line.trim_end().to_owned()
    }

    /// The next event: its number, and what it says.
    fn next(&mut self) -> (Option<String>, Value) {
        let (mut id, mut kind) = (None, String::new());
        loop {
            let line = self.line();
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                let event: Value = serde_json::from_str(text).expect("JSON");
                assert_eq!(event["kind"], kind);
                return (id, event);
            }
        }
    }

    /// The next event of this kind.
    fn kind(&mut self, kind: &str) -> (Option<String>, Value) {
        let begun = Instant::now();
        loop {
            let event = self.next();
            if event.1["kind"] == kind {
                return event;
            }
            assert!(begun.elapsed() < PATIENCE, "no {kind}");
        }
    }
}

#[test]
fn those_who_listen_learn_what_happens_and_go_on_where_they_were() {
    let site = site("[manager]\n");
    let daemon = site.serve();
    let mut listener = Listener::new(&site, "");
    // What is known of before is needed to notice what changes.
    std::thread::sleep(Duration::from_millis(500));
    site.ask(&["volume", "set", "vm1", "--mode", "write-around"]);
    let (first, event) = listener.kind("mode_changed");
    assert_eq!((&event["volume"], &event["after"]), (&"vm1".into(), &"write-around".into()));
    assert_eq!(event["reason"], "set by the operator");
    site.ask(&["volume", "add", "vm2", "--backend", "file:vm2.raw"]);
    assert_eq!(listener.kind("volume_attached").1["volume"], "vm2");
    site.ask(&["volume", "remove", "vm2"]);
    assert_eq!(listener.kind("volume_detached").1["volume"], "vm2");
    site.ask(&["policy", "pin", "vm1", "16MiB"]);
    let plan = listener.kind("plan_made").1;
    assert_eq!((&plan["plan"]["volumes"], &plan["plan"]["applied"]), (&1.into(), &true.into()));
    site.ask(&["cache", "replace", "new.img", "--size", "32MiB"]);
    let replaced = listener.kind("device_replaced").1;
    assert!(replaced["after"].as_str().is_some_and(|path| path.ends_with("new.img")), "{replaced}");
    drop(listener);

    let first = first.expect("it has a number");
    let mut again = Listener::new(&site, &format!("last-event-id: {first}\r\n"));
    assert_eq!(again.next().1["volume"], "vm2", "what came behind it");
    let mut other = Listener::new(&site, "last-event-id: 17-3\r\n");
    let (id, skipped) = other.next();
    assert_eq!(
        (id, &skipped["kind"], &skipped["skipped"]),
        (None, &"skipped".into(), &Value::Null)
    );
    drop((again, other));
    std::thread::sleep(Duration::from_millis(500));

    // One too many; and places are free again when their clients have gone.
    let listeners: Vec<Listener> = (0..16).map(|_| Listener::new(&site, "")).collect();
    let refused = http::get(&site.path("control.sock"), "/v1/events").expect("an answer");
    assert_eq!(refused.code, 429, "{refused:?}");
    drop(listeners);
    std::thread::sleep(Duration::from_millis(500));
    drop(Listener::new(&site, ""));
    daemon.stop();
}
