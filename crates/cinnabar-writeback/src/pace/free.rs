//! How many requests of a destage are under way at a time while no guest's miss waits beside them.

use super::DEPTH_MAX;

/// Requests at a time, to begin with.
pub(super) const BEGIN: u32 = 32;

/// How many requests at a time keep a back end busy, and no queue at it that a miss would wait behind.
#[derive(Debug)]
pub(super) struct Free {
    pub(super) depth: u32,
    /// Since the last decision: requests that ended, and what they took in all.
    ended: u64,
    total_ns: u64,
    /// Some had to wait.
    pub(super) waited: bool,
    /// None was under way before the ones that are; none of them has ended.
    first: bool,
    /// What the first ones took, twice: no queue of the destage was before them.
    alone_ns: [u64; 2],
}

impl Default for Free {
    fn default() -> Self {
        Self { depth: BEGIN, ended: 0, total_ns: 0, waited: false, first: false, alone_ns: [0; 2] }
    }
}

impl Free {
    /// A request is sent while none is under way.
    pub(super) const fn begins(&mut self) {
        self.first = true;
    }

    /// A request has ended.
    pub(super) const fn ended(&mut self, took_ns: u64) {
        self.ended += 1;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        if std::mem::replace(&mut self.first, false) {
            self.alone_ns = [took_ns, self.alone_ns[0]];
        }
    }

    /// `bounds`: it is what bounds the destage now, so that waiting says something about it.
    pub(super) fn decide(&mut self, tick_ns: u64, bounds: bool) {
        let alone_ns = self.alone_ns[0].min(self.alone_ns[1]);
        let most_ns = (tick_ns / 2).max(alone_ns.saturating_mul(2));
        if let Some(mean_ns) = self.total_ns.checked_div(self.ended) {
            if mean_ns > most_ns {
                self.depth = (self.depth / 2).max(1);
            } else if bounds && self.waited {
                self.depth = (self.depth * 2).min(DEPTH_MAX);
            }
        }
        (self.ended, self.total_ns, self.waited) = (0, 0, false);
    }
}
