//! Presets in files: `sim:@disk.toml:file:vm1.raw`.
//!
//! # The format
//! TOML. `version` comes with every file; the keys of `[sim]` are those that can stand behind
//! `sim:`, with the same values, and what is not there costs nothing. Nothing else is allowed.
//!
//! ```toml
//! version = 1
//!
//! [sim]
//! read = "percentiles/50=88us/99=95us/100=2ms"
//! write = "21us"
//! depth = 32
//! bandwidth = "500MB"
//! ```

use crate::model::preset;
use crate::model::settings::{SettingError, SimSpec};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The only version that is read.
pub const VERSION: i64 = 1;
/// Largest file.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// Why a file is no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("preset file {path:?}: {kind}")]
pub struct PresetFileError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub kind: PresetFileErrorKind,
}

/// See [`PresetFileError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetFileErrorKind {
    /// No path.
    #[error("the path is missing after \"@\"")]
    Missing,
    /// A relative path where it is not known what it is relative to.
    #[error("a relative path is taken on command lines only; write the whole path")]
    Relative,
    /// It isn't there, or whatever the kernel says.
    #[error("{0} (a path ends at the first comma or colon)")]
    Open(rustix::io::Errno),
    /// It can't be read to its end.
    #[error("it can't be read: {0}")]
    Read(std::io::ErrorKind),
    /// A folder, a pipe, a device.
    #[error("it is not a regular file")]
    WrongKind,
    /// Too large.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    Size,
    /// Not UTF-8, or not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Not the version that is known.
    #[error("its version is {0}, but only {VERSION} is known")]
    Version(String),
    /// A key that has no place there.
    #[error("{0:?} has no place in it (known: version, [sim])")]
    Key(String),
    /// No `[sim]`.
    #[error("the table [sim] is missing")]
    NoTable,
    /// A value of a kind that no key has.
    #[error("the value of {0:?} is neither text nor a number")]
    Value(String),
    /// A setting, as behind `sim:`.
    #[error(transparent)]
    Setting(Box<SettingError>),
}

pub(crate) fn read(path: &Path) -> Result<SimSpec, PresetFileError> {
    let wrong = |kind| PresetFileError { path: path.into(), kind };
    let bytes = read_bytes(path).map_err(wrong)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        wrong(syntax(good, "it is not UTF-8"))
    })?;
    parse(&text).map_err(wrong)
}

/// Looks before it leaps: opening a pipe would wait for its other end, a read of a device may not end.
fn read_bytes(path: &Path) -> Result<Vec<u8>, PresetFileErrorKind> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(PresetFileErrorKind::Open)?;
    let stat = rustix::fs::fstat(&fd).map_err(PresetFileErrorKind::Open)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(PresetFileErrorKind::WrongKind);
    }
    let mut bytes = Vec::new();
    let read = File::from(fd).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| PresetFileErrorKind::Read(error.kind()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(PresetFileErrorKind::Size);
    }
    Ok(bytes)
}

fn parse(text: &str) -> Result<SimSpec, PresetFileErrorKind> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        syntax(&text.as_bytes()[..at], error.message())
    })?;
    // Before anything else: a later version may have other keys.
    match table.get("version") {
        Some(toml::Value::Integer(VERSION)) => {}
        Some(other) => return Err(PresetFileErrorKind::Version(other.to_string())),
        None => return Err(PresetFileErrorKind::Version("not given".into())),
    }
    if let Some(key) = table.keys().find(|key| !["version", "sim"].contains(&key.as_str())) {
        return Err(PresetFileErrorKind::Key(key.clone()));
    }
    let Some(toml::Value::Table(settings)) = table.get("sim") else {
        return Err(PresetFileErrorKind::NoTable);
    };
    let mut spec = preset::nothing();
    // In the order of the alphabet: "errors" before the two that are more exact.
    for (key, value) in settings {
        let value = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            _ => return Err(PresetFileErrorKind::Value(key.clone())),
        };
        let wrong = |error| PresetFileErrorKind::Setting(Box::new(error));
        spec.set(key, &value).map_err(wrong)?;
    }
    Ok(spec)
}

/// An error behind `good`.
fn syntax(good: &[u8], message: &str) -> PresetFileErrorKind {
    let line = good.split(|&byte| byte == b'\n').count();
    // One line, whatever the parser says.
    let message = message.lines().collect::<Vec<_>>().join(", ");
    PresetFileErrorKind::Syntax { line, message }
}

#[cfg(test)]
mod tests;
