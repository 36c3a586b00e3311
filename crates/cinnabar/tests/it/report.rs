//! `cinnabar report` beside a real daemon, and without one: what is in it, and what is not.

use super::daemon::free_port;
use super::nbd::Client;
use super::rig::{MIB, Site};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const TOKEN: &str = "hush-hush-hush-hush";

fn site() -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    let token = site.write("token", TOKEN);
    std::fs::set_permissions(token, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let port = free_port();
    site.config(&format!(
        "[control]\nhttp = \"127.0.0.1:{port}\"\napi = true\ntoken_file = \"token\"\n\
         [[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n# password = \"{TOKEN}\"\n"
    ));
    site
}

/// The files in a report, by name.
fn unpacked(site: &Site, name: &str) -> BTreeMap<String, String> {
    let path = site.path(name);
    let mode = path.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is its owner's alone");
    let into = site.path(&format!("{name}.d"));
    std::fs::create_dir(&into).expect("a folder");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&path).current_dir(&into).stdin(Stdio::null());
    assert!(tar.status().expect("there is a tar").success());
    let mut files = BTreeMap::new();
    let top = into.join("cinnabar-bench");
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&top).expect("below").display().to_string();
            files.insert(name, std::fs::read_to_string(&path).expect("text"));
        }
    }
    files
}

fn report(site: &Site, args: &[&str]) -> Value {
    let args = [&["report", "--config", "c.toml", "--json"], args].concat();
    serde_json::from_str(&site.ask(&args)).expect("it is JSON")
}

#[test]
fn a_report_has_what_helps_and_no_secrets() {
    let site = site();
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    client.read(0, 8192).expect("it reads");
    let said = report(&site, &["--output", "r.tar.gz"]);
    let files = unpacked(&site, "r.tar.gz");
    assert_eq!(said["files"].as_array().map(Vec::len), Some(files.len()), "{said}");
    for name in [
        "README.txt",
        "version.json",
        "config.toml",
        "config-check.txt",
        "daemon/version.json",
        "daemon/status.json",
        "daemon/history-day.json",
        "daemon/history-hour.json",
        "daemon/events.jsonl",
        "daemon/metrics.txt",
        "host/system.txt",
        "host/block-devices.txt",
        "host/mounts.txt",
        "host/limits.txt",
        "host/cgroup.txt",
    ] {
        assert!(files.contains_key(name), "{name} is missing: {said}");
    }
    let status: Value = serde_json::from_str(&files["daemon/status.json"]).expect("it is JSON");
    assert_eq!(status["volumes"][0]["reads"], 1);
    assert!(files["daemon/metrics.txt"].contains("cinnabar_volume_read_bytes_total"));
    assert!(files["config.toml"].contains("token_file = \"token\""), "its path is kept");
    assert!(files["host/limits.txt"].starts_with("Of the daemon"));
    for (name, text) in &files {
        assert!(!text.contains(TOKEN), "{name} has a secret");
    }
    daemon.stop();
}

#[test]
fn without_a_daemon_it_says_what_is_missing() {
    let site = site();
    let daemon = site.serve();
    daemon.stop();
    let said = report(&site, &["--output", "r.tar.gz", "--device", "cache.img"]);
    let files = unpacked(&site, "r.tar.gz");
    assert!(files["superblock.json"].contains("vm1") || files["superblock.json"].len() > 100);
    let missing = said["missing"].as_array().expect("a list");
    let lacks = |name: &str| missing.iter().any(|one| one["name"] == name);
    assert!(lacks("daemon/version.json") && lacks("daemon/metrics.txt"), "{said}");
    assert!(files["README.txt"].contains("daemon/version.json: no daemon at"));
    assert!(files["host/limits.txt"].contains("no daemon answers"));

    let ended = site.run(&["report", "--config", "none.toml"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = site.run(&["report", "--output", "no/such/folder/r.tar.gz"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let text = site.ask(&["report", "--config", "c.toml", "--output", "r.tar.gz"]);
    assert!(text.contains("README.txt") && text.contains("missing: "), "{text}");
}
