//! Errors of the cache device of late: one that makes mistakes is shown before it is lost.
//!
//! Any failed I/O and any block with a wrong checksum within the last ten minutes makes the cache
//! `degraded`: both are rare on an SSD that is well, and each is a reason to look at it.

use cinnabar_engine::seam::counters::CacheCounters;
use cinnabar_engine::seam::units::Instant;
use std::collections::VecDeque;

/// For how long an error counts.
const LATE_NS: u64 = 600_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Faults {
    /// What was counted before all that counts now.
    before: Counts,
    /// Increases since, and when they were noticed.
    increases: VecDeque<(Instant, Counts)>,
    /// As last noticed.
    newest: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    errors: u64,
    checksums: u64,
}

impl Counts {
    const fn of(counters: &CacheCounters) -> Self {
        Self { errors: counters.device_errors, checksums: counters.checksum_failures }
    }
}

impl Faults {
    /// What was counted so far is another device's.
    pub fn since(counters: &CacheCounters) -> Self {
        let counts = Counts::of(counters);
        Self { before: counts, newest: counts, increases: VecDeque::new() }
    }

    /// Takes note of what is counted by now; true if it is more than before.
    pub fn note(&mut self, now: Instant, counters: &CacheCounters) -> bool {
        while let Some((at, counts)) = self.increases.front()
            && at.plus_ns(LATE_NS) <= now
        {
            self.before = *counts;
            self.increases.pop_front();
        }
        let counts = Counts::of(counters);
        let more = counts != self.newest;
        if more {
            self.newest = counts;
            self.increases.push_back((now, counts));
        }
        more
    }

    /// What is wrong, if something was of late.
    pub fn of_late(&self, now: Instant, counters: &CacheCounters) -> Option<String> {
        let old = self.increases.iter().take_while(|(at, _)| at.plus_ns(LATE_NS) <= now).last();
        let before = old.map_or(self.before, |(_, counts)| *counts);
        let counts = Counts::of(counters);
        let errors = counts.errors.saturating_sub(before.errors);
        let checksums = counts.checksums.saturating_sub(before.checksums);
        (errors > 0 || checksums > 0).then(|| {
            format!(
                "in the last {} minutes {errors} operations of the cache device failed and \
                 {checksums} blocks had a wrong checksum",
                LATE_NS / 60_000_000_000
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(device_errors: u64, checksum_failures: u64) -> CacheCounters {
        CacheCounters { device_errors, checksum_failures, ..CacheCounters::default() }
    }

    const fn minute(number: u64) -> Instant {
        Instant(number * 60_000_000_000)
    }

    #[test]
    fn errors_count_for_ten_minutes() {
        let mut faults = Faults::default();
        assert_eq!(faults.of_late(minute(0), &counters(0, 0)), None);
        assert!(!faults.note(minute(0), &counters(0, 0)));
        let reason = faults.of_late(minute(1), &counters(3, 1)).expect("at once, noted or not");
        assert!(reason.contains("3 operations") && reason.contains("1 blocks"), "{reason}");
        assert!(faults.note(minute(1), &counters(3, 1)));
        assert!(!faults.note(minute(5), &counters(3, 1)), "nothing new");
        assert!(faults.note(minute(8), &counters(3, 2)));
        let reason = faults.of_late(minute(12), &counters(3, 2)).expect("one is not old");
        assert!(reason.contains("0 operations") && reason.contains("1 blocks"), "{reason}");
        assert!(!faults.note(minute(12), &counters(3, 2)));
        assert_eq!(faults.of_late(minute(18), &counters(3, 2)), None);
        assert_eq!(Faults::since(&counters(9, 9)).of_late(minute(18), &counters(9, 9)), None);
    }
}
