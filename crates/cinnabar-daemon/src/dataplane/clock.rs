//! The data plane's clock: nanoseconds since it started, on the monotonic clock.
//!
//! Called once or twice a turn by the loop; the engine, the NBD server and the models get their
//! times from here.

use cinnabar_engine::units::Instant;

pub(super) use cinnabar_driver::io_tracker::after;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// When it was 0.
    pub(super) const fn origin(&self) -> std::time::Instant {
        self.origin
    }

    pub(super) fn now(&self) -> Instant {
        Instant(self.origin.elapsed().as_nanos() as u64)
    }
}
