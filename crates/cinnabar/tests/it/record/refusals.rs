//! What can't be recorded, and requests to the control socket that make no sense.

use super::{attach, site};
use crate::http;
use crate::rig::Site;
use std::fs;

fn refused(site: &Site, args: &[&str], code: i32, what: &str) {
    let ended = site.run(&[&["trace", "record"], args].concat());
    assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
    assert!(ended.stderr.contains(what), "{args:?}: {ended:?}");
    let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("hint: "), "{args:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{args:?}");
}

#[test]
fn what_can_not_be_recorded_leaves_no_file() {
    let site = site();
    refused(&site, &["a", "--out", "r.csv"], 1, "no daemon at control.sock");
    let daemon = site.serve();
    let count = || fs::read_dir(site.path(".")).expect("a folder").count();
    let before = count();
    for (args, code, what) in [
        (&["none", "--out", "r.csv"][..], 1, "there is no volume \"none\""),
        (&["a", "none", "--out", "r.csv"], 1, "there is no volume \"none\""),
        (&["a", "b", "a", "--out", "r.csv"], 2, "\"a\" is named twice"),
        (&["a/b", "--out", "r.csv"], 2, "the name \"a/b\" contains '/'"),
        (&["a", "--out", "none/r.csv"], 2, "can't write none/r.csv"),
        (&["a", "--out", "."], 2, "can't write ."),
        (&["a", "--out", "/proc/r.csv"], 2, "can't write /proc/r.csv"),
        (&["a", "--out", "r.csv", "--duration", "0s"], 2, "no time to record"),
        (&["a", "--out", "r.csv", "--duration", "soon"], 2, "is not a time"),
        (&["a", "--out", "r.csv", "--max-size", "9B"], 2, "holds no request"),
        (&["a", "--out", "r.csv", "--socket", "c.toml"], 1, "no daemon at c.toml"),
        (&["--all", "a", "--out", "r.csv"], 2, "cannot be used with"),
        (&["--out", "r.csv"], 2, "required"),
        (&["a"], 2, "--out"),
    ] {
        refused(&site, args, code, what);
    }
    assert_eq!(count(), before, "nothing is left");
    let log = daemon.stop();
    assert!(!log.contains("recording="), "none began: {log}");
}

#[test]
fn a_full_disk_is_told_and_the_load_goes_on() {
    let site = site();
    let daemon = site.serve();
    let recorder = super::Recorder::start(&site, &["a", "--out", "/dev/full"]);
    let mut a = attach(&site, "a");
    a.read(0, 4096).expect("it reads");
    recorder.signal(rustix::process::Signal::INT);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("can't write /dev/full: No space left"), "{ended:?}");
    assert!(ended.stderr.trim_end().lines().last().is_some_and(|line| line.starts_with("hint: ")));
    assert_eq!(ended.stdout, "", "{ended:?}");
    a.read(0, 4096).expect("it reads");
    drop(a);
    daemon.stop();
}

#[test]
fn bad_requests_to_the_control_socket_are_refused() {
    let site = site();
    let mut daemon = site.serve();
    let socket = site.path("control.sock");
    let many = format!("{{\"volumes\":[{}\"a\"]}}", "\"a\",".repeat(5000));
    let long = format!("{{\"volumes\":[\"{}\"]}}", "x".repeat(65));
    let huge = format!("{{\"volumes\":[\"{}\"]}}", "x".repeat(100_000));
    let deep = format!("{{\"volumes\":{}", "[".repeat(10_000));
    for (method, path, body, code) in [
        ("POST", "/v1/recordings", "", 400),
        ("POST", "/v1/recordings", "{", 400),
        ("POST", "/v1/recordings", "[]", 422),
        ("POST", "/v1/recordings", "null", 400),
        ("POST", "/v1/recordings", "\u{0}\u{1}", 400),
        ("POST", "/v1/recordings", "{\"volumes\":\"a\"}", 400),
        ("POST", "/v1/recordings", "{\"volumes\":[1]}", 400),
        ("POST", "/v1/recordings", "{\"all\":1}", 400),
        ("POST", "/v1/recordings", "{\"all\":true,\"out\":\"/etc/passwd\"}", 400),
        ("POST", "/v1/recordings", deep.as_str(), 400),
        ("POST", "/v1/recordings", huge.as_str(), 413),
        ("POST", "/v1/recordings", "{}", 422),
        ("POST", "/v1/recordings", "{\"volumes\":[]}", 422),
        ("POST", "/v1/recordings", "{\"all\":false}", 422),
        ("POST", "/v1/recordings", "{\"volumes\":[\"a\"],\"all\":true}", 422),
        ("POST", "/v1/recordings", "{\"volumes\":[\"a\",\"a\"]}", 422),
        ("POST", "/v1/recordings", many.as_str(), 422),
        ("POST", "/v1/recordings", long.as_str(), 422),
        ("POST", "/v1/recordings", "{\"volumes\":[\"\"]}", 422),
        ("POST", "/v1/recordings", "{\"volumes\":[\"../a\"]}", 422),
        ("POST", "/v1/recordings", "{\"volumes\":[\"a\",\"none\"]}", 404),
        ("GET", "/v1/recordings", "", 405),
        ("DELETE", "/v1/recordings", "", 405),
        ("POST", "/v1/recordings/0", "", 405),
        ("DELETE", "/v1/recordings/0", "", 404),
        ("DELETE", "/v1/recordings/-1", "", 404),
        ("DELETE", "/v1/recordings/18446744073709551616", "", 404),
        ("DELETE", "/v1/recordings/a%2Fb", "", 404),
        ("DELETE", "/v1/recordings/%FF", "", 404),
        ("DELETE", "/v1/recordings/0/0", "", 404),
    ] {
        let answer = http::send(&socket, method, path, body).expect("an answer");
        let body: String = body.chars().take(80).collect();
        assert_eq!(answer.code, code, "{method} {path} {body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{method} {path} {body}: {answer:?}");
        assert!(answer.json()["hint"].is_string(), "{method} {path} {body}: {answer:?}");
    }
    assert!(daemon.is_running());
    let log = daemon.stop();
    assert!(!log.contains("recording="), "none began: {log}");
}
