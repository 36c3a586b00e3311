//! A limit that several threads hold together, without a lock: one atomic arrival time.

use crate::cost::Cost;
use crate::limits::{IOPS_MAX, SLACK_NS};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// When the next unit may pass, in ns, for any thread.
///
/// The rule is that of L tags: a rate that catches up by at most [`SLACK_NS`]. (The generic cell
/// rate algorithm, with that time as its tolerance.)
#[derive(Debug, Default)]
pub(crate) struct Arrival(AtomicU64);

impl Arrival {
    /// Lets `units` pass at `per_second`, or says when to ask again.
    pub(crate) fn pass(&self, now_ns: u64, units: u64, per_second: u64) -> Result<(), u64> {
        let step = u128::from(units) * 1_000_000_000;
        let step = u64::try_from(step.div_ceil(u128::from(per_second))).unwrap_or(u64::MAX);
        let next = |at: u64| {
            let from = at.max(now_ns.saturating_sub(SLACK_NS));
            (at <= now_ns).then(|| from.saturating_add(step))
        };
        // Nothing else is published with this number, so no order with other memory is needed.
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, next).map(|_| ())
    }

    /// The rate changes: what passed ahead of its time takes another time at another rate.
    pub(crate) fn rescale(&self, now_ns: u64, was: u64, is: u64) {
        let scaled = |at: u64| {
            let ahead = u128::from(at.saturating_sub(now_ns));
            let scaled = (ahead * u128::from(was)).div_ceil(u128::from(is.max(1)));
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
            (at > now_ns).then(|| now_ns.saturating_add(scaled))
        };
        // What is not ahead stays.
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, scaled);
    }
}

/// A limit in I/Os a second, in the measure of [`Cost`], for requests that reach no [`Scheduler`]
/// (hits of a volume that is served by several threads).
///
/// In any window of `W` seconds it lets `limit * (W + 0.02)` through, and one request.
///
/// [`Scheduler`]: crate::Scheduler
#[derive(Debug)]
pub struct SharedLimit {
    arrival: Arrival,
    iops: AtomicU32,
}

impl SharedLimit {
    /// Of so many I/Os a second, at least 1 and at most [`IOPS_MAX`].
    pub fn new(iops: u32) -> Self {
        Self { arrival: Arrival::default(), iops: AtomicU32::new(iops.clamp(1, IOPS_MAX)) }
    }

    /// Another limit from now on, at least 1 and at most [`IOPS_MAX`]; what passed before its time
    /// counts on at the new rate.
    pub fn set(&self, now_ns: u64, iops: u32) {
        let iops = iops.clamp(1, IOPS_MAX);
        let was = self.iops.swap(iops, Ordering::Relaxed);
        self.arrival.rescale(now_ns, u64::from(was), u64::from(iops));
    }

    /// A request passes.
    ///
    /// # Errors
    /// Says from when on to ask again, in ns: the limit is reached. Nothing was counted then.
    pub fn pass(&self, now_ns: u64, cost: Cost) -> Result<(), u64> {
        let per_second = u64::from(self.iops.load(Ordering::Relaxed)) * Cost::UNIT;
        self.arrival.pass(now_ns, cost.units(), per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_its_limit() {
        let limit = SharedLimit::new(1000);
        let cost = Cost::of_length(0);
        let mut passed = 0;
        // Asked every 10 us for 2 s.
        for now in (1_000_000_000..3_000_000_000).step_by(10_000) {
            passed += u32::from(limit.pass(now, cost).is_ok());
        }
        assert!((2000..=2021).contains(&passed), "{passed}");
        assert_eq!(limit.pass(3_000_000_000, cost), Ok(()));
        assert_eq!(limit.pass(3_000_000_000, cost), Err(3_001_000_000));
        limit.set(3_001_000_000, 0);
        assert_eq!(limit.pass(3_001_000_000, cost), Ok(()));
        assert_eq!(limit.pass(3_001_000_000, cost), Err(4_001_000_000), "one a second at least");
        // The next one would wait for another second otherwise.
        limit.set(3_001_000_000, 1000);
        assert_eq!(limit.pass(3_001_500_000, cost), Err(3_002_000_000));
        assert_eq!(limit.pass(3_002_000_000, cost), Ok(()));
    }

    #[test]
    fn idleness_is_no_credit() {
        let limit = SharedLimit::new(1000);
        let passed = (0..100).filter(|_| limit.pass(3_600_000_000_000, Cost::of_length(0)).is_ok());
        assert_eq!(passed.count(), 21, "20 ms of slack and one");
    }

    #[test]
    fn threads_share_it() {
        let limit = SharedLimit::new(100_000);
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (limit, passed) = (&limit, &passed);
                scope.spawn(move || {
                    // Each thread's clock is a little off.
                    for now in (1_000_000_000..1_100_000_000).step_by(1000) {
                        let ok = limit.pass(now + thread, Cost::of_length(0)).is_ok();
                        passed.fetch_add(u64::from(ok), Ordering::Relaxed);
                    }
                });
            }
        });
        // A thread that is behind the others sees times that have passed; none lets more through.
        let passed = passed.into_inner();
        assert!((10_000..=12_001).contains(&passed), "{passed}");
    }
}
