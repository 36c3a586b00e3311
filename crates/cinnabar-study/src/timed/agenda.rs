//! What happens next: events in order of time, and of arrival where times are equal.
//!
//! There are few events at a time, about one for each thread and write under way, so a binary heap
//! of small numbers is all it takes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bits of a job's number in an entry; the rest of its half counts events.
const JOB_BITS: u32 = 24;
/// Jobs at a time at most.
pub(super) const JOBS_MAX: usize = 1 << JOB_BITS;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Time, count and job in one number, so that comparing is one step.
    heap: BinaryHeap<Reverse<u128>>,
    count: u64,
}

impl Agenda {
    /// An event for this job at this instant.
    #[inline]
    pub(super) fn add(&mut self, at_ns: u64, job: u32) {
        debug_assert!((job as usize) < JOBS_MAX, "a job's number fits its bits");
        let order = self.count << JOB_BITS | u64::from(job);
        self.count += 1;
        self.heap.push(Reverse(u128::from(at_ns) << 64 | u128::from(order)));
    }

    /// The next event: its instant and its job.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u64, u32)> {
        let Reverse(entry) = self.heap.pop()?;
        Some(((entry >> 64) as u64, entry as u32 & (JOBS_MAX as u32 - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_arrival() {
        let mut agenda = Agenda::default();
        for (at, job) in [(5, 1), (3, 2), (5, 3), (u64::MAX, 4), (0, JOBS_MAX as u32 - 1)] {
            agenda.add(at, job);
        }
        let all: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!(all, [(0, JOBS_MAX as u32 - 1), (3, 2), (5, 1), (5, 3), (u64::MAX, 4)]);
    }
}
