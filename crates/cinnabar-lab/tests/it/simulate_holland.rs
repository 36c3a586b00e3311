//! `cinnabar-lab simulate holland`: what it writes, that it repeats, and that a result that does not hold
//! is an error.

use super::rig::Site;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn run(site: &Site, args: &[&str]) -> Value {
    let text = site.ask(&[&["simulate", "holland", "--json"], args].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn figures_are_written_as_drawings_numbers_and_a_page() {
    let site = Site::new();
    // Folders are made, one in the other.
    let out = site.path("made/figures");
    let at = out.display().to_string();
    let args = ["--experiment", "ram,flash-read-time", "--scale", "512", "--out", &at];
    let found = run(&site, &args);
    let experiments = found["experiments"].as_array().expect("a list");
    let names: Vec<_> = experiments.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["ram", "flash-read-time"]);
    assert_eq!(experiments[0]["holds"], true, "{}", experiments[0]["checks"]);
    assert_eq!(experiments[1]["holds"], Value::Null, "it claims nothing");
    let page = read(&out, "holland.html");
    for figure in experiments.iter().flat_map(|one| one["figures"].as_array().expect("a list")) {
        let slug = figure["slug"].as_str().expect("a name");
        let title = figure["title"].as_str().expect("a title");
        let drawing = read(&out, &format!("{slug}.svg"));
        assert!(drawing.starts_with("<svg") && drawing.contains(title), "{slug}");
        // In the page's colours there, in its own here.
        assert!(page.contains(&format!("<title>{title}</title>")), "{slug} is on the page");
        let rows = read(&out, &format!("{slug}.csv"));
        let lines = figure["lines"].as_array().expect("a list");
        let points: usize =
            lines.iter().map(|line| line["points"].as_array().map_or(0, Vec::len)).sum();
        assert_eq!(rows.lines().count(), points + 1, "{slug}");
    }
    let targets = read(&out, "targets.csv");
    assert!(
        targets.contains(
            "flash-read-time,\"60 GB, reads from flash of 88 us\",read_latency_us,411,411,"
        ),
        "{targets}"
    );
    // Flash answers most reads, and one in some twenty waits for a disk: 8 ms.
    let at_88_us = &experiments[1]["figures"][0]["lines"][0]["points"][2];
    assert!(at_88_us["read_latency_us"].as_f64().is_some_and(|us| (350.0..470.0).contains(&us)));
    assert!(at_88_us["read_p99_us"].as_f64().is_some_and(|us| (7_900.0..9_000.0).contains(&us)));
    assert!(page.contains("Result 6: ") && page.contains("Beside an independent model"));
}

#[test]
fn the_same_seed_gives_the_same_run_on_any_number_of_cores_and_another_seed_another() {
    let site = Site::new();
    let digest = |more: &[&str]| {
        let at = site.path("figures").display().to_string();
        let args = ["--experiment", "consistency", "--scale", "1024", "--out", &at];
        run(&site, &[&args, more].concat())["digest"].clone()
    };
    let one = digest(&["--jobs", "1"]);
    assert!(one.as_str().is_some_and(|digest| digest.len() == 16), "{one}");
    assert_eq!(digest(&["--jobs", "2"]), one);
    assert_ne!(digest(&["--seed", "2"]), one);
}

#[test]
fn experiments_are_listed_and_unknown_ones_refused() {
    let site = Site::new();
    let table = site.ask(&["simulate", "holland", "--list"]);
    let rows: Vec<Value> =
        serde_json::from_str(&site.ask(&["simulate", "holland", "--list", "--json"]))
            .expect("it is JSON");
    let claims: Vec<_> = rows.iter().filter_map(|row| row["claim"].as_u64()).collect();
    assert_eq!(claims, [1, 2, 3, 4, 5, 6]);
    for row in &rows {
        let name = row["name"].as_str().expect("a name");
        assert!(table.contains(name), "{table}");
    }
    let ended = site.run(&["simulate", "holland", "--experiment", "policy", "--out", "x"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("policies"), "{ended:?}");
}

#[test]
fn a_folder_that_can_not_be_made_is_told_before_anything_runs() {
    let site = Site::new();
    let file = site.path("file");
    fs::write(&file, "").expect("there is room");
    let at = file.join("below").display().to_string();
    let ended = site.run(&["simulate", "holland", "--scale", "1", "--out", &at]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--out"), "{ended:?}");
    assert!(ended.stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
    let ended = site.run(&["simulate", "holland"]);
    assert_eq!(ended.code, Some(2), "neither --out nor --list: {ended:?}");
}
