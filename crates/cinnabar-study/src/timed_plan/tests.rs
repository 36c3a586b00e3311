//! Plans read right, and wrong ones refused with the line to blame.
//!
//! Part of the module's unit tests.

use super::keys::{KEYS, MADE_UP};
use super::read::parse;
use super::*;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::Source;
use std::path::Path;

fn plan(text: &str, settings: &[&str]) -> Result<Plan, ConfigError> {
    let settings: Vec<Setting> =
        settings.iter().map(|text| text.parse().expect("a setting")).collect();
    parse(Source { file: Path::new("p.toml"), text }, &settings)
}

fn checked(text: &str, settings: &[&str]) -> Result<Vec<Point>, ConfigError> {
    let plan = plan(text, settings)?;
    let points = plan.points();
    check(&plan, &points, None, 8 << 30).map(|()| points)
}

#[test]
fn an_empty_plan_is_the_default() {
    let points = checked("", &[]).expect("everything has a default");
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].config, Config::default());
    assert_eq!(points[0].name, "base");
}

/// A field without a key could not be set, and would be missing from what tells points apart.
#[test]
fn each_setting_has_one_key() {
    let shown = format!("{:#?}", Config::default());
    let name = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let depth = line.len() - line.trim_start().len();
        // Those of the timings are one level deeper.
        let is_field = (depth == 4 && name != "timings") || depth == 8;
        (is_field && !value.is_empty()).then(|| name.to_owned())
    };
    let mut fields: Vec<String> = shown.lines().filter_map(name).collect();
    let mut known: Vec<String> = KEYS.iter().map(|key| key.field.to_owned()).collect();
    fields.sort_unstable();
    known.sort_unstable();
    assert_eq!(known, fields);
    let mut names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KEYS.len());
    assert!(MADE_UP.iter().all(|name| keys::find(name).is_some()));
}

/// What is shown of a setting can be written into a plan, and means the same there.
#[test]
fn what_is_shown_can_be_set() {
    let other = "seed = 7\nscale = 64\n[hosts]\ncount = 3\nthreads = 5\narchitecture = \"unified\"\n\
        prefetch = \"16KiB\"\nrestart = \"cold-ram-too\"\n[ram]\nsize = \"1GiB\"\npolicy = \"n\"\n\
        read = \"1.5us\"\n[flash]\nsize = \"1536MiB\"\npolicy = \"p30\"\nservice = 2\n\
        frames = \"ram-first\"\n[link]\nduplex = \"half\"\nshared = true\n[workload]\nwrites = \"12.5%\"\n";
    let changed = plan(other, &[]).expect("it is fine").base;
    for config in [Config::default(), changed] {
        let mut again = Config::default();
        for key in KEYS {
            let text = key.show(&config);
            let set = key.set(&mut again, &Literal::of_flag(&text));
            set.unwrap_or_else(|(message, _)| panic!("{}: {message}", key.name));
        }
        assert_eq!(again, config);
    }
    assert_ne!(changed, Config::default());
}

#[test]
fn axes_are_crossed_and_keys_go_in_step() {
    let text = "[[axis]]\nkey = \"ram.policy\"\nvalues = [\"a\", \"p1\"]\n\
        [[axis]]\nkeys = [\"flash.size\", \"hosts.threads\"]\nvalues = [[\"0\", 1], [\"1GiB\", 2]]\n";
    let names: Vec<String> =
        checked(text, &[]).expect("fine").into_iter().map(|point| point.name).collect();
    let expected = [
        "ram.policy=a flash.size=0 hosts.threads=1",
        "ram.policy=a flash.size=1GiB hosts.threads=2",
        "ram.policy=p1 flash.size=0 hosts.threads=1",
        "ram.policy=p1 flash.size=1GiB hosts.threads=2",
    ];
    assert_eq!(names, expected);
    let points = checked(text, &["flash.size=2GiB", "ram.policy=s"]).expect("fine");
    let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(names, ["hosts.threads=1", "hosts.threads=2"], "what is set is no longer varied");
    assert!(points.iter().all(|point| point.config.flash_blocks == 2 << 18));
}

