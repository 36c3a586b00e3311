//! Values of flags as people write them: sizes, times, names.
//!
//! They are value parsers of flags: what they say goes behind clap's complaint.

use cinnabar_engine::{Admission, Endurance};
use cinnabar_text::{parse_duration, parse_size};
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A trace to read: a path, or `-` for stdin by the name under which it is opened like any file.
pub(super) fn trace_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
        .map(|path| if path == Path::new("-") { PathBuf::from("/dev/stdin") } else { path })
}

/// A size in bytes: `512MiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|(message, hint)| format!("{message}; {hint}"))
}

/// A time: `24h`, `90min`, `1.5s`, `30ms`, `100us`, `400ns`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|(message, hint)| format!("{message}; {hint}"))
}

/// A way of admission: `closed`, `thrifty`, `probation`, `open`.
pub(super) fn admission(text: &str) -> Result<Admission, String> {
    Admission::named(text)
        .ok_or_else(|| format!("there are {}", Admission::ALL.map(Admission::name).join(", ")))
}

/// A price of flash writes: `hits`, `balanced`, `save`.
pub(super) fn endurance(text: &str) -> Result<Endurance, String> {
    Endurance::named(text)
        .ok_or_else(|| format!("there are {}", Endurance::ALL.map(Endurance::name).join(", ")))
}
