//! The rule by which a recorded change proof is compared with the backend as it is now.
//!
//! A change proof says who a backend is, when it last changed, and what time it was by the backend's
//! own clock when that was looked at. How it is taken and packed is the backend's matter
//! (`cinnabar_engine::volume::ProofToken`); the comparison is the same for files and for the simulator's
//! media.
//!
//! # After a clean detach
//! Change times can be coarse: a write right after ours could get the same one. So only a proof whose
//! clock had moved past the change time proves anything by equality.
//!
//! # After a crash
//! Our own last writes have moved the change time since the last heartbeat, by at most its period and
//! what it may be late. What lies within that window is taken for ours: another writer's change in the
//! same three seconds is not noticed.

use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::volume::Belief;

/// How often, in ns, a volume that is being written has its proof recorded: the engine's default.
pub const PERIOD_NS: i64 = 1_000_000_000;
/// How late, in ns, that may be before a crash makes our own last writes look like another's.
pub const GRACE_NS: i64 = 2_000_000_000;
/// Both together: what a crash leaves unproven.
pub const WINDOW_NS: i64 = PERIOD_NS + GRACE_NS;

/// A change proof, unpacked. Times are in ns by the backend's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeProof<I> {
    /// Who it is and how large, whatever was written.
    pub identity: I,
    /// When it last changed.
    pub change_ns: i64,
    /// What time it was when that was looked at.
    pub now_ns: i64,
}

impl<I: PartialEq> ChangeProof<I> {
    /// What this proof, as recorded, says of the time until `now`. `written`: this cache may have
    /// written since it was taken, so it was left by a crash.
    pub fn judge(&self, written: bool, now: &Self, mutants: Mutants) -> Belief {
        let other = self.identity != now.identity && !mutants.is(Mutant::IdentityIgnored);
        if other || now.change_ns < self.change_ns {
            return Belief::Changed;
        }
        if written || mutants.is(Mutant::WindowAfterSeal) {
            let end = self.now_ns.saturating_add(WINDOW_NS);
            // Ours, or another's: another shard of ours may know.
            let within = now.change_ns <= end || mutants.is(Mutant::WindowUnbounded);
            return if within { Belief::Unchanged } else { Belief::Unknown };
        }
        if now.change_ns != self.change_ns {
            Belief::Changed
        } else if self.now_ns > self.change_ns {
            Belief::Unchanged
        } else {
            // A write right after the proof could have got the same change time.
            Belief::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: ChangeProof<u32> = ChangeProof { identity: 7, change_ns: 100, now_ns: 200 };

    fn belief(written: bool, now: ChangeProof<u32>) -> Belief {
        THEN.judge(written, &now, Mutants::default())
    }

    fn at(change_ns: i64) -> ChangeProof<u32> {
        ChangeProof { change_ns, now_ns: i64::MAX, ..THEN }
    }

    #[test]
    fn the_period_is_the_engines() {
        let period = cinnabar_engine::Config::default().heartbeat_ns;
        assert_eq!(u64::try_from(PERIOD_NS), Ok(period));
    }

    #[test]
    fn the_window_is_open_only_after_a_crash() {
        assert_eq!(belief(false, at(100)), Belief::Unchanged);
        assert_eq!(belief(false, at(101)), Belief::Changed);
        assert_eq!(belief(false, at(99)), Belief::Changed);
        assert_eq!(belief(true, at(99)), Belief::Changed);
        assert_eq!(belief(true, at(100)), Belief::Unchanged);
        assert_eq!(belief(true, at(200 + WINDOW_NS)), Belief::Unchanged);
        assert_eq!(belief(true, at(201 + WINDOW_NS)), Belief::Unknown);
        let saturated = ChangeProof { now_ns: i64::MAX, ..THEN };
        assert_eq!(saturated.judge(true, &at(i64::MAX), Mutants::default()), Belief::Unchanged);
    }

    #[test]
    fn another_backend_is_another_volume() {
        for written in [false, true] {
            assert_eq!(belief(written, ChangeProof { identity: 8, ..at(100) }), Belief::Changed);
        }
    }

    #[test]
    fn without_the_identity_another_backend_would_be_believed() {
        let other = ChangeProof { identity: 8, ..at(100) };
        let mutants = Mutants::only(Mutant::IdentityIgnored);
        assert_eq!(THEN.judge(false, &other, mutants), Belief::Unchanged);
    }

    #[test]
    fn a_clock_that_had_not_passed_the_change_proves_no_equality() {
        for now_ns in [99, 100] {
            let early = ChangeProof { now_ns, ..THEN };
            assert_eq!(early.judge(false, &at(100), Mutants::default()), Belief::Unknown);
        }
    }
}
