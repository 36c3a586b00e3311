//! What may happen to a volume's writes, and ECI-Cache's rule for it.
//!
//! The joint choice of size and policy is `urd`'s.

use crate::reuse::Mix;
use std::fmt;

/// What happens to a volume's writes; those that write the SSD least come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// Nothing of the volume is cached.
    #[default]
    Bypass,
    /// Write-around: the written block is dropped, only reads fill the cache.
    ReadOnly,
    /// Write-through: cached, and written to the backend before it is acknowledged to the guest.
    Through,
    /// Write-back: cached, dirty, and written to the backend later.
    Back,
}

impl WritePolicy {
    /// All of them, those that write the SSD least first.
    pub const ALL: [Self; 4] = [Self::Bypass, Self::ReadOnly, Self::Through, Self::Back];

    /// ECI-Cache's rule: a volume whose reuses are writes by more than `threshold` (0 to 1) has its
    /// writes kept out of the cache, any other one is written back.
    pub fn by_threshold(mix: &Mix, threshold: f64) -> Self {
        if mix.written_part() > threshold { Self::ReadOnly } else { Self::Back }
    }

    /// Its name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::ReadOnly => "read-only",
            Self::Through => "write-through",
            Self::Back => "write-back",
        }
    }
}

impl fmt::Display for WritePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
