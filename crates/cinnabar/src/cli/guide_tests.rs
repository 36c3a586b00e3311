//! The guide's lists of commands, metrics and requests are made from the code.

use super::Cli;
use super::tests::sample;
use cinnabar_config::status::exposition::text_of;
use cinnabar_config::status::metrics::render;
use cinnabar_config::status::raw::{
    DataStatus, HybridVolumeStatus, MigrationRole, MigrationStatus, QosGroupStatus,
    VolumeQosStatus, WarmStatus,
};
use cinnabar_text::cli::commands::table_of;
use cinnabar_text::guide::assert_generated;
use clap::CommandFactory;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// Labels whose values are an operator's names.
const NAMES: [&str; 4] = ["group", "device", "parent", "version"];

/// A status with everything that has metrics.
#[expect(clippy::default_trait_access, reason = "the types are of a crate below")]
fn full() -> DataStatus {
    let mut status = sample(8);
    let volume = &mut status.volumes[0];
    volume.qos = Some(VolumeQosStatus {
        group: "g".into(),
        guest: Default::default(),
        destage: Some(Default::default()),
    });
    volume.hybrid = Some(HybridVolumeStatus::default());
    volume.migration = Some(MigrationStatus {
        role: MigrationRole::Owner,
        peer: String::new(),
        epoch: 1,
        given: 0,
        taken: 1,
        last_take: Duration::ZERO,
        held: 0,
        reason: String::new(),
        warm: Some(WarmStatus::default()),
    });
    status.qos_groups = vec![QosGroupStatus { name: "g".into(), report: Default::default() }];
    status
}

/// Labels of a family with their values.
fn labels_of<'t>(text: &'t str, family: &str) -> BTreeMap<&'t str, BTreeSet<&'t str>> {
    let mut labels: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for rest in text.lines().filter_map(|line| line.strip_prefix(family)) {
        let all = rest.trim_start_matches("_bucket").strip_prefix('{');
        let all = all.and_then(|rest| rest.split('}').next()).unwrap_or_default();
        for (label, value) in all.split(',').filter_map(|pair| pair.split_once('=')) {
            labels.entry(label).or_default().insert(value.trim_matches('"'));
        }
    }
    labels
}

/// The metrics that have a label `volume`, or the others, a line each.
fn metrics(text: &str, of_volumes: bool) -> String {
    let mut list = String::new();
    for described in text.split("# HELP cinnabar_").skip(1) {
        let (family, help) = described.split_once(' ').expect("a family has help");
        let (help, kind) = help.split_once("\n# TYPE ").expect("and a type");
        let kind = kind.split([' ', '\n']).nth(1).expect("behind its name");
        let mut labels = labels_of(text, &format!("cinnabar_{family}"));
        if labels.remove("volume").is_some() != of_volumes {
            continue;
        }
        labels.remove("le");
        let names: Vec<&str> = labels.keys().copied().collect();
        let names =
            if names.is_empty() { String::new() } else { format!("{{{}}}", names.join(",")) };
        // Counters end so, and nothing else does.
        let kind = match (kind, family.ends_with("_total")) {
            ("counter", true) | ("gauge", false) => "",
            (other, _) => &format!(" ({other})"),
        };
        write!(list, "- `{family}{names}`{kind}: {help}").expect("a string takes all");
        for (label, values) in labels.iter().filter(|(label, _)| !NAMES.contains(label)) {
            let values: Vec<&str> = values.iter().copied().collect();
            write!(list, " `{label}`: {}.", values.join(", ")).expect("a string takes all");
        }
        list.push('\n');
    }
    list
}

#[test]
fn metrics_in_the_guide_are_generated() {
    let text = text_of(&render(full()).expect("it can be written"));
    // The sample has all that the code can export: there is no other name with an underscore.
    let sources = concat!(
        include_str!("../../../cinnabar-config/src/status/metrics.rs"),
        include_str!("../../../cinnabar-config/src/status/metrics/bytes.rs"),
        include_str!("../../../cinnabar-config/src/status/metrics/hybrid.rs"),
        include_str!("../../../cinnabar-config/src/status/metrics/qos.rs"),
    );
    let is_name = |text: &&str| {
        text.contains('_') && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    let names: Vec<&str> = sources.split('"').skip(1).step_by(2).filter(is_name).collect();
    assert!(names.len() > 130, "{names:?}");
    for name in names {
        let value = text.contains(&format!("\"{name}\""));
        assert!(value || text.contains(&format!("# TYPE cinnabar_{name}")), "{name}");
    }
    for (part, of_volumes) in [("of the cache", false), ("of volumes", true)] {
        assert_generated(
            env!("CARGO_MANIFEST_DIR"),
            "metrics.md",
            part,
            &metrics(&text, of_volumes),
        );
    }
}

#[test]
fn commands_in_the_guide_are_generated() {
    let mut program = Cli::command();
    program.build();
    let table = table_of(&program, &["socket", "timeout"]);
    assert_generated(env!("CARGO_MANIFEST_DIR"), "cli.md", "cinnabar", &table);
}

#[test]
fn requests_in_the_guide_are_generated() {
    let api: serde_json::Value =
        serde_json::from_str(cinnabar_control::describe::text()).expect("it is JSON");
    let mut table = String::from("| request | what it does |\n|---|---|\n");
    for (path, methods) in api["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let Some(summary) = operation["summary"].as_str() else {
                continue;
            };
            let method = method.to_uppercase();
            writeln!(table, "| `{method} {path}` | {summary} |").expect("a string takes all");
        }
    }
    assert_generated(env!("CARGO_MANIFEST_DIR"), "cli.md", "requests", &table);
}
