//! What may happen to a volume's writes, and ECI-Cache's rule for it.
//!
//! The joint choice of size and policy is `urd`'s.

use crate::named;
use crate::reuse::Mix;

named! {
    /// What happens to a volume's writes; those that write the SSD least come first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum WritePolicy {
        /// Nothing of the volume is cached.
        #[default]
        Bypass = "bypass",
        /// Write-around: the written block is dropped, only reads fill the cache.
        ReadOnly = "read-only",
        /// Write-through: cached, and written to the backend before it is acknowledged to the guest.
        Through = "write-through",
        /// Write-back: cached, dirty, and written to the backend later.
        Back = "write-back",
    }
}

impl WritePolicy {
    /// ECI-Cache's rule: a volume whose reuses are writes by more than `threshold` (0 to 1) has its
    /// writes kept out of the cache, any other one is written back.
    pub fn by_threshold(mix: &Mix, threshold: f64) -> Self {
        if mix.written_part() > threshold { Self::ReadOnly } else { Self::Back }
    }
}
