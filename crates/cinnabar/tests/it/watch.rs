//! `cinnabar status --watch` beside a real daemon: a line a look for programs, tables for people, Ctrl-C.

use super::nbd::Client;
use super::rig::{MIB, PATIENCE, Site, pattern};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Instant;

fn site() -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.disk("vm2.raw", 8 * MIB);
    site.config(
        "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n\
         [[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\n",
    );
    site
}

fn watch(site: &Site, args: &[&str]) -> Child {
    let args = [&["status", "--watch", "--interval", "0.2"], args].concat();
    let mut command = site.command(&args);
    command.env("NO_COLOR", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// As Ctrl-C does, which is ignored by what was started in the background.
fn interrupt(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is our child");
    let begun = Instant::now();
    while child.try_wait().expect("it is our child").is_none() {
        assert!(begun.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "", "it ends quietly");
}

fn window<'v>(object: &'v Value, volume: Option<&str>, name: &str) -> &'v Value {
    let windows = object["windows"].as_array().expect("windows");
    let is_it = |one: &&Value| one["volume"].as_str() == volume && one["window"] == name;
    windows.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {volume:?}: {object}"))
}

#[test]
fn programs_get_a_line_a_look() {
    let site = site();
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    let mut child = watch(&site, &["--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("a line is an object")
    };
    let first = next();
    assert_eq!(window(&first, Some("vm1"), "1s")["seconds"], 0.0, "nothing to compare with yet");
    let begun = Instant::now();
    loop {
        assert_eq!(client.read(0, 8192).expect("it reads"), pattern(0, 8192));
        let object = next();
        assert_eq!(object["volumes"][0]["name"], "vm1", "the status is there, too");
        let second = window(&object, Some("vm1"), "1s");
        let (reads, bytes) = (&second["reads_per_s"], &second["read_bytes_per_s"]);
        let (reads, bytes) = (reads.as_f64().expect("a rate"), bytes.as_f64().expect("a rate"));
        if reads > 0.0 {
            assert!((bytes - reads * 8192.0).abs() < 1.0, "{second}");
            assert!(second["read_mean_us"].as_f64().is_some_and(|us| us > 0.0), "{second}");
            assert_eq!(window(&object, None, "1s")["reads_per_s"], reads, "of all volumes");
            assert_eq!(window(&object, Some("vm2"), "1s")["reads_per_s"], 0.0);
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no reads are seen: {object}");
    }
    for name in ["5min", "1h", "24h"] {
        window(&next(), Some("vm2"), name);
    }
    interrupt(child);
    daemon.stop();
}

#[test]
fn people_get_tables_without_colours_or_jumps() {
    let site = site();
    let daemon = site.serve();
    let mut child = watch(&site, &["--window", "5min", "--window", "1s"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut text = String::new();
    // Two looks.
    while text.matches("READ MB/s").count() < 2 {
        text += &lines.next().expect("a line").expect("text");
        text.push('\n');
    }
    assert!(!text.contains('\x1b'), "{text}");
    let first = text.split("READ MB/s").nth(1).expect("a table");
    for part in ["5 min", "1 s", "vm1", "vm2", "(all)"] {
        assert!(first.contains(part), "{part:?} is missing: {text}");
    }
    assert!(!first.contains("24 h"), "{text}");
    interrupt(child);
    daemon.stop();
    let ended = site.run(&["status", "--watch"]);
    assert_eq!(ended.code, Some(1), "no daemon: {ended:?}");
}
