//! A limit of a guest's own requests, hits of the cache included, which reach no scheduler.

use crate::qos::limits::SLACK_NS;

/// Requests and bytes a second of one guest.
///
/// In any window of `W` seconds it lets `limit * (W + 0.02)` through, and one request: a request passes
/// if all before it are paid for, whatever its own length.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestLimit {
    requests: Rate,
    bytes: Rate,
}

/// A rate that catches up by at most [`SLACK_NS`], as L tags do. (The generic cell rate algorithm, with
/// that time as its tolerance.)
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// 0: no limit.
    per_second: u64,
    /// When the next unit may pass.
    next_ns: u64,
}

impl GuestLimit {
    /// Other limits from now on, 0 being none; what passed ahead of its time counts on at the new rates.
    pub fn set(&mut self, now_ns: u64, iops: u32, bytes_per_second: u64) {
        self.requests.set(now_ns, u64::from(iops));
        self.bytes.set(now_ns, bytes_per_second);
    }

    /// A request of so many bytes passes.
    ///
    /// # Errors
    /// Says from when on to ask again, in ns: a limit is reached. Nothing was counted then.
    pub fn pass(&mut self, now_ns: u64, bytes: u64) -> Result<(), u64> {
        let at = self.requests.next_ns.max(self.bytes.next_ns);
        if at > now_ns {
            return Err(at);
        }
        self.requests.count(now_ns, 1);
        self.bytes.count(now_ns, bytes);
        Ok(())
    }
}

impl Rate {
    fn set(&mut self, now_ns: u64, per_second: u64) {
        let ahead = u128::from(self.next_ns.saturating_sub(now_ns));
        if ahead > 0 && per_second > 0 {
            let scaled = (ahead * u128::from(self.per_second)).div_ceil(u128::from(per_second));
            self.next_ns = now_ns.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX));
        } else if per_second == 0 {
            self.next_ns = 0;
        }
        self.per_second = per_second;
    }

    fn count(&mut self, now_ns: u64, units: u64) {
        if self.per_second == 0 {
            return;
        }
        let step = (u128::from(units) * 1_000_000_000).div_ceil(u128::from(self.per_second));
        let from = self.next_ns.max(now_ns.saturating_sub(SLACK_NS));
        self.next_ns = from.saturating_add(u64::try_from(step).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(iops: u32, bytes_per_second: u64) -> GuestLimit {
        let mut limit = GuestLimit::default();
        limit.set(0, iops, bytes_per_second);
        limit
    }

    #[test]
    fn a_second_holds_both_limits() {
        for (iops, bytes, len, expected) in
            [(1000, 0, 1 << 20, 1000), (0, 4_096_000, 4096, 1000), (1000, 409_600, 4096, 100)]
        {
            let mut limit = limit(iops, bytes);
            // Asked every 10 us for 2 s.
            let times = (SECOND..3 * SECOND).step_by(10_000);
            let passed = times.filter(|now| limit.pass(*now, len).is_ok()).count();
            let most = 2 * expected + expected / 50 + 1;
            assert!((2 * expected..=most).contains(&passed), "{passed} of {expected} a second");
        }
        let mut none = limit(0, 0);
        assert!((0..10_000).all(|_| none.pass(0, u64::MAX).is_ok()));
    }

    #[test]
    fn idleness_is_no_credit() {
        let mut limit = limit(1000, 0);
        let passed = (0..100).filter(|_| limit.pass(3600 * SECOND, 0).is_ok());
        assert_eq!(passed.count(), 21, "20 ms of slack and one");
    }

    #[test]
    fn a_long_request_is_paid_for_by_the_next_one() {
        let mut limit = limit(0, 1 << 20);
        assert_eq!(limit.pass(SECOND, 32 << 20), Ok(()));
        let at = 33 * SECOND - SLACK_NS;
        assert_eq!(limit.pass(SECOND, 0), Err(at));
        assert_eq!(limit.pass(at, 0), Ok(()));
    }

    #[test]
    fn other_limits_count_at_once() {
        let mut limit = limit(1, 0);
        assert_eq!(limit.pass(SECOND, 0), Ok(()));
        assert_eq!(limit.pass(SECOND, 0), Err(2 * SECOND - SLACK_NS));
        limit.set(SECOND, 10, 0);
        assert_eq!(limit.pass(SECOND, 0), Err(SECOND + (SECOND - SLACK_NS) / 10));
        limit.set(SECOND, 0, 0);
        assert_eq!(limit.pass(SECOND, 0), Ok(()));
        // A limit that begins has nothing to be paid for.
        limit.set(SECOND, 5, 0);
        assert_eq!(limit.pass(SECOND, 0), Ok(()));
        limit.set(SECOND, 0, 1);
        assert_eq!(limit.pass(SECOND, u64::MAX), Ok(()));
        assert_eq!(limit.pass(SECOND, 0), Err(u64::MAX), "it does not overflow");
    }
}
