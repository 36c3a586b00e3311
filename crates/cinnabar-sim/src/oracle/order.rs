//! Order over sectors: what a medium may hold after it has lost what no flush covers.
//!
//! A guest that flushes between two writes relies on their order: if the second is there after a
//! crash, so is the first, in whatever sector. A guest whose flush was answered relies on more: what
//! was answered before it is there. The second holds as long as the medium that the flush was
//! answered for lives; the first holds even if a cache device that had the only copy dies. Flushes
//! are numbered by their answers. Of each sector the writes are known that a crash may leave there:
//!
//! - a write is *covered* by the first flush that was submitted after its answer, and answered;
//! - a write *follows* the flushes that were answered when it was submitted;
//! - what is found must not be older than a covered write of the same sector, of those flushes that
//!   count: all of them, or those that some write found anywhere follows.
//!
//! Zeros count here, which a look at what is durable at the moment of the answer has to leave out.

use crate::stamp::Stamp;
use crate::violation::{Kind, Violation};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Which flushes count after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All that were answered.
    All,
    /// Those that some write found follows: a medium with answered writes is gone.
    Followed,
}

/// A write of one sector.
#[derive(Clone, Copy, Debug)]
struct Step {
    value: Stamp,
    began: u64,
    /// By this tick it has happened or never will.
    by: u64,
    /// Flushes answered when it was submitted.
    follows: u64,
    /// The flush that covers it.
    covered: Option<u64>,
}

/// An answered write that no flush covers.
#[derive(Debug)]
struct Owed {
    sectors: Range<u64>,
    began: u64,
    answered: u64,
}

/// What is known of a backend's writes.
#[derive(Debug, Default)]
pub(super) struct Order {
    sectors: BTreeMap<u64, Vec<Step>>,
    owed: VecDeque<Owed>,
    /// Flushes answered.
    flushes: u64,
}

impl Order {
    pub(super) fn began(&mut self, first: u64, values: &[Stamp], began: u64) {
        for (sector, &value) in (first..).zip(values) {
            let step = Step { value, began, by: u64::MAX, follows: self.flushes, covered: None };
            self.sectors.entry(sector).or_default().push(step);
        }
    }

    /// A write has ended: answered, or happened in part or not at all, or never began.
    pub(super) fn ended(&mut self, sectors: Range<u64>, began: u64, now: u64, refused: bool) {
        for (_, steps) in self.sectors.range_mut(sectors) {
            if refused {
                steps.retain(|step| step.began != began);
            } else if let Some(step) = steps.iter_mut().find(|step| step.began == began) {
                step.by = step.by.min(now);
            }
        }
    }

    /// A write that has ended was answered: the next flush covers it.
    pub(super) fn answered(&mut self, sectors: Range<u64>, began: u64, answered: u64) {
        self.owed.push_back(Owed { sectors, began, answered });
    }

    /// A flush submitted at that tick was answered.
    pub(super) fn flushed(&mut self, submitted: u64) {
        self.flushes += 1;
        while self.owed.front().is_some_and(|owed| owed.answered < submitted) {
            let Owed { sectors, began, .. } = self.owed.pop_front().expect("there is a first");
            self.cover(sectors, began);
        }
    }

    /// This write is durable by itself.
    pub(super) fn cover(&mut self, sectors: Range<u64>, began: u64) {
        for (_, steps) in self.sectors.range_mut(sectors) {
            if let Some(at) = steps.iter().position(|step| step.began == began) {
                steps[at].covered.get_or_insert(self.flushes);
                if steps.len() > STEPS_MAX {
                    prune(steps);
                }
            }
        }
    }

    /// The backend went back to `value` there, and what it holds now it holds durably.
    pub(super) fn went_back(&mut self, sector: u64, value: Stamp, now: u64) {
        let steps = self.sectors.entry(sector).or_default();
        // What is under way may still come.
        steps.retain(|step| step.by == u64::MAX);
        let found = Step { value, began: now, by: now, follows: 0, covered: Some(self.flushes) };
        steps.insert(0, found);
    }

