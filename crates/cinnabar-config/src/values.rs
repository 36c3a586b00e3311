//! Values of the file's keys: a size, a number within bounds, one of a few names.

use super::units::parse_setting;
use cinnabar_text::toml_reader::{Located, Source};
use cinnabar_text::{ConfigError, suggest};

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