/// A plan, the line of what is wrong, and words of the message and of the hint.
const BAD: &[(&str, Option<usize>, &str, &str)] = &[
    ("[flash\n", Some(1), "", "TOML"),
    ("[flash]\nsize = \"1GiB\"\nsize = \"2GiB\"\n", Some(3), "duplicate key", "TOML"),
    ("[flash]\nsise = \"1GiB\"\n", Some(2), "unknown key \"sise\" in [flash]", "\"size\""),
    ("\n[flsh]\n", Some(2), "unknown key \"flsh\"", "\"flash\""),
    ("flash = 3\n", Some(1), "must be a table", "[section]"),
    ("[flash]\nsize = 64\n", Some(2), "flash.size: 64 has no unit", "64GiB"),
    ("[flash]\nsize = \"64\"\n", Some(2), "flash.size: \"64\" has no unit", "64GiB"),
    ("[flash]\nread = 88\n", Some(2), "flash.read: 88 has no unit", "88us"),
    ("[flash]\nread = \"88 parsec\"\n", Some(2), "not a time", "88us"),
    ("[flash]\nsize = [\"1GiB\"]\n", Some(2), "a single value", "string"),
    ("[flash]\nsize = \"99EiB\"\n", Some(2), "flash.size", "unit"),
    ("[flash]\nsize = \"900TiB\"\n", Some(2), "in blocks of 4 KiB", "range"),
    ("[filer]\nslow_read = \"1h\"\n", Some(2), "in nanoseconds", "range"),
    ("[ram]\npolicy = \"p\"\n", Some(2), "not a write policy", "p5"),
    ("[ram]\npolicy = \"p0\"\n", Some(2), "ram.policy", "range"),
    ("[hosts]\narchitecture = \"lookasid\"\n", Some(2), "\"lookasid\"", "\"lookaside\""),
    ("[hosts]\ncount = 0\n", Some(2), "hosts.count", "range"),
    ("[hosts]\ncount = -1\n", Some(2), "not a whole number", "8"),
    ("[workload]\nwrites = 30\n", Some(2), "not a share", "0.3"),
    ("[workload]\nwrites = \"130%\"\n", Some(2), "not a share", "20%"),
    ("[workload]\nshared = 1\n", Some(2), "not true or false", "quotes"),
    ("[workload]\npace = \"threads\"\n", Some(2), "without a trace", "trace ="),
    ("[workload]\ntrace = \"x\"\npace = \"slow\"\n", Some(3), "\"slow\"", "threads"),
    ("[workload]\ntrace = \"x\"\nwrites = 0.3\n", Some(3), "means nothing with a trace", "leave"),
    ("scale = 64\n[workload]\ntrace = \"x\"\n", Some(1), "scale means nothing", "leave"),
    (
        "[hosts]\narchitecture = \"lookaside\"\n[flash]\npolicy = \"s\"\n",
        Some(4),
        "flash.policy: the lookaside architecture",
        "leave flash.policy out",
    ),
    (
        "[flash]\npolicy = \"s\"\n[[axis]]\nkey = \"flash.size\"\nvalues = [\"1GiB\",\n\"0\"]\n",
        Some(2),
        "there is no flash",
        "give flash.size a size",
    ),
    (
        "[hosts]\narchitecture = \"unified\"\n[flash]\nplacement = \"server\"\n",
        Some(4),
        "flash.placement",
        "client",
    ),
    (
        "[filer]\nsize = \"1GiB\"\n[workload]\nworking_set = \"2GiB\"\n",
        Some(4),
        "workload.working_set",
        "filer.size",
    ),
    ("[[axis]]\nvalues = [1]\n", Some(1), "needs either key or keys", "flash.size"),
    ("[[axis]]\nkey = \"flash.size\"\n", Some(1), "has no values", "values ="),
    ("[[axis]]\nkey = \"flash.size\"\nvalues = []\n", Some(1), "no value at all", "name one"),
    ("[[axis]]\nkey = \"flash.size\"\nvalues = 3\n", Some(3), "a list of values", "32GiB"),
    (
        "[[axis]]\nkey = \"flash.sise\"\nvalues = [\"1GiB\"]\n",
        Some(2),
        "unknown key \"flash.sise\" of an axis",
        "\"flash.size\"",
    ),
    ("[[axis]]\nkey = \"workload.trace\"\nvalues = [\"x\"]\n", Some(2), "can't be varied", "--set"),
    (
        "[[axis]]\nkey = \"flash.size\"\nvalues = [\n\"1GiB\",\n2]\n",
        Some(5),
        "flash.size: 2 has no unit",
        "64GiB",
    ),
    (
        "[[axis]]\nkey = \"flash.size\"\nvalues = [\"1GiB\",\n\"1024MiB\"]\n",
        Some(4),
        "1GiB is there twice",
        "leave one",
    ),
    (
        "[[axis]]\nkeys = [\"ram.size\", \"flash.size\"]\nvalues = [[\"1GiB\", \"2GiB\"],\n[\"1GiB\"]]\n",
        Some(4),
        "1 values for 2 keys",
        "[[1, 2]",
    ),
    (
        "[[axis]]\nkey = \"seed\"\nvalues = [1]\n[[axis]]\nkey = \"seed\"\nvalues = [2]\n",
        Some(4),
        "seed is varied twice",
        "leave one",
    ),
    ("[[axis]]\nkeys = [\"seed\", \"seed\"]\nvalues = [[1, 2]]\n", Some(1), "twice", "leave one"),
    (
        "[hosts]\ncount = 30\n[filer]\nsize = \"1TiB\"\n[workload]\nworking_set = \"1GiB\"\n",
        Some(4),
        "simulating it takes about 6",
        "--memory",
    ),
];

