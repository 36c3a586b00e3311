//! Each target stands wherever targets stand.

use crate::{TESTED, names, root};
use cinnabar_fuzz::TARGETS;
use std::fs;

#[test]
fn every_target_is_tested() {
    let table: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert!(table.is_sorted(), "the table is in order of name");
    assert_eq!(table, TESTED, "the library's table, and the tests");
    let folder = root().join("fuzz/fuzz_targets");
    let files = names(&folder);
    let files: Vec<_> =
        files.iter().filter_map(|name| name.to_str()?.strip_suffix(".rs")).collect();
    assert_eq!(table, files, "the library's table, and the files in fuzz_targets");
    for name in &table {
        let program = fs::read_to_string(folder.join(format!("{name}.rs"))).expect("it is listed");
        assert!(program.contains(&format!("cinnabar_fuzz::{name}::run(input)")), "{name}.rs");
    }
    for kept in names(&root().join("fuzz/seeds")) {
        assert!(table.iter().any(|name| kept == *name), "inputs of no target: {kept:?}");
    }
}

#[test]
fn every_target_is_a_program() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("the manifest");
    let manifest: toml::Table = manifest.parse().expect("cargo has read it");
    let programs = manifest["bin"].as_array().expect("a list");
    let mut names: Vec<_> =
        programs.iter().filter_map(|program| program["name"].as_str()).collect();
    names.sort_unstable();
    assert!(names.iter().eq(TARGETS.iter().map(|(name, _)| name)), "{names:?}");
    for program in programs {
        let name = program["name"].as_str().expect("a string");
        let path = program["path"].as_str();
        assert_eq!(path, Some(&*format!("fuzz_targets/{name}.rs")), "{name}");
        // Without it every build of the workspace would have to link libFuzzer.
        let features = program["required-features"].as_array().expect("a list");
        assert!(features.iter().any(|feature| feature.as_str() == Some("libfuzzer")), "{name}");
    }
}
