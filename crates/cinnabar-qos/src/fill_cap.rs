//! Fills a second at most.

use crate::limits::FILL_MAX;
use crate::shared_limit::Arrival;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cap on what is filled into the cache, in bytes a second, for all threads together.
///
/// No fill ever waits: a guest has its data already, and what is not filled is a later miss. So a fill
/// beyond the cap is skipped and counted.
#[derive(Debug)]
pub struct FillCap {
    arrival: Arrival,
    bytes_a_second: AtomicU64,
    filled_bytes: AtomicU64,
    skipped: AtomicU64,
    skipped_bytes: AtomicU64,
}

impl FillCap {
    /// Of so many bytes a second, at least 1 and at most [`FILL_MAX`].
    pub fn new(bytes_a_second: u64) -> Self {
        Self {
            arrival: Arrival::default(),
            bytes_a_second: AtomicU64::new(bytes_a_second.clamp(1, FILL_MAX)),
            filled_bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
        }
    }

    /// Another cap from now on, at least 1 and at most [`FILL_MAX`].
    /// What was filled ahead of its time counts on at the new rate.
    pub fn set(&self, now_ns: u64, bytes_a_second: u64) {
        let cap = bytes_a_second.clamp(1, FILL_MAX);
        let was = self.bytes_a_second.swap(cap, Ordering::Relaxed);
        self.arrival.rescale(now_ns, was, cap);
    }

    /// Whether so many bytes may be filled; what may not is counted as skipped.
    pub fn admit(&self, now_ns: u64, bytes: u64) -> bool {
        let cap = self.bytes_a_second.load(Ordering::Relaxed);
        let admitted = self.arrival.pass(now_ns, bytes, cap).is_ok();
        if admitted {
            self.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            self.skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        admitted
    }

    /// Bytes that were let through.
    pub fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }

    /// Fills that were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Bytes of them.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::FillCap;

    #[test]
    fn skips_and_counts() {
        let cap = FillCap::new(100 << 20);
        let asked = 4u64 << 20;
        // Four times as much as the cap, for two seconds.
        let fills = (1_000_000_000u64..3_000_000_000).step_by(10_000_000);
        let admitted = fills.clone().filter(|now| cap.admit(*now, asked)).count() as u64;
        assert!((50..=51).contains(&admitted), "{admitted}");
        assert_eq!(cap.filled_bytes(), admitted * asked);
        assert_eq!(cap.skipped(), fills.count() as u64 - admitted);
        assert_eq!(cap.skipped_bytes(), cap.skipped() * asked);
        cap.set(4_000_000_000, 1);
        assert!(cap.admit(4_000_000_000, asked), "the slack");
        assert!(!cap.admit(4_000_000_001, 1), "the next one is weeks ahead");
        cap.set(4_000_000_001, 1 << 40);
        assert!(cap.admit(4_010_000_000, 1 << 30), "and is not any more");
    }
}
