//! A bound on what is logged of errors that may come by the thousand.

use cinnabar_engine::units::Instant;

/// See the module.
#[derive(Default)]
pub(super) struct Warnings {
    second: u64,
    count: u32,
}

impl Warnings {
    const PER_SECOND: u32 = 10;

    /// Whether one more may be logged now.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            *self = Self { second, count: 0 };
        }
        self.count += 1;
        self.count <= Self::PER_SECOND
    }
}