    /// The backend holds what no guest here has written, all of it.
    pub(super) fn forget(&mut self) {
        self.sectors.clear();
        self.owed.clear();
    }

    /// Judges what was found after a loss, sector by sector.
    pub(super) fn check(
        &self,
        backend: usize,
        found: impl Iterator<Item = (u64, Stamp)> + Clone,
        flushed: Flushed,
    ) -> Result<(), Violation> {
        let count = match flushed {
            Flushed::All => self.flushes,
            Flushed::Followed => found.clone().map(|(s, v)| self.followed(s, v)).max().unwrap_or(0),
        };
        for (sector, value) in found {
            let Some(steps) = self.sectors.get(&sector) else { continue };
            let counts = |step: &&Step| step.covered.is_some_and(|flush| flush <= count);
            let floor = steps.iter().filter(counts).map(|step| step.began).max();
            let Some(floor) = floor else { continue };
            let newer = |step: &Step| step.value == value && step.by >= floor;
            if !steps.iter().any(newer) {
                let what = format!(
                    "{value:?} is found, older than what one of {count} flushes covers: {steps:?}"
                );
                return Err(Violation::at(Kind::Unordered, backend, sector, what));
            }
        }
        Ok(())
    }

    /// The flushes that a write found there follows; of several that it may be, the fewest.
    fn followed(&self, sector: u64, value: Stamp) -> u64 {
        let steps = self.sectors.get(&sector).into_iter().flatten();
        let same = steps.filter(|step| step.value == value);
        same.map(|step| step.follows).min().unwrap_or(0)
    }
}

/// Steps of a sector above which those that can't be found any more are dropped.
const STEPS_MAX: usize = 16;

