//! A setting of a timed simulation that makes no sense.

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ConfigError {
    /// The field of [`Config`](super::Config), for example `flash_policy`.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// What would help.
    pub hint: String,
}
