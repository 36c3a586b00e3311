//! Requests that go on where an earlier one ended.

use crate::limits::RECENT_ENDS;

/// Bytes behind an earlier request's end within which one goes on with it, as in MOBBS.
const WINDOW_BYTES: u64 = 128 << 10;

/// Looks for sequential requests among the last ones of a volume.
///
/// A request is sequential if it begins at the end of one of the last 16 requests, or less than 128 KiB
/// behind it. One that begins before the end is not: else the hottest block, written twice in a row,
/// would be a scan, and never come to the fast pool.
#[derive(Clone, Debug)]
pub struct Sequential {
    ends: [u64; RECENT_ENDS],
    at: usize,
}

impl Default for Sequential {
    fn default() -> Self {
        // No request begins behind the highest number.
        Self { ends: [u64::MAX; RECENT_ENDS], at: 0 }
    }
}

impl Sequential {
    /// Notes a request; whether it goes on with an earlier one.
    pub fn note(&mut self, offset: u64, length: u64) -> bool {
        let near = |end: &u64| offset.checked_sub(*end).is_some_and(|gap| gap < WINDOW_BYTES);
        let found = self.ends.iter().any(near);
        self.ends[self.at] = offset.saturating_add(length);
        self.at = (self.at + 1) % RECENT_ENDS;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_among_random_requests() {
        let mut sequential = Sequential::default();
        assert!(!sequential.note(0, 4096));
        for i in 1..100u64 {
            assert!(sequential.note(i * 4096, 4096), "the stream");
            assert!(!sequential.note((1 << 40) + i * 7919 * (1 << 20), 4096), "random");
        }
    }

    #[test]
    fn the_same_block_again_is_no_stream() {
        let mut sequential = Sequential::default();
        sequential.note(1 << 20, 4096);
        assert!(!sequential.note(1 << 20, 4096));
        assert!(sequential.note((1 << 20) + 4096 + WINDOW_BYTES - 512, 512), "near enough");
        assert!(!sequential.note((2 << 20) + 4096 + WINDOW_BYTES, 512));
    }

    #[test]
    fn what_sixteen_requests_ago_ended_is_forgotten() {
        let mut sequential = Sequential::default();
        sequential.note(0, 4096);
        for i in 1..=16u64 {
            sequential.note(i << 30, 4096);
        }
        assert!(!sequential.note(4096, 4096));
    }
}