/// Drops what is older than the newest covered write.
fn prune(steps: &mut Vec<Step>) {
    let floor = steps.iter().filter(|step| step.covered.is_some()).map(|step| step.began).max();
    if let Some(floor) = floor {
        steps.retain(|step| step.by >= floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 3;
    const B: u64 = 9;

    fn stamp(sector: u64, version: u64) -> Stamp {
        if version == 0 { Stamp::ZERO } else { Stamp::new(0, sector, version) }
    }

    /// A history of one-sector writes and flushes, each answered at once.
    #[derive(Default)]
    struct History {
        order: Order,
        tick: u64,
    }

    impl History {
        fn write(&mut self, sector: u64, version: u64) -> &mut Self {
            self.order.began(sector, &[stamp(sector, version)], self.tick);
            self.order.ended(sector..sector + 1, self.tick, self.tick + 1, false);
            self.order.answered(sector..sector + 1, self.tick, self.tick + 1);
            self.tick += 2;
            self
        }

        fn flush(&mut self) -> &mut Self {
            self.order.flushed(self.tick);
            self.tick += 1;
            self
        }

        fn finds(&self, a: u64, b: u64, flushed: Flushed) -> bool {
            let found = [(A, stamp(A, a)), (B, stamp(B, b))];
            self.order.check(0, found.into_iter(), flushed).is_ok()
        }
    }

    #[test]
    fn what_a_flush_covers_is_there_and_what_came_later_need_not_be() {
        let mut history = History::default();
        history.write(A, 1).flush().write(A, 2).write(B, 1);
        assert!(history.finds(1, 7, Flushed::All), "nothing of B was promised");
        assert!(history.finds(2, 1, Flushed::All));
        assert!(!history.finds(7, 1, Flushed::All), "what A held before");
    }

    #[test]
    fn zeros_are_covered_too() {
        let mut history = History::default();
        history.write(A, 1).flush().write(A, 0).flush();
        assert!(history.finds(0, 7, Flushed::All));
        assert!(!history.finds(1, 7, Flushed::All));
    }

    #[test]
    fn a_write_that_follows_a_flush_is_not_there_without_what_the_flush_covers() {
        let mut history = History::default();
        history.write(A, 1).write(B, 1).flush().write(A, 2).flush().write(B, 2);
        // The device that the flushes were answered for is gone, with all of it or with some.
        assert!(history.finds(7, 7, Flushed::Followed));
        assert!(history.finds(7, 1, Flushed::Followed), "written side by side");
        assert!(history.finds(2, 1, Flushed::Followed));
        assert!(history.finds(2, 2, Flushed::Followed));
        assert!(!history.finds(1, 2, Flushed::Followed), "B follows the flush of A's second");
        assert!(!history.finds(2, 7, Flushed::Followed), "A follows the flush of B's first");
    }

    #[test]
    fn a_write_beside_a_flush_is_not_covered_by_it() {
        let mut order = Order::default();
        order.began(A, &[stamp(A, 1)], 1);
        // Submitted at 2, answered later than the write.
        order.ended(A..A + 1, 1, 3, false);
        order.answered(A..A + 1, 1, 3);
        order.flushed(2);
        assert!(order.check(0, [(A, stamp(A, 7))].into_iter(), Flushed::All).is_ok());
        order.flushed(4);
        assert!(order.check(0, [(A, stamp(A, 7))].into_iter(), Flushed::All).is_err());
    }

    /// As the drivers use it: a power cut, and a server that restarts.
    #[test]
    fn the_oracle_notices_a_loss_of_what_was_flushed() {
        use crate::oracle::{Oracle, Outcome};
        let run = |flush: bool, versions: [u64; 2]| {
            let mut oracle = Oracle::new(&[16]);
            for version in versions {
                let ticket = oracle.write_submitted(0, A, vec![stamp(A, version)]);
                oracle.write_ended(&ticket, Outcome::Done);
            }
            if flush {
                let submitted = oracle.flush_submitted();
                // Zeros are durable for all that this look can tell.
                oracle.flush_done(0, submitted, |_| None).expect("it looks durable");
            }
            let before: Vec<Stamp> = (0..16).map(|sector| Stamp::new(0, sector, 0)).collect();
            let mut after = before;
            after[A as usize] = stamp(A, versions[0]);
            let restart = oracle.lost(0, A, stamp(A, versions[0])).map(drop);
            (restart, oracle.settled(0, &after, &[A]))
        };
        for versions in [[1, 2], [1, 0]] {
            assert_eq!(run(false, versions), (Ok(()), Ok(())), "nothing was flushed");
            let (restart, cut) = run(true, versions);
            let kinds = [restart, cut].map(|result| result.expect_err("it was flushed").kind);
            assert_eq!(kinds, [Kind::Unordered; 2]);
        }
    }

    #[test]
    fn what_a_backend_went_back_to_is_where_it_starts_from() {
        let mut history = History::default();
        history.write(A, 1).flush().write(A, 2);
        history.order.went_back(A, stamp(A, 1), history.tick);
        assert!(history.finds(1, 7, Flushed::All));
        assert!(!history.finds(2, 7, Flushed::All), "it was lost");
    }

    /// The first is answered as failed, and has happened before the second; both have waited for others
    /// while the server restarted, or it never did.
    #[test]
    fn an_overtaken_write_may_be_found_only_where_the_backend_went_back_since() {
        use crate::oracle::{Oracle, Outcome};
        let run = |restarts: bool| {
            let mut oracle = Oracle::new(&[16]);
            let [first, second] =
                [1, 2].map(|version| oracle.write_submitted(0, A, vec![stamp(A, version)]));
            let lost = restarts.then(|| oracle.lost(0, A, Stamp::new(0, A, 0)));
            let lost = lost.map(|lost| lost.expect("no flush covered anything"));
            oracle.overtaken(&first, &second);
            // As a trim, which may have done nothing.
            oracle.write_ended(&second, Outcome::Perhaps);
            if let Some(lost) = lost {
                oracle.loss_known(&lost);
            } else {
                let other = oracle.write_submitted(0, A, vec![stamp(A, 3)]);
                oracle.write_ended(&other, Outcome::Done);
            }
            let read = oracle.read_submitted(0, A, 1);
            oracle.read_done(&read, &[stamp(A, 1)]).and(oracle.lost(0, A, stamp(A, 1)).map(drop))
        };
        assert_eq!(run(true), Ok(()), "it came after the loss");
        assert!(run(false).is_err(), "it was written over");
    }
}
