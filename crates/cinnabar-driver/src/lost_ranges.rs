//! What a server that restarted may have lost of a volume, until it is dropped from the cache.
//!
//! A volume that serves has each range invalidated. One that is not attached yet keeps them until it
//! serves. One that leaves takes no more invalidations: its engine is told to keep nothing of it
//! (`Command::Discard`), before its last flush, which would seem to cover what was lost; what comes too
//! late even for that is dropped with all of its blocks once it is sealed (`Command::Forget`).

use cinnabar_engine::limits::VOLUME_BLOCKS_MAX;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};

/// Until an invalidation that failed is tried again, in ns: the engine has no device, and the volume's
/// generation could not be raised. The engine refuses none for want of room.
pub const AGAIN_AFTER_NS: u64 = 10_000_000;

/// Invalidations of one volume under way that are kept apart: as many as one restart brings.
const APART_MAX: usize = 4096;
/// All of a volume, however large it is: an engine takes as much of it as there is.
const ALL: ByteSpan = ByteSpan::new(0, VOLUME_BLOCKS_MAX * BLOCK_BYTES);

/// What to invalidate for `ranges` that a server may have lost while so many invalidations are still
/// under way for its earlier restarts. A server that restarts again and again while they wait for a
/// silent cache device, say, brings one a time once there are many.
pub(crate) fn bounded(ranges: &[ByteSpan], under_way: usize) -> &[ByteSpan] {
    if under_way + ranges.len() <= APART_MAX { ranges } else { &[ALL] }
}

/// See the module; of one attachment of a volume.
#[derive(Debug, Default)]
pub(crate) struct LostRanges {
    waiting: Vec<ByteSpan>,
    /// The engine was told to keep nothing of the volume.
    discarded: bool,
}

impl LostRanges {
    /// A server may have lost these, while so many invalidations are under way for the volume.
    pub(crate) fn add(&mut self, ranges: &[ByteSpan], under_way: usize) {
        let ranges = bounded(ranges, under_way + self.waiting.len());
        if ranges == [ALL] {
            self.waiting.clear();
        }
        self.waiting.extend(ranges);
    }

    /// This one could not be dropped; it is to be tried again after [`AGAIN_AFTER_NS`].
    pub(crate) fn put_back(&mut self, range: ByteSpan) {
        self.waiting.push(range);
    }

    /// Whether there is something that was not dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All there is, to be invalidated now: the volume serves.
    pub(crate) fn take(&mut self) -> Vec<ByteSpan> {
        std::mem::take(&mut self.waiting)
    }

    /// The volume leaves: whether its engine is to be told now to keep nothing of it. True once.
    pub(crate) fn discards(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.discarded, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_become_one_that_covers_them() {
        let ranges: Vec<_> = (0..1000).map(|n| ByteSpan::new(n * 8192, 4096)).collect();
        assert_eq!(bounded(&ranges, 3096), &ranges[..]);
        let all = bounded(&ranges, 3097);
        assert_eq!(all.len(), 1);
        assert!(all[0].offset == 0 && all[0].end() >= ranges[999].end());
        assert_eq!(bounded(&ranges, 1 << 20).len(), 1);
    }

    /// Those that wait for the volume to serve count, too.
    #[test]
    fn what_waits_is_bounded_however_often_a_server_restarts() {
        let ranges: Vec<_> = (0..1000).map(|n| ByteSpan::new(n * 8192, 4096)).collect();
        let mut lost = LostRanges::default();
        for _ in 0..1000 {
            lost.add(&ranges, 0);
        }
        assert!(lost.waiting.len() <= APART_MAX, "{}", lost.waiting.len());
        assert_eq!(lost.waiting[0], ALL);
    }

    #[test]
    fn a_volume_that_leaves_is_discarded_once() {
        let mut lost = LostRanges::default();
        assert!(!lost.discards(), "nothing is lost");
        lost.put_back(ByteSpan::new(0, 4096));
        assert!(lost.discards());
        lost.put_back(ByteSpan::new(0, 4096));
        assert!(!lost.discards(), "the engine knows");
        assert!(!lost.is_empty(), "it is to be forgotten once it is sealed");
    }
}
