//! How a command fails: one line, a hint, an exit code.

use crate::config::{ConfigError, SettingError};
use std::io::Write;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Exit code: 1 at run time, 2 usage or configuration. 0 says nothing at all.
    pub(super) code: u8,
    /// One line.
    pub(super) message: String,
    /// What would help; may be empty.
    pub(super) hint: String,
}

impl Failure {
    /// A failure at run time.
    pub(super) fn at_run_time(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 1, message: message.into(), hint: hint.into() }
    }

    /// A mistake in usage or configuration.
    pub(super) fn of_usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 2, message: message.into(), hint: hint.into() }
    }

    /// Says so on stderr.
    pub(super) fn print(&self) {
        if self.code == 0 {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // If stderr is gone there is nobody to tell.
        let _gone = writeln!(stderr, "error: {}", self.message);
        if !self.hint.is_empty() {
            let _gone = writeln!(stderr, "hint: {}", self.hint);
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::of_usage(error.to_string(), error.hint)
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::of_usage(error.to_string(), error.hint)
    }
}
