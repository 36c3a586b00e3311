//! Values of flags as people write them: sizes, times, names.
//!
//! They are value parsers of flags: what they say goes behind clap's complaint.

pub(super) use cinnabar_text::cli::parse::{duration, size};

use cinnabar_engine::{Admission, Endurance};
use clap::builder::{PathBufValueParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// A trace to read: a path, or `-` for stdin by the name under which it is opened like any file.
pub(super) fn trace_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
        .map(|path| if path == Path::new("-") { PathBuf::from("/dev/stdin") } else { path })
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
