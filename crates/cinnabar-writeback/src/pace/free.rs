//! How many requests of a destage are under way at a time while no guest's miss waits beside them.

use super::DEPTH_MAX;
use cinnabar_engine::units::Instant;

/// Requests at a time, to begin with, and at least if the destage must not wait.
const BEGIN: u32 = 32;
/// At least so many: where latencies vary widely, the few that were alone say little of the others.
const LEAST: u32 = 8;

/// When a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// Nothing of the destage was under way.
    pub(crate) alone: bool,
}

/// How many requests at a time keep a back end busy, and no queue at it that a miss would wait behind.
#[derive(Debug)]
pub(super) struct Free {
    pub(super) depth: u32,
    /// When that changed last. Requests of before tell of another depth.
    changed: Instant,
    /// Since the last decision: requests that ended, and what they took in all.
    ended: u64,
    total_ns: u64,
    /// Some had to wait.
    pub(super) waited: bool,
    /// What the last two took that no queue of the destage was before; 0: not known.
    alone_ns: [u64; 2],
}

impl Default for Free {
    fn default() -> Self {
        let changed = Instant::default();
        Self { depth: BEGIN, changed, ended: 0, total_ns: 0, waited: false, alone_ns: [0; 2] }
    }
}

impl Free {
    /// How many if the destage must not wait.
    pub(super) fn hurried(&self) -> u32 {
        self.depth.max(BEGIN)
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, sent: Sent, took_ns: u64) {
        if sent.alone {
            self.alone_ns = [took_ns, self.alone_ns[0]];
        }
        if sent.at >= self.changed {
            self.ended += 1;
            self.total_ns = self.total_ns.saturating_add(took_ns);
        }
    }

    /// `bounds`: it is what bounds the destage now, so that what requests take says something about it.
    pub(super) fn decide(&mut self, now: Instant, tick_ns: u64, bounds: bool) {
        let alone_ns = self.alone_ns[0].max(self.alone_ns[1]);
        let most_ns = (tick_ns / 2).max(alone_ns.saturating_mul(2));
        let before = self.depth;
        if let Some(mean_ns) = self.total_ns.checked_div(self.ended).filter(|_| bounds) {
            if mean_ns > most_ns {
                self.depth = (before / 2).max(LEAST);
            } else if self.waited {
                self.depth = (before * 2).min(DEPTH_MAX);
            }
        }
        if self.depth != before {
            self.changed = now;
        }
        (self.ended, self.total_ns, self.waited) = (0, 0, false);
    }
}
