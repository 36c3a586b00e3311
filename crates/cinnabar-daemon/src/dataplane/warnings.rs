//! A bound on what is logged of errors that may come by the thousand.

use cinnabar_engine::units::Instant;
use rustix::io::Errno;

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

/// What a failed I/O is called. A guest, or its front end, may cut its memory short at any time: then the kernel
/// finds no memory, and the disk is not to blame.
pub(super) fn io_failed(errno: Errno) -> &'static str {
    if errno == Errno::FAULT {
        "I/O was not done: the memory of a guest's request is gone, nothing is wrong with the disk"
    } else {
        "I/O failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that had cut its memory short made the log speak of a failing cache device.
    #[test]
    fn a_disk_is_not_blamed_for_memory_that_is_gone() {
        assert!(io_failed(Errno::FAULT).contains("nothing is wrong with the disk"));
        assert_eq!(io_failed(Errno::IO), "I/O failed");
    }
}