#[test]
fn what_is_wrong_is_told_with_its_line_and_a_hint() {
    for (text, line, message, hint) in BAD {
        let error = checked(text, &[]).map(|points| points.len()).expect_err(text);
        assert_eq!(error.line, *line, "{text}: {error}");
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(error.hint.contains(hint), "{text}: {error}: {}", error.hint);
        assert!(!error.message.contains('\n') && !error.hint.contains('\n'), "{error}");
    }
}

#[test]
fn what_a_trace_makes_void_does_not_stand_in_its_way() {
    let text = "[hosts]\ncount = 64\n[workload]\ntrace = \"x\"\n";
    let plan = plan(text, &[]).expect("64 working sets of 60 GiB would not fit 1 TiB");
    let survey = Survey { ios: 100, blocks: 100, ..Survey::default() };
    check(&plan, &plan.points(), Some(&survey), 64 << 30).expect("there are none");
    assert!(plan.keys().all(|key| !MADE_UP.contains(&key.name)));
}

#[test]
fn more_points_than_anybody_wants_are_refused() {
    let axis = |key: &str, values: usize| {
        let values: Vec<String> = (1..=values).map(|value| value.to_string()).collect();
        format!("[[axis]]\nkey = \"{key}\"\nvalues = [{}]\n", values.join(", "))
    };
    let most = axis("seed", 100) + &axis("hosts.threads", 100);
    assert_eq!(plan(&most, &[]).expect("10,000 are possible").count(), Some(POINTS_MAX));
    let more = axis("seed", 101) + &axis("hosts.threads", 100);
    let error = plan(&more, &[]).expect_err("one more is not");
    assert!(error.message.contains("10100 points, at most 10000"), "{error}");
    assert_eq!(error.line, Some(6), "{error}");
    let keys = [
        "seed",
        "hosts.threads",
        "hosts.syncer_writes",
        "hosts.background_writes",
        "workload.operation_depth",
    ];
    let all: String = keys.iter().map(|key| axis(key, POINTS_MAX)).collect();
    let error = plan(&all, &[]).expect_err("10^20 can't even be counted");
    assert!(error.message.contains("more points than can be counted"), "{error}");
    let error = plan(&axis("seed", POINTS_MAX + 1), &[]).expect_err("one more is not");
    assert!(error.message.contains("10001 values"), "{error}");
}

#[test]
fn a_flag_is_blamed_for_what_it_says() {
    let error = checked("[hosts]\narchitecture = \"lookaside\"\n", &["flash.policy=a"])
        .map(|points| points.len())
        .expect_err("lookaside has no policy of flash");
    assert_eq!(error.line, None);
    assert!(error.message.starts_with("--set: flash.policy"), "{error}");
    let setting = |text: &str| text.parse::<Setting>().expect_err(text);
    assert!(setting("flash.sise=1GiB").contains("did you mean \"flash.size\"?"));
    assert!(setting("flash.size").contains("key=value"));
    assert!(setting("flash.size=64").contains("64 has no unit"));
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn shipped_plans_are_fine() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("plans")).expect("plans are shipped") {
        let path = entry.expect("it can be read").path();
        let plan = load(&path, &[]).unwrap_or_else(|error| panic!("{error}\n{}", error.hint));
        let points = plan.points();
        let survey = plan.trace.as_ref().map(|_| Survey::default());
        check(&plan, &points, survey.as_ref(), 4 << 30)
            .unwrap_or_else(|error| panic!("{error}\n{}", error.hint));
        let text = std::fs::read_to_string(&path).expect("it was read");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        assert!(text.contains(&format!("cinnabar-lab simulate timed plans/{name}")), "{name}");
        assert!(plan.title.is_some(), "{name}");
        names.push(name);
    }
    assert!(names.len() >= 12, "{names:?}");
    let base = load(&root().join("plans/base.toml"), &[]).expect("it is shipped");
    let defaults = Config { scale: 64, flash_policy: base.base.flash_policy, ..Config::default() };
    assert_eq!(base.base, defaults, "the base plan says every default");
    assert!(base.origins.iter().all(|origin| *origin != Origin::Default), "and leaves out none");
}

/// The guide's tables have each key, its default and what its values are.
#[test]
fn the_guide_has_every_key_with_its_default() {
    let path = root().join("docs/guide/timed-simulator.md");
    let guide = std::fs::read_to_string(path).expect("the guide is there");
    let default = Config::default();
    let mut rows: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `")).collect();
    for key in KEYS {
        let shown = match key.show(&default).as_str() {
            "-" => "none".to_owned(),
            text => format!("`{text}`"),
        };
        let start = format!("| `{}` | {shown} | {} | ", key.name, key.unit().replace('"', "`"));
        let found = rows.iter().position(|row| row.starts_with(&start));
        rows.remove(found.unwrap_or_else(|| panic!("no row begins with {start}")));
    }
    let others = ["title", "workload.trace", "workload.pace"];
    rows.retain(|row| !others.iter().any(|name| row.starts_with(&format!("| `{name}` |"))));
    let unknown =
        rows.iter().find(|row| row.split('`').nth(1).is_some_and(|name| name.contains('.')));
    assert_eq!(unknown, None, "a key that there is not");
}
