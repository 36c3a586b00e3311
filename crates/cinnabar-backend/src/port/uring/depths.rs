//! How much of each file the ring has at a time.
//!
//! A file whose device hangs must not take what others need: the kernel starts a thread for each
//! I/O that a full device queue makes wait, up to a number that is set once, so all files' parts
//! together stay below that number. A cache device does the work of all volumes: it has its whole
//! depth, however many they are.

/// I/Os of all files in the ring together, as long as each has at least [`DEPTH_MIN`].
const TOTAL: usize = 4096;
/// I/Os of one file at a time, at least.
const DEPTH_MIN: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Depths {
    each: usize,
    /// What the kernel was told.
    threads: usize,
}

impl Depths {
    /// There are so many files now, and cache devices with so many I/Os among them. Gives the number
    /// of threads to tell the kernel, if it grew.
    pub(super) fn share_among(&mut self, files: usize, of_caches: usize) -> Option<u32> {
        let files = files.max(1);
        self.each = (TOTAL / files).max(DEPTH_MIN);
        let threads = TOTAL.max(files * DEPTH_MIN) + of_caches;
        let grew = threads > self.threads;
        self.threads = self.threads.max(threads);
        grew.then_some(threads as u32)
    }

    /// I/Os in the ring of a file that may have `max`.
    pub(super) fn of(&self, max: usize) -> usize {
        self.each.min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::FILES_MAX;

    #[test]
    fn all_parts_together_stay_within_the_threads() {
        let mut depths = Depths::default();
        let mut threads = 0;
        for files in 1..=FILES_MAX as usize {
            threads = depths.share_among(files, 256).map_or(threads, |told| told as usize);
            assert!((files - 1) * depths.of(256) + 256 <= threads, "{files} files");
            assert!(depths.of(256) >= DEPTH_MIN);
        }
        assert_eq!(depths.share_among(2, 0), None, "it was told more before");
        assert_eq!(depths.of(256), 256);
        assert_eq!(depths.of(8), 8);
    }
}
