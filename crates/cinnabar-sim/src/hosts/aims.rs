//! Worlds in which draws lean towards what is rare otherwise. Their schedule is drawn as any other.

use crate::hosts::profile::{Profile, Storage};
use crate::rng::Rng;

/// What an act of the operator, or of fate, is drawn as (`operator.rs`).
pub(super) const MOVE: u64 = 0;
pub(super) const TAKE: u64 = 4;
pub(super) const CRASH: u64 = 8;
pub(super) const CUT: u64 = 11;

/// What a world leans towards.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// An owner is cut off right behind a look at its lock, and another host takes the volume by force.
    CutOff,
    /// A host dies between two steps of taking.
    DiesTaking,
    /// An owner dies, and has the volume again soon after the other host has written.
    BackSoon,
    /// Both hosts want the volume, and answers are late.
    BothWant,
}

impl Profile {
    /// Three worlds of seven stay as they are.
    pub(super) fn lean(mut self, rng: &mut Rng) -> Self {
        self.cuts = self.storage == Storage::Rbd && rng.chance(0.5);
        let aims = [Aim::CutOff, Aim::DiesTaking, Aim::BackSoon, Aim::BothWant];
        let Some(aim) = aims.get(rng.below(7) as usize) else { return self };
        match aim {
            Aim::CutOff => {
                (self.storage, self.cuts, self.crashes, self.outages) =
                    (Storage::Rbd, true, false, false);
                (self.cut_at_look, self.fails_over, self.acts) = (0.7, 0.8, 2);
                (self.open_errors, self.io_errors, self.sync_errors) = (0.0, 0.0, 0.0);
                (self.depth, self.think_ns_max, self.reads) = (12, 2_000_000_000, 0.98);
                (self.hot, self.act_ns_max, self.writes_first) = (2, 200_000_000, true);
            }
            Aim::DiesTaking => {
                (self.exclusive, self.proves, self.dies_recorded) = (true, false, 0.5);
                self.go_to_and_fro(&[MOVE]);
            }
            Aim::BackSoon => {
                self.storage = rng.pick(&[Storage::File, Storage::FarFile]);
                (self.proves, self.exclusive) = (true, false);
                self.go_to_and_fro(&[CRASH, MOVE]);
            }
            Aim::BothWant => {
                self.storage = rng.pick(&[Storage::Nbd, Storage::FarFile]);
                (self.crashes, self.late, self.act_ns_max) = (false, 0.3, 1_000_000_000);
                (self.acts, self.favours) = (24, &[TAKE]);
                (self.way_ns_max, self.patience_ns) = (50_000_000, 1_000_000_000);
                return self;
            }
        }
        (self.way_ns_max, self.patience_ns) = (1_000_000, 40_000_000);
        (self.lost, self.open_errors) = (0.0, 0.0);
        self
    }

    /// Hosts own the volume for long enough to cache some of it, die, and are there again at once.
    fn go_to_and_fro(&mut self, favours: &'static [u64]) {
        (self.crashes, self.dies_briefly) = (true, true);
        (self.freezes, self.outages) = (false, false);
        (self.io_errors, self.sync_errors) = (0.0, 0.0);
        (self.depth, self.think_ns_max, self.reads, self.hot) = (4, 20_000_000, 0.5, 16);
        (self.act_ns_max, self.acts, self.favours) = (400_000_000, 12, favours);
        self.more = 4;
    }
}
