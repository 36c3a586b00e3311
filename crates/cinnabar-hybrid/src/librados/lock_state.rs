//! For how long a lock counts as held after it was seen: that of an RBD image, or of a hybrid volume's table.
//!
//! A process that was stopped (SIGSTOP), or cut off, does not know what happened meanwhile: its lock may have
//! been broken, and another host may have written since. The cluster refuses its I/O then, but not what it
//! has cached. So cached blocks are served only within [`LEASE`] of the beginning of the last look that showed
//! the lock. A client that breaks a lock waits for as long before the volume is served ([`TAKE_AFTER`]), so that
//! no cached block is served behind a write of the next owner.
//!
//! Times are those of `CLOCK_BOOTTIME`, which passes while a process is stopped and while the host sleeps.
//! It does not pass in a virtual machine that is paused as a whole.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// For how long.
pub const LEASE: Duration = Duration::from_secs(10);
/// How long after the fence another client's lock may be taken over. While a clock is corrected it runs wrong by
/// up to [`SLEW_PPM`]: the former owner's slow, its lease lasting 10.9 s, and ours fast, so that 12.5 s are 11.5 s.
pub const TAKE_AFTER: Duration = Duration::from_millis(12_500);
/// By how much a host's clock may run slow or fast, in millionths: as fast as chrony corrects one by default
/// (`maxslewrate`), a twelfth.
pub const SLEW_PPM: u32 = 83_334;
/// For how long a former owner is fenced off, in s: a week. What it has under way is sent again when it goes on, and
/// refused only as long as it is fenced off. Ceph's default of an hour is too short for a process that was stopped (a
/// debugger, a frozen container) and goes on the next day.
pub const FENCE_S: u32 = 7 * 24 * 3600;

/// Whether a volume may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It is this process's to serve, as far as can be known.
    Held,
    /// Its lock was not seen for too long: what is cached may be old.
    Unconfirmed,
    /// It is another client's, for good.
    Lost,
    /// It was let go of behind a flush, for good.
    Released,
}

/// When a lock was seen last, for all threads. See the module.
#[derive(Debug)]
pub struct SeenLock {
    confirmed_ns: AtomicU64,
    lost: AtomicBool,
    released: AtomicBool,
}

impl SeenLock {
    /// The lock was seen at this time, or nothing has to be.
    pub const fn new(seen_ns: u64) -> Self {
        let (lost, released) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { confirmed_ns: AtomicU64::new(seen_ns), lost, released }
    }

    /// The lock was seen by a look that began then.
    pub fn confirm(&self, began_ns: u64) {
        // Looks may end in another order than they began in.
        self.confirmed_ns.fetch_max(began_ns, AcqRel);
    }

    /// How long ago the last look began that showed it.
    pub fn since(&self) -> Duration {
        Duration::from_nanos(now_ns().saturating_sub(self.confirmed_ns.load(Acquire)))
    }

    /// It is another's.
    pub fn lose(&self) {
        self.lost.store(true, Release);
    }

    /// It is being let go of for good.
    pub fn release(&self) {
        self.released.store(true, Release);
    }

    /// How it is now.
    pub fn lock_state(&self) -> LockState {
        self.standing_at(now_ns())
    }

    fn standing_at(&self, now_ns: u64) -> LockState {
        let since = now_ns.saturating_sub(self.confirmed_ns.load(Acquire));
        if self.lost.load(Acquire) {
            LockState::Lost
        } else if self.released.load(Acquire) {
            LockState::Released
        } else if u128::from(since) < LEASE.as_nanos() {
            LockState::Held
        } else {
            LockState::Unconfirmed
        }
    }
}

/// The time, in ns since the host started.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_counts_from_the_beginning_of_the_look_that_showed_it() {
        let (lease, ns) = (SeenLock::new(1_000), LEASE.as_nanos() as u64);
        assert_eq!(lease.standing_at(1_000 + ns - 1), LockState::Held);
        assert_eq!(lease.standing_at(1_000 + ns), LockState::Unconfirmed);
        lease.confirm(2_000);
        assert_eq!(lease.standing_at(1_000 + ns), LockState::Held);
        assert_eq!(lease.standing_at(2_000 + ns), LockState::Unconfirmed);
        // A look that began before, and ended late.
        lease.confirm(1_500);
        assert_eq!(lease.standing_at(2_000 + ns - 1), LockState::Held);
        lease.release();
        assert_eq!(lease.standing_at(2_001), LockState::Released);
        lease.lose();
        assert_eq!(lease.standing_at(2_001), LockState::Lost);
    }

    /// True times in ns, by clocks that are corrected as fast as they may be.
    #[test]
    fn a_takeover_is_later_than_the_last_answer_from_the_cache_by_whatever_clocks() {
        let true_ns = |by_clock: Duration, ppm: i64| {
            let second = u64::try_from(1_000_000 + ppm).expect("it runs forwards");
            by_clock.as_nanos() * 1_000_000 / u128::from(second)
        };
        let slew = i64::from(SLEW_PPM);
        for owner in [-slew, 0, slew] {
            for taker in [-slew, 0, slew] {
                assert!(true_ns(LEASE, owner) < true_ns(TAKE_AFTER, taker), "{owner}, {taker}");
            }
        }
    }

    #[test]
    fn the_clock_runs() {
        let lease = SeenLock::new(now_ns());
        assert_eq!(lease.lock_state(), LockState::Held);
        assert!(now_ns() > 0);
    }
}
