//! Operators' commands against a running daemon: status, volumes, metrics.

use super::daemon::{VM1, free_port};
use super::nbd::Client;
use super::rig::{MIB, Site, finish, pattern};
use std::collections::{BTreeMap, BTreeSet};

fn site_with_vm1(more: &str) -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.config(&format!("{more}{VM1}"));
    site
}

#[test]
fn the_status_counts_what_a_client_does() {
    let site = site_with_vm1("");
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(client.size_bytes, 8 * MIB);
    for _ in 0..3 {
        assert_eq!(client.read(0, 8192).expect("it reads"), pattern(0, 8192));
    }
    client.write(MIB, &[1; 4096]).expect("it writes");
    client.flush().expect("it flushes");
    let status = site.status();
    let volume = &status["volumes"][0];
    let number = |key: &str| volume[key].as_u64().unwrap_or_else(|| panic!("{key}: {volume}"));
    assert_eq!(volume["name"], "vm1");
    assert_eq!(volume["mode"], "write-through");
    assert_eq!(volume["state"], "serving");
    assert_eq!((number("reads"), number("writes"), number("flushes")), (3, 1, 1));
    assert_eq!((number("blocks_read"), number("blocks_written")), (6, 1));
    assert_eq!((number("read_bytes"), number("write_bytes")), (3 * 8192, 4096));
    assert_eq!((number("read_hits"), number("misses")), (4, 2));
    assert_eq!((number("backend_read_bytes"), number("backend_write_bytes")), (8192, 4096));
    assert_eq!(number("connections"), 1);
    assert!(number("cached_blocks") >= 2);
    for (operation, count) in [("read", 3), ("write", 1), ("flush", 1)] {
        let latency = &volume["latency_us"][operation];
        assert_eq!(latency["count"], count, "{operation}");
        assert!(latency["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{operation}");
        assert!(latency["p50"].as_u64() <= latency["p99"].as_u64(), "{operation}");
    }
    let cache = &status["cache"];
    assert!(cache["capacity_blocks"].as_u64().is_some_and(|blocks| blocks > 10_000), "{cache}");
    assert!(cache["ram_bytes_per_block"].as_f64().is_some_and(|bytes| bytes > 0.0), "{cache}");
    let table = site.ask(&["status"]);
    assert!(table.contains("vm1") && table.contains("66.7%"), "{table}");
    drop(client);
    daemon.stop();
}

#[test]
fn volumes_come_change_and_go() {
    let site = site_with_vm1("");
    site.disk("vm 2.raw", 4 * MIB);
    let daemon = site.serve();
    let added = site.ask(&["volume", "add", "vm 2", "--backend", "file:vm 2.raw", "--exclusive"]);
    assert!(added.contains("vm 2 at unix:"), "{added}");
    let mut client = Client::attach(&site.path("vm 2.sock"), "vm 2").expect("it is let in");
    assert_eq!(client.read(MIB, 512).expect("it reads"), pattern(MIB, 512));

    let table = site.ask(&["volume", "list"]);
    assert!(table.contains("vm1") && table.contains("vm 2"), "{table}");
    let list: serde_json::Value =
        serde_json::from_str(&site.ask(&["volume", "list", "--json"])).expect("it is JSON");
    assert_eq!(list[1]["exclusive"], true);

    site.ask(&["volume", "set", "vm 2", "--mode", "write-around", "--share-min", "25%"]);
    let volume = &site.status()["volumes"][1];
    assert_eq!((&volume["mode"], &volume["share_min"]), (&"write-around".into(), &"25%".into()));
    assert_eq!(volume["connections"], 1);
    assert_eq!(site.status()["volumes"][0]["connections"], 0, "a volume counts its own clients");

    for (args, code, part) in [
        (&["volume", "add", "vm1", "--backend", "file:vm 2.raw"][..], 1, "already"),
        (&["volume", "add", "vm3", "--backend", "file:vm1.raw"], 2, "already"),
        (&["volume", "add", "vm3", "--backend", "file:none.raw"], 2, "none.raw"),
        (&["volume", "add", "vm3", "--backend", "file:cache.img"], 2, "cache device"),
        (&["volume", "set", "vm1", "--share-min", "60%"], 2, "80 %"),
        (&["volume", "set", "vm1", "--share-min", "2%", "--share-max", "1%"], 2, "share_max"),
        (&["volume", "set", "vm1"], 2, "nothing to change"),
        (&["volume", "set", "none", "--mode", "pass-through"], 1, "no volume"),
        (&["volume", "remove", "none"], 1, "none"),
        (&["volume", "remove", "vm 2"], 1, ""),
    ] {
        let ended = site.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{args:?}: {ended:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "{args:?}: {ended:?}");
    }
    assert_eq!(client.read(0, 512).expect("it was not removed"), pattern(0, 512));
    site.ask(&["volume", "remove", "vm 2", "--force"]);
    client.read(0, 512).expect_err("it was removed");
    assert!(!site.path("vm 2.sock").exists());
    assert_eq!(site.status()["volumes"].as_array().map(Vec::len), Some(1));
    site.ask(&["volume", "add", "vm 2", "--backend", "file:vm 2.raw", "--nbd", "unix:other.sock"]);
    Client::attach(&site.path("other.sock"), "vm 2").expect("it is let in again");
    daemon.stop();
}

#[test]
fn pass_through_and_back() {
    let site = site_with_vm1("");
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    site.ask(&["volume", "set", "vm1", "--mode", "pass-through"]);
    for _ in 0..2 {
        client.read(0, 4096).expect("it reads");
    }
    let volume = site.status()["volumes"][0].clone();
    assert_eq!(volume["read_hits"], 0);
    assert_eq!(volume["bypassed"]["pass_through"], 2);
    site.ask(&["volume", "set", "vm1", "--mode", "write-through"]);
    for _ in 0..2 {
        client.read(0, 4096).expect("it reads");
    }
    assert_eq!(site.status()["volumes"][0]["read_hits"], 1);
    drop(client);
    daemon.stop();
}

#[test]
fn metrics_agree_with_the_status() {
    let port = free_port();
    let site = site_with_vm1(&format!("[control]\nhttp = \"127.0.0.1:{port}\"\n"));
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    client.read(0, 4096).expect("it reads");
    client.read(0, 4096).expect("it reads");
    let metrics = super::http::get_tcp(port, "/metrics").expect("an answer").body;
    for line in [
        "cinnabar_volume_reads_total{volume=\"vm1\"} 2",
        "cinnabar_volume_read_hit_blocks_total{volume=\"vm1\"} 1",
        "cinnabar_volume_read_miss_blocks_total{volume=\"vm1\"} 1",
        "cinnabar_volume_latency_seconds_count{volume=\"vm1\",operation=\"read\"} 2",
        "cinnabar_volume_healthy{volume=\"vm1\"} 1",
        "cinnabar_cache_healthy 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.2";
    let newer = super::http::get_tcp_as(port, "/metrics", accept).expect("an answer");
    assert!(newer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", newer.head);
    assert!(newer.body.ends_with("# EOF\n") && !metrics.contains("# EOF"), "{}", newer.body);
    let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples(&newer.body), samples(&metrics));
    assert_eq!(lint(&metrics), Vec::<String>::new());
    drop(client);
    daemon.stop();
}

/// What `promtool check metrics` looks at, in a text of format 0.0.4.
fn lint(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut helps, mut kinds, mut seen) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some((name, words)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' '))
        {
            helps.push(name);
            if words.trim().is_empty() {
                wrong.push(format!("{name}: no help text"));
            }
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
        {
            if kinds.insert(name, kind).is_some() || !helps.contains(&name) {
                wrong.push(format!("{name}: declared twice, or without help"));
            }
            wrong.extend(lint_name(name, kind));
        } else if line.starts_with('#') {
            wrong.push(format!("{line}: no comment of this format"));
        } else {
            let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
            let name = series.split('{').next().unwrap_or_default();
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            let family = family.filter(|family| kinds.get(family) == Some(&"histogram"));
            if !kinds.contains_key(family.unwrap_or(name)) || !seen.insert(series) {
                wrong.push(format!("{line}: of no family, or twice"));
            }
        }
    }
    wrong
}

