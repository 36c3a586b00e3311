//! Values of flags as people write them: sizes and times.
//!
//! They are value parsers of flags: what they say goes behind clap's complaint.

use crate::{parse_duration, parse_size};
use std::time::Duration;

/// A size in bytes: `512MiB`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|(message, hint)| format!("{message}; {hint}"))
}

/// A time: `24h`, `90min`, `1.5s`, `30ms`, `100us`, `400ns`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|(message, hint)| format!("{message}; {hint}"))
}
