//! The page about `analyze --json` against what is printed.

use super::{SLIDES, analyze};
use crate::rig::Site;
use serde_json::Value;
use std::collections::BTreeSet;

/// Every key of a value, `[]` standing for any place in a list.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                keys(value, &path, found);
                // A thing that may be missing is a key of its own.
                if value.is_object() && !path.starts_with("settings") && path.contains("outcome") {
                    found.insert(path);
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                keys(value, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The first cells of the tables' rows that are code.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../../docs/design/analysis-json.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(key, _)| key.to_owned()).collect()
}

#[test]
fn every_key_is_documented_and_every_documented_key_is_printed() {
    let site = Site::new();
    site.write("slides.csv", SLIDES);
    let mut printed = BTreeSet::new();
    keys(&analyze(&site, &["slides.csv"]), "", &mut printed);
    let documented = documented();
    let missing: Vec<_> = printed.difference(&documented).collect();
    let surplus: Vec<_> = documented.difference(&printed).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    assert!(surplus.is_empty(), "documented, and not printed: {surplus:?}");
    assert!(printed.len() > 80, "{}", printed.len());
}

#[test]
fn curves_are_short_and_never_fall() {
    let site = Site::new();
    let found = analyze(&site, &[&super::fixture(), "--cache=64MiB"]);
    assert_eq!((&found["format"], &found["version"]), (&"cinnabar-analysis".into(), &1.into()));
    for volume in found["volumes"].as_array().expect("a list") {
        let curve = volume["curve"].as_array().expect("a list");
        assert!(curve.len() > 10 && curve.len() <= 200, "{} points", curve.len());
        for pair in curve.windows(2) {
            for key in ["size_blocks", "read_hits", "read_only_hits"] {
                assert!(pair[0][key].as_f64() <= pair[1][key].as_f64(), "{key}: {pair:?}");
            }
        }
        let (last, outcome) = (&curve[curve.len() - 1], &volume["outcome"]);
        assert!(last["read_hits"].as_f64() >= outcome["read_hits"].as_f64());
    }
}