fn lint_name(name: &str, kind: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !["counter", "gauge", "histogram"].contains(&kind) {
        wrong.push(format!("{name}: no type {kind}"));
    }
    if (kind == "counter") != name.ends_with("_total") {
        wrong.push(format!("{name}: _total is for counters"));
    }
    if kind != "histogram" && ["_count", "_sum", "_bucket"].iter().any(|it| name.ends_with(it)) {
        wrong.push(format!("{name}: an end of histograms"));
    }
    if name.split('_').any(|word| ["counter", "gauge", "histogram", "summary"].contains(&word)) {
        wrong.push(format!("{name}: its type is in its name"));
    }
    let units =
        ["ms", "us", "ns", "milliseconds", "microseconds", "kib", "mib", "kilobytes", "percent"];
    if name.split('_').any(|word| units.contains(&word)) || name.chars().any(char::is_uppercase) {
        wrong.push(format!("{name}: not in base units, or in capitals"));
    }
    wrong
}

#[test]
fn the_socket_is_found_in_the_environment() {
    let site = site_with_vm1("[control]\nsocket = \"elsewhere.sock\"\n");
    let mut daemon = site.start(&mut site.command(&["serve", "--config", "c.toml"]));
    let path = site.path("elsewhere.sock");
    daemon.wait_until("serving", || {
        finish(site.command(&["status"]).env("CINNABAR_SOCKET", &path)).code == Some(0)
    });
    assert_eq!(site.run(&["status"]).code, Some(1), "not at ./control.sock");
    site.ask(&["status", "--socket", "elsewhere.sock"]);
    daemon.stop();
}

#[test]
fn version_and_completions_need_no_daemon() {
    let site = Site::new();
    assert!(site.ask(&["version"]).starts_with("cinnabar "));
    let version: serde_json::Value =
        serde_json::from_str(&site.ask(&["version", "--json"])).expect("it is JSON");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["format_version"].is_number());
    for shell in ["bash", "zsh", "fish"] {
        assert!(site.ask(&["completions", shell]).contains("cinnabar"), "{shell}");
    }
    site.disk("vm1.raw", MIB);
    site.config(VM1);
    assert!(site.ask(&["config", "check", "c.toml"]).contains("fine"));
    assert!(!site.path("cache.img").exists(), "nothing is opened or made");
}
