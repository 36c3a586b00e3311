//! The command line as a whole: version, completions, pages, what is said to bad ones.

use super::files;
use super::rig::Site;
use super::terminal::on_terminal;
use std::fs;

#[test]
fn version_completions_and_pages() {
    let site = Site::new();
    assert!(site.ask(&["version"]).starts_with("cinnabar-lab "));
    let version: serde_json::Value =
        serde_json::from_str(&site.ask(&["version", "--json"])).expect("it is JSON");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["format_version"].is_number());
    for shell in ["bash", "zsh", "fish"] {
        assert!(site.ask(&["completions", shell]).contains("cinnabar-lab"), "{shell}");
    }
    site.ask(&["man", "."]);
    let page = fs::read_to_string(site.path("cinnabar-lab-trace-info.1")).expect("a page");
    assert!(page.contains("cinnabar\\-lab trace info"), "{page}");
}

#[test]
fn bad_command_lines_end_with_a_hint() {
    let site = Site::new();
    for (args, code) in [
        (&["frobnicate"][..], 2),
        (&["serve", "--demo"], 2),
        (&["trace", "record", "vm1", "--out", "r.csv"], 2),
        (&["analyze", "none.csv"], 2),
        (&["simulate", "faults", "--seeds", "none"], 2),
        (&["simulate", "faults", "--seed", "1", "--seeds", "2"], 2),
        (&["simulate", "faults", "--first", "18446744073709551615", "--seeds", "2"], 2),
    ] {
        let ended = site.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{args:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "{args:?}: {ended:?}");
        assert!(!ended.stderr.contains('\x1b'), "no colours where nobody sees them: {ended:?}");
    }
}

#[test]
fn tables_fit_the_terminal_and_pipes_get_all() {
    let site = Site::new();
    let trace = files::fixture().to_string_lossy().into_owned();
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(widest(&site.ask(&["analyze", &trace])) > Some(80), "else this proves nothing");
    let shown = on_terminal(&site, 80, &["analyze", &trace]);
    let table: Vec<&str> = shown.lines().filter(|line| line.contains('%')).take(5).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 80), "{shown}");
}
