//! What makes a meeting of two mechanisms show: blocks that a crash would leave in the cache are
//! changed while the mechanisms last and once they have met, then the daemon dies, and the next session
//! reads everything before its guests change it.
//!
//! For the drills of [`duo`](super::duo). What the device durably holds of a block is what a lost
//! record brings back; random requests seldom change such a block at the right time, and read it sooner
//! than they write it again.

use crate::driver::guests::State;
use crate::driver::steer::Steering;
use crate::driver::world::World;
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use crate::workload::{Plea, Wanted};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES};

/// Blocks that a drill changes at most: the others are to be found again behind a crash.
const TARGETS_MAX: usize = 150;
/// Batches between two mechanisms' meeting and the crash: so many at least, and one of these more at
/// most.
const BATCHES: (u64, &[u64]) = (3, &[15, 40, 120]);

impl<F: Factory<Stamped>> World<'_, F> {
    /// Blocks that a crash would leave cached are known from here on: what comes is about them.
    pub(super) fn take_aim(&mut self) {
        let Some(machine) = &self.machine else { return };
        self.steering.targets.clear();
        for (index, volume) in self.volumes.iter().enumerate() {
            if volume.state() == State::Attached && !self.profile.volumes[index].read_only {
                let settled = machine.settled_blocks(&volume.names);
                self.steering.targets.extend(settled.iter().map(|(block, _)| (index, *block)));
            }
        }
        let Steering { targets, rng, .. } = &mut self.steering;
        for at in 0..targets.len().min(TARGETS_MAX) {
            let other = at as u64 + rng.below((targets.len() - at) as u64);
            targets.swap(at, other as usize);
        }
        targets.truncate(TARGETS_MAX);
    }

    /// One of those blocks is changed; says whether there was one.
    pub(super) fn hit_target(&mut self) -> bool {
        let steering = &mut self.steering;
        if steering.targets.is_empty() {
            return false;
        }
        let at = steering.rng.below(steering.targets.len() as u64) as usize;
        let (volume, block) = steering.targets.swap_remove(at);
        let wanted = steering.rng.pick(&[Wanted::Write, Wanted::Trim, Wanted::Zeroes]);
        let wanted = if wanted.is_allowed(&self.profile.features) { wanted } else { Wanted::Write };
        let sectors = self.profile.volumes[volume].sectors;
        let first = block * (BLOCK_BYTES / SECTOR_BYTES);
        if first >= sectors {
            return true;
        }
        // A part of a block often leaves no copy of its own.
        let partial = self.profile.features.partial && self.steering.rng.chance(0.5);
        let most = if partial { 1 } else { BLOCK_BYTES / SECTOR_BYTES };
        let bytes = most.min(sectors - first) * SECTOR_BYTES;
        let span = ByteSpan::new(first * SECTOR_BYTES, bytes);
        let plea = match wanted {
            Wanted::Trim => Plea::Trim(span, false),
            Wanted::Zeroes => Plea::Zeroes(span, false, self.steering.rng.chance(0.5)),
            _ => Plea::Write(span, false),
        };
        self.demand_this(volume, plea)
    }

    /// Two mechanisms have met in a session that is to crash: it does so a little later.
    pub(super) fn crash_soon(&mut self) {
        let most = self.steering.rng.pick(BATCHES.1);
        self.fuse = Some(BATCHES.0 + self.steering.rng.below(most));
        self.steering.looks = true;
    }

    /// Until then more of those blocks change, so that what went wrong is written on.
    pub(super) fn stir(&mut self) {
        // Not in the next session: what is left is looked at first.
        if self.steering.looks && self.steering.rng.chance(0.5) && self.crash_note.is_none() {
            self.hit_target();
        }
    }
}
