//! The guide's tables of keys are made from the code, and the defaults in them are those of the code.

use super::diff::{LIVE_MANAGER_KEYS, LIVE_VOLUME_KEYS};
use super::section_keys::{CacheKeys, ControlKeys, GroupKeys, ManagerKeys, Row, TlsKeys};
use super::tests::parse;
use super::{Config, Lines, VolumeInput};
use cinnabar_text::guide::assert_generated;
use clap::{Arg, ArgAction, Args, Command};
use std::fmt::Write as _;

/// A section: how its part of the page is called, its header, and what its keys need beside them.
type Section = (&'static str, &'static str, &'static [&'static str]);

const CACHE: Section = (
    "cache",
    "[cache]",
    &["device = \"c\"", "size = \"1GiB\"", "write_log = \"w\"", "write_memory = \"/dev/shm/m\""],
);
const CONTROL: Section = ("control", "[control]", &["http = \"127.0.0.1:1\"", "api = true"]);
const TLS: Section = ("tls", "[tls]", &["certificate = \"c\"", "key = \"k\""]);
const MANAGER: Section = ("manager", "[manager]", &[]);
const GROUP: Section = ("qos_group", "[[qos_group]]", &["name = \"g\"", "depth = 1"]);
const VOLUME: Section = (
    "volume",
    "[[volume]]",
    &[
        "name = \"v\"",
        "backend = \"file:v\"",
        "migrate_peer = \"http://a:1\"",
        "migrate_token_file = \"t\"",
    ],
);

/// A file with a section and, after what that needs, the line of one of its keys.
fn with((part, header, needs): Section, key: &str, line: &str) -> Config {
    let needs = needs.iter().filter(|need| !need.starts_with(&format!("{key} ")));
    let body: String = needs.map(|need| format!("{need}\n")).chain([line.to_owned()]).collect();
    let cache = if part == "cache" { "" } else { "[cache]\ndevice = \"c\"\n" };
    let config = parse(&format!("{cache}{header}\n{body}"));
    let config = config.unwrap_or_else(|error| panic!("{key}: {error}"));
    Config { lines: Lines::default(), ..config }
}

/// The row of a key. A default that is not in parentheses is what counts without the key.
fn row(
    section: Section,
    live: &[&str],
    (key, kind, default, text): &(&str, &str, String, String),
) -> String {
    let shown = if default.starts_with('(') {
        default.clone()
    } else {
        let quoted = ["string", "quantity"].contains(kind);
        let literal = if quoted { format!("\"{default}\"") } else { default.clone() };
        let written = with(section, key, &format!("{key} = {literal}\n"));
        assert_eq!(written, with(section, key, ""), "the default of {key}");
        format!("`{literal}`")
    };
    let mark = if live.contains(key) { " \u{2020}" } else { "" };
    format!("| `{key}`{mark} | {shown} | {} |\n", text.trim())
}

fn table(section: Section, live: &[&str], rows: &[(&str, &str, String, String)]) {
    let rows: String = rows.iter().map(|one| row(section, live, one)).collect();
    let text = format!("| key | default | meaning |\n|---|---|---|\n{rows}");
    assert_generated(env!("CARGO_MANIFEST_DIR"), "configuration.md", section.0, &text);
}

/// What the command line says of a flag of `volume add`.
fn of_flag(arg: &Arg) -> (&str, &str, String, String) {
    let help = arg.get_long_help().or(arg.get_help()).expect("it has help").to_string();
    let (short, rest) = help.split_once("[default: ").unwrap_or((&help, "(required)]"));
    let (default, more) = rest.split_once(']').expect("it is closed");
    let prose = default.contains(' ') || ["none", "any"].contains(&default);
    let (kind, default) = match arg.get_action() {
        ArgAction::SetTrue => ("flag", "false".to_owned()),
        _ if default.starts_with('(') => ("string", default.to_owned()),
        _ if prose => ("string", format!("({default})")),
        _ if arg.get_value_parser().type_id() == std::any::TypeId::of::<u64>() => {
            ("number", default.to_owned())
        }
        _ => ("string", default.to_owned()),
    };
    let mut text = format!("{}.", short.trim());
    for value in arg.get_possible_values() {
        let Some(help) = value.get_help() else {
            continue;
        };
        write!(text, " `\"{}\"`: {help}.", value.get_name()).expect("a string takes all");
    }
    write!(text, " {}", more.trim()).expect("a string takes all");
    (arg.get_id().as_str(), kind, default, linked(&text.replace('\n', " ")))
}

/// Pages of the guide as links.
fn linked(text: &str) -> String {
    let word = |word: &str| {
        let Some((before, page)) = word.split_once("docs/guide/") else {
            return word.to_owned();
        };
        let target = page.trim_end_matches(['.', ')', ';']);
        let name = target.split('#').next().unwrap_or(target);
        format!("{before}[{name}]({target}){}", &page[target.len()..])
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_in_the_guide_are_generated() {
    let own = |rows: &[Row]| -> Vec<_> {
        rows.iter()
            .map(|(key, kind, default, text)| (*key, *kind, (*default).into(), (*text).into()))
            .collect()
    };
    table(CACHE, &["size"], &own(CacheKeys::ROWS));
    table(CONTROL, &["stop_wait_s"], &own(ControlKeys::ROWS));
    table(TLS, &[], &own(TlsKeys::ROWS));
    table(MANAGER, &LIVE_MANAGER_KEYS, &own(ManagerKeys::ROWS));
    table(GROUP, &[], &own(GroupKeys::ROWS));
    let add = VolumeInput::augment_args(Command::new("add"));
    table(VOLUME, LIVE_VOLUME_KEYS, &add.get_arguments().map(of_flag).collect::<Vec<_>>());
}
