//! How long a cache device, or a write log, may be silent while it is opened.

use super::replace::SILENCE_MAX;
pub(super) use cinnabar_backend::disk::in_time;
use std::time::Duration;

/// The longest silence of a cache device with this time-out.
pub(super) const fn silence_max(timeout: Duration) -> Duration {
    if timeout.is_zero() { SILENCE_MAX } else { timeout }
}
