//! What is wrong with a setting, and what would help.

/// A problem with one setting, before it is known where that was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingError {
    pub key: &'static str,
    /// One line.
    pub message: String,
    /// What would help, one line.
    pub hint: String,
}

impl SettingError {
    /// A problem with `key`.
    pub fn new(key: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key, message: message.into(), hint: hint.into() }
    }
}

impl From<SettingError> for cinnabar_text::Failure {
    fn from(error: SettingError) -> Self {
        Self::of_usage(error.to_string(), error.hint)
    }
}
