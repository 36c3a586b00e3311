//! What a back end can do, measured, and whether more than that is reserved.

use crate::qos::cost::Cost;
use crate::qos::limits::{WINDOW_NS, WINDOW_NS_MAX};

/// Reservations of a group against what its back end can do, in I/Os a second (in the measure of
/// [`Cost`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The sum of all reservations.
    pub reserved_iops: u64,
    /// What the back end did a second while the group's depth was used up; none before it was.
    pub capacity_iops: Option<u64>,
}

impl Reservations {
    /// What is reserved beyond the capacity; 0 as long as that is not known.
    pub fn oversold_iops(&self) -> u64 {
        self.capacity_iops.map_or(0, |capacity| self.reserved_iops.saturating_sub(capacity))
    }
}

/// Measures the capacity, in windows of a second. One counts if the depth was used up for nine tenths
/// of it: a back end that is not asked shows nothing.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    began_ns: u64,
    /// Up to when the window is accounted for.
    seen_ns: u64,
    /// How long the depth was used up, of the window.
    full_ns: u64,
    done: Cost,
    /// When the last of them was.
    completed_ns: u64,
    /// Moving average, each window with a quarter.
    iops: Option<u64>,
}

impl Capacity {
    /// Time goes on; `full` says whether the depth was used up since the last call.
    pub(crate) fn pass(&mut self, now_ns: u64, full: bool) {
        if full {
            self.full_ns += now_ns.saturating_sub(self.seen_ns);
        }
        self.seen_ns = now_ns;
        let lasted = now_ns.saturating_sub(self.began_ns);
        if lasted < WINDOW_NS {
            return;
        }
        // A back end that has answered nothing for so long hangs: that is not its speed.
        let answers = now_ns.saturating_sub(self.completed_ns) < WINDOW_NS / 2;
        if answers && lasted <= WINDOW_NS_MAX && self.full_ns >= lasted / 10 * 9 {
            let per_second = u128::from(self.done.units()) * 1_000_000_000 / u128::from(lasted);
            let found = (per_second / u128::from(Cost::UNIT)) as u64;
            self.iops = Some(self.iops.map_or(found, |before| (3 * before + found) / 4));
        }
        *self = Self { began_ns: now_ns, seen_ns: now_ns, iops: self.iops, ..Self::default() };
    }

    /// A request is completed.
    pub(crate) fn complete(&mut self, cost: Cost) {
        self.done += cost;
        self.completed_ns = self.seen_ns;
    }

    /// I/Os a second, if they have been measured.
    pub(crate) fn iops(&self) -> Option<u64> {
        self.iops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(capacity: &mut Capacity, from_ms: u64, full: bool) {
        for ms in from_ms..from_ms + 1001 {
            capacity.pass(ms * 1_000_000, full);
            capacity.complete(Cost::of_length(0));
        }
    }

    #[test]
    fn counts_only_while_it_is_asked_for_more() {
        let mut capacity = Capacity::default();
        run(&mut capacity, 0, false);
        assert_eq!(capacity.iops(), None);
        let mut half = Capacity::default();
        half.pass(500_000_000, false);
        half.pass(1_000_000_000, true);
        assert_eq!(half.iops(), None);
        run(&mut capacity, 1001, true);
        run(&mut capacity, 2002, true);
        assert_eq!(capacity.iops(), Some(1000));
        // A host that slept for an hour had no slow server.
        capacity.pass(3_600_000_000_000, true);
        assert_eq!(capacity.iops(), Some(1000));
    }

    #[test]
    fn a_back_end_that_hangs_keeps_its_capacity() {
        let mut capacity = Capacity::default();
        run(&mut capacity, 0, true);
        run(&mut capacity, 1001, true);
        // Requests go on arriving, and none is completed.
        (2002..10_000).for_each(|ms| capacity.pass(ms * 1_000_000, true));
        run(&mut capacity, 10_000, true);
        assert!(capacity.iops() >= Some(990), "{:?}", capacity.iops());
    }

    #[test]
    fn says_what_is_oversold() {
        let mut reservations = Reservations { reserved_iops: 1500, capacity_iops: None };
        assert_eq!(reservations.oversold_iops(), 0);
        reservations.capacity_iops = Some(1000);
        assert_eq!(reservations.oversold_iops(), 500);
        reservations.capacity_iops = Some(2000);
        assert_eq!(reservations.oversold_iops(), 0);
    }
}
