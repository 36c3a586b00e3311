//! How a command fails: one line, a hint, an exit code.

use crate::ConfigError;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code: 1 at run time, 2 usage or configuration. 0 says nothing at all.
    pub code: u8,
    /// One line.
    pub message: String,
    /// What would help; may be empty.
    pub hint: String,
}

impl Failure {
    /// A failure at run time.
    pub fn at_run_time(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 1, message: message.into(), hint: hint.into() }
    }

    /// A mistake in usage or configuration.
    pub fn of_usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 2, message: message.into(), hint: hint.into() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::of_usage(error.to_string(), error.hint)
    }
}
