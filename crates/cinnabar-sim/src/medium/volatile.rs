//! What a write cache may lose at a power cut: for one unit of a medium (a sector of a backend, a
//! block of the cache device), its durable contents and every later one that no flush covers.
//!
//! A write is durable once it completed with FUA, or once a flush that began after its completion
//! has succeeded. Until then a power cut leaves the unit as it was durably, or as any of the later
//! writes left it: lost and reordered writes alike.

use smallvec::SmallVec;

/// Contents that a power cut may undo.
#[derive(Clone, Debug)]
struct Later<C> {
    contents: C,
    /// The write, named by the tick it began at.
    by: u64,
    /// Tick of its completion; `u64::MAX` while it is under way.
    completed: u64,
}

/// One unit that is not durable.
#[derive(Clone, Debug)]
pub(super) struct Volatile<C> {
    durable: C,
    later: SmallVec<[Later<C>; 1]>,
}

impl<C: Clone> Volatile<C> {
    /// A unit that holds `durable`, about to be written.
    pub(super) fn new(durable: C) -> Self {
        Self { durable, later: SmallVec::new() }
    }

    /// The write that began at tick `by` has put this here.
    pub(super) fn put(&mut self, contents: C, by: u64) {
        self.later.push(Later { contents, by, completed: u64::MAX });
    }

    /// That write completed at `tick`; durably? True if nothing is volatile any more.
    pub(super) fn complete(&mut self, by: u64, tick: u64, durable: bool) -> bool {
        let Some(at) = self.later.iter().position(|later| later.by == by) else { return false };
        self.later[at].completed = tick;
        durable && self.settle(at)
    }

    /// A flush that began at tick `began` has succeeded. True if nothing is volatile any more.
    pub(super) fn flush(&mut self, began: u64) -> bool {
        match self.later.iter().rposition(|later| later.completed < began) {
            Some(at) => self.settle(at),
            None => false,
        }
    }

    fn settle(&mut self, at: usize) -> bool {
        self.durable = self.later[at].contents.clone();
        self.later.drain(..=at);
        self.later.is_empty()
    }

    /// The writer is gone: what was under way counts as complete.
    pub(super) fn abandon(&mut self, tick: u64) {
        self.later.iter_mut().for_each(|later| later.completed = later.completed.min(tick));
    }

    /// What a power cut may leave: this many contents.
    pub(super) fn candidates(&self) -> usize {
        1 + self.later.len()
    }

    /// One of them, oldest first.
    pub(super) fn candidate(&self, index: usize) -> &C {
        match index {
            0 => &self.durable,
            _ => &self.later[index - 1].contents,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Volatile<u32> {
        let mut unit = Volatile::new(0);
        unit.put(1, 10);
        unit.put(2, 20);
        unit
    }

    #[test]
    fn a_flush_covers_what_had_completed_when_it_began() {
        let mut unit = written();
        assert!(!unit.complete(10, 11, false));
        assert!(!unit.complete(20, 21, false));
        assert!(!unit.flush(21), "begun no later than the completion of the second");
        assert_eq!((unit.candidates(), *unit.candidate(0), *unit.candidate(1)), (2, 1, 2));
        assert!(unit.flush(22));
    }

    #[test]
    fn fua_covers_its_own_write_only() {
        let mut unit = written();
        assert!(!unit.complete(10, 30, true));
        assert_eq!((unit.candidates(), *unit.candidate(0)), (2, 1));
        assert!(unit.complete(20, 31, true));
    }

    #[test]
    fn what_is_under_way_is_never_flushed_until_it_is_abandoned() {
        let mut unit = written();
        assert!(!unit.flush(u64::MAX));
        unit.abandon(40);
        assert!(unit.flush(41));
    }
}
