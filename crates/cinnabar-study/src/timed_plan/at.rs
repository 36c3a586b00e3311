//! Where in a plan something stands.

use super::keys::Key;
use super::value::Literal;
use crate::timed::Config;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::Source;

/// The plan's text, for errors with lines.
#[derive(Clone, Copy)]
pub(super) struct At<'s>(pub(super) Source<'s>);

impl At<'_> {
    pub(super) fn error(
        self,
        line: Option<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> ConfigError {
        self.0.error(line, message, hint)
    }

    pub(super) fn set(
        self,
        key: &Key,
        config: &mut Config,
        value: &Literal,
        line: usize,
    ) -> Result<(), ConfigError> {
        key.set(config, value).map_err(|(message, hint)| {
            self.error(Some(line), format!("{}: {message}", key.name), hint)
        })
    }
}
