//! Values of the file's keys: a size, a number within bounds, one of a few names, a path.

use super::error::SettingError;
use super::units::parse_setting;
use cinnabar_text::toml_reader::{Located, Source};
use cinnabar_text::{ConfigError, suggest};
use std::path::{Component, Path, PathBuf};

/// A size or a part of the cache, as bytes.
pub(super) fn quantity(
    source: Source<'_>,
    key: &str,
    text: &Located<String>,
) -> Result<u64, ConfigError> {
    parse_setting(&text.value)
        .map_err(|(message, hint)| source.error(Some(text.line), format!("{key}: {message}"), hint))
}

/// A number within these bounds.
pub(super) fn up_to(
    source: Source<'_>,
    key: &str,
    number: &Located<u64>,
    min: u64,
    max: u64,
) -> Result<u64, ConfigError> {
    if (min..=max).contains(&number.value) {
        return Ok(number.value);
    }
    let message = format!("{key}: {} is not possible", number.value);
    Err(source.error(Some(number.line), message, format!("choose {min} to {max}")))
}

/// One of these values, by name.
pub(super) fn choice_of<T: Copy>(
    source: Source<'_>,
    key: &str,
    text: &Located<String>,
    all: &[(&str, T)],
) -> Result<T, ConfigError> {
    all.iter().find(|(name, _)| *name == text.value).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let message = format!("{key}: unknown value {:?}", text.value);
        source.error(Some(text.line), message, suggest(&text.value, &names))
    })
}

/// Without `.` components; `..` stays, for it can follow a symbolic link.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// A size that is a setting, or what it is without one.
///
/// # Errors
/// A text that is no size.
pub(super) fn size_or(
    key: &'static str,
    text: Option<&str>,
    default: u64,
) -> Result<u64, SettingError> {
    text.map_or(Ok(default), parse_setting)
        .map_err(|(message, hint)| SettingError::new(key, format!("{key}: {message}"), hint))
}
