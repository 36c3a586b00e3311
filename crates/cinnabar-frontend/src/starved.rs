//! Who has waited longest for what all share, and for how long it may hold up others.
//!
//! While one waits, those that hold buffers get no more. If it can't be had at all, since requests to back
//! ends that hang hold too much, that would last as long as they hang: so after a while it lets others
//! pass, and tries again later.

use crate::load::Rank;
use cinnabar_engine::seam::units::Instant;

/// How long one may hold up others: requests that end at all have ended by then.
pub(crate) const TURN_NS: u64 = 10_000_000_000;
/// How long it lets others pass afterwards.
const PAUSE_NS: u64 = 60_000_000_000;

/// The one that has waited longest, if there is one.
#[derive(Debug)]
pub(crate) struct Starved<T> {
    current: Option<(T, Instant)>,
    /// Those that had their turn in vain, and until when they let others pass.
    passed_over: Vec<(T, Instant)>,
}

impl<T: Copy + PartialEq> Starved<T> {
    pub(crate) const fn new() -> Self {
        Self { current: None, passed_over: Vec::new() }
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, one: T) -> bool {
        self.current.is_some_and(|(starved, _)| starved == one)
    }

    /// Whether there is one.
    pub(crate) const fn is_any(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn rank(&self, one: T) -> Rank {
        match self.current {
            None => Rank::Free,
            Some(_) if self.is(one) => Rank::Starved,
            Some(_) => Rank::Behind,
        }
    }

    /// Passes over one that has held up others for too long. True if so.
    pub(crate) fn pass_over(&mut self, now: Instant) -> bool {
        let late = |(_, since): &mut (T, Instant)| now.since_ns(*since) > TURN_NS;
        let Some((late, _)) = self.current.take_if(late) else { return false };
        self.passed_over.push((late, now.plus_ns(PAUSE_NS)));
        true
    }

    /// This one waits: it is the starved one, unless there is one already or it was passed over. True if it has
    /// become so, and may find more room than it just did.
    pub(crate) fn waits(&mut self, one: T, now: Instant) -> bool {
        if self.current.is_none() {
            self.passed_over.retain(|(_, until)| now < *until);
            if self.passed_over.iter().all(|(passed, _)| *passed != one) {
                self.current = Some((one, now));
                return true;
            }
        }
        false
    }

    /// This one waits for room in its own limits now, which may never come. True if it was the starved one. One that
    /// was passed over stays so.
    pub(crate) fn steps_back(&mut self, one: T) -> bool {
        self.current.take_if(|(starved, _)| *starved == one).is_some()
    }

    /// Those that are meant do not wait any more. True if one of them was the starved one.
    pub(crate) fn ends(&mut self, is_meant: impl Fn(T) -> bool) -> bool {
        self.passed_over.retain(|(passed, _)| !is_meant(*passed));
        self.current.take_if(|(starved, _)| is_meant(*starved)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_in_vain_is_passed_over_for_a_while() {
        let mut starved = Starved::new();
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        starved.waits('a', at(1));
        starved.waits('b', at(2));
        assert_eq!((starved.rank('a'), starved.rank('b')), (Rank::Starved, Rank::Behind));
        assert!(!starved.pass_over(at(11)));
        assert!(starved.pass_over(at(12)));
        assert!(!starved.steps_back('a'));
        starved.waits('a', at(12));
        assert_eq!(
            starved.rank('a'),
            Rank::Free,
            "it had its turn, and waited for something else since"
        );
        starved.waits('b', at(12));
        assert_eq!((starved.rank('a'), starved.rank('b')), (Rank::Behind, Rank::Starved));
        assert!(starved.steps_back('b') && !starved.steps_back('b'));
        starved.waits('a', at(71));
        assert_eq!(starved.rank('b'), Rank::Free);
        starved.waits('a', at(72));
        assert_eq!(starved.rank('b'), Rank::Behind, "it tries again");
    }
}
