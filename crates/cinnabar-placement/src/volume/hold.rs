//! Writes that wait for a copy: for how long, and what becomes of the move behind that.

use super::Volume;
use super::active::Step;
use super::moves::both;
use super::seam::{Action, GivenUp};
use crate::mutant::Mutant;

impl Volume {
    /// What the devices take to copy what was changed since the copy began, and to copy it all; in ns.
    pub(super) fn patch_and_copy_ns(&self, extent: u32) -> (f64, f64) {
        let from = self.table.get(extent).pool;
        let ns = |bytes, sequential| self.devices.copy_ns(from, bytes, sequential);
        let part_bytes = self.header.geometry.part_bytes();
        let ranges = self.active.get(&extent).map(|active| active.dirty.ranges(part_bytes));
        let ranges = ranges.into_iter().flatten();
        (ranges.map(|r| ns(r.end - r.start, false)).sum(), ns(self.table.extent_bytes(), true))
    }

    /// New writes wait from now on. When those under way have ended, the copy gets what it lacks, or, if
    /// it is to be `whole`, all.
    pub(super) fn hold_writes(&mut self, extent: u32, whole: bool, out: &mut Vec<Action>) {
        let active = self.active(extent);
        (active.step, active.whole) = (Step::Draining, whole);
        self.holding.insert(extent, None);
        self.issue(extent, out);
    }

    /// No write is under way, and new ones wait.
    pub(super) fn drained(&mut self, extent: u32, out: &mut Vec<Action>) {
        let part_bytes = self.header.geometry.part_bytes();
        let active = self.active(extent);
        if active.whole {
            self.throttle.charge(self.table.extent_bytes());
            return self.copy(extent, out);
        }
        active.step = Step::Patching;
        let ranges = active.dirty.ranges(part_bytes);
        self.counts.patched_bytes += ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        let (from, to) = both(self.table.get(extent), extent);
        out.push(Action::Patch { from, to, ranges });
    }

    /// When the first writes have waited long enough.
    pub(super) fn holds_end_ns(&self) -> Option<u64> {
        self.holding.values().map(|until| until.unwrap_or(self.now_ns)).min()
    }

    /// Writes that have waited long enough go on at the source, which is the truth until the flip. The
    /// move is given up, though not before its patch or copy has ended, which may still change the copy.
    pub(super) fn end_holds(&mut self, out: &mut Vec<Action>) {
        let (now_ns, until_ns) =
            (self.now_ns, self.now_ns.saturating_add(self.settings.hold_max_ns));
        if self.is(Mutant::HeldForAnswer) {
            return;
        }
        let mut over = Vec::new();
        for (extent, until) in &mut self.holding {
            if *until.get_or_insert(until_ns) <= now_ns {
                over.push(*extent);
            }
        }
        for extent in over {
            let active = self.active(extent);
            if active.step == Step::Draining {
                self.give_up(extent, GivenUp::Slow, out);
                continue;
            }
            active.given_up = Some(GivenUp::Slow);
            self.holding.remove(&extent);
            self.release(extent, out);
        }
    }
}
