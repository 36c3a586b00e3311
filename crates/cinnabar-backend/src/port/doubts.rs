//! What is to be dropped after a server has restarted, in a bounded number of steps.
//!
//! Drivers bring their engines an invalidation for each range.

use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};

/// Invalidations of one disk under way that are kept apart: as many as one restart brings.
const APART_MAX: usize = 4096;
/// All of a disk, however large it is: an engine takes as much of it as there is.
const ALL: ByteSpan = ByteSpan::new(0, VOLUME_BLOCKS_MAX * BLOCK_BYTES);

/// What to invalidate for `ranges` that a server may have lost while so many invalidations are still
/// under way for its earlier restarts. A server that restarts again and again while they wait for a
/// silent cache device, say, brings one a time once there are many.
pub fn doubts(ranges: &[ByteSpan], under_way: usize) -> &[ByteSpan] {
    if under_way + ranges.len() <= APART_MAX { ranges } else { &[ALL] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_become_one_that_covers_them() {
        let ranges: Vec<_> = (0..1000).map(|n| ByteSpan::new(n * 8192, 4096)).collect();
        assert_eq!(doubts(&ranges, 3096), &ranges[..]);
        let all = doubts(&ranges, 3097);
        assert_eq!(all.len(), 1);
        assert!(all[0].offset == 0 && all[0].end() >= ranges[999].end());
        assert_eq!(doubts(&ranges, 1 << 20).len(), 1);
    }
}
