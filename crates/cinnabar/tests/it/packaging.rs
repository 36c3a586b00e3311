//! What comes with the daemon for Prometheus and Grafana names metrics that there are.

use super::daemon::free_port;
use super::http;
use super::rig::{MIB, Site};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const DASHBOARD: &str = "grafana-dashboard.json";
const RULES: &str = "prometheus-rules.yml";

fn shipped(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    std::fs::read_to_string(folder.join(name)).expect("it is shipped")
}

/// The metrics named in a text.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("cinnabar_")).collect()
}

/// What a daemon exports in which nothing is left out.
fn exported() -> String {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    let port = free_port();
    site.config(&format!(
        "write_log = \"log.img\"\nwrite_log_size = \"64MiB\"\n[control]\nhttp = \"127.0.0.1:{port}\"\n\
         [[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\nmode = \"write-back\"\n\
         iops_reservation = 10\n"
    ));
    let daemon = site.serve();
    let answer = http::get_tcp(port, "/metrics").expect("it answers");
    assert_eq!(answer.code, 200, "{answer:?}");
    daemon.stop();
    answer.body
}

#[test]
fn dashboard_and_alerts_name_metrics_that_are_exported() {
    let text = exported();
    let exported: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for (name, least) in [(DASHBOARD, 25), (RULES, 15)] {
        let text = shipped(name);
        let named = metrics_in(&text);
        assert!(named.len() >= least, "{name}: {named:?}");
        let missing: Vec<&&str> = named.difference(&exported).collect();
        assert!(missing.is_empty(), "{name}: not exported: {missing:?}\n{text}");
    }
}

/// The guide advised a port below 1024, which the unit does not let the daemon take.
#[test]
fn what_the_guide_says_of_low_ports_goes_with_the_unit() {
    let unit = shipped("cinnabar.service");
    let bound = unit.lines().find(|line| line.starts_with("CapabilityBoundingSet="));
    assert!(bound.is_some_and(|line| !line.contains("NET_BIND")), "then the guide can be shorter");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/api.md");
    let guide = std::fs::read_to_string(guide).expect("it is there");
    assert!(guide.contains("CapabilityBoundingSet=CAP_NET_BIND_SERVICE"));
}

#[test]
fn guests_start_behind_the_unit_and_stop_before_it() {
    let unit = shipped("cinnabar.service");
    let before: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Before="))
        .flat_map(str::split_whitespace)
        .collect();
    for guests in ["libvirtd", "virtqemud", "libvirt-guests", "pve-guests"] {
        assert!(before.contains(&format!("{guests}.service").as_str()), "{guests}: {before:?}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard: Value = serde_json::from_str(&shipped(DASHBOARD)).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let numbers: BTreeSet<u64> =
        panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(numbers.len(), panels.len(), "each has a number of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert!(target["expr"].as_str().is_some_and(|text| text.contains("cinnabar_")));
        }
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().zip(place["w"].as_u64()).map(|(x, w)| x + w);
        assert!(right.is_some_and(|right| right <= 24), "{panel}");
    }
}
