//! Backends that become larger, and volumes with them.
//!
//! A backend becomes larger; a little later the operator has the cache take it for as large as it is,
//! if it is attached. A volume that is away is attached with the size it has then.

use crate::driver::agenda::Item;
use crate::driver::commands::Control;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::Factory;
use crate::stamp::{BLOCK_SECTORS, Stamped};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::{Command, Failure};

/// The operator takes this long to say so, in ns.
const SAYING_NS_MAX: u64 = 50_000_000;

impl<F: Factory<Stamped>> World<'_, F> {
    /// A backend becomes larger, and its volume soon.
    pub(super) fn grow(&mut self, volume: usize) {
        if self.is_attached(volume) && !self.is_growing(volume) && self.enlarge(volume) {
            let at = self.now.plus_ns(self.waits.below(SAYING_NS_MAX));
            self.agenda.enter(at, Item::Grow(volume));
        }
    }

    /// A backend becomes larger, unless it is large enough.
    pub(super) fn enlarge(&mut self, volume: usize) -> bool {
        let (before, capacity) =
            (self.media.backends[volume].sectors(), self.profile.setup.capacity_blocks);
        let block = BLOCK_SECTORS as u64;
        if before > 3 * capacity * block {
            return false;
        }
        let mut sectors = before + self.waits.within(1..capacity / 8) * block;
        if self.profile.volumes[volume].align_bytes == 512 && self.waits.chance(0.1) {
            sectors += self.waits.below(block);
        }
        self.media.backends[volume].grow(sectors, self.oracle.untouched(volume));
        self.oracle.grow(volume, sectors);
        self.volumes[volume].resized = true;
        self.count.faults.add(Fault::BackendGrown);
        self.log.milestone(self.now, || format!("backend {volume} GROWS to {sectors} sectors"));
        true
    }

    /// The operator says so.
    pub(super) fn ask_to_grow(&mut self, volume: usize) {
        if !self.is_attached(volume) {
            return;
        }
        let sectors = self.media.backends[volume].sectors();
        if self.is_growing(volume) {
            let at = self.now.plus_ns(self.waits.within(1..SAYING_NS_MAX));
            return self.agenda.enter(at, Item::Grow(volume));
        }
        if sectors == self.profile.volumes[volume].sectors {
            return;
        }
        let proof = self.proof(volume);
        let id = self.volumes[volume].id().expect("an attached volume has an index");
        let command = Command::Grow(id, sectors * SECTOR_BYTES, proof);
        self.command(Control::Grow(volume, sectors), command);
    }

    /// Is a volume's growth under way?
    pub(super) fn is_growing(&self, volume: usize) -> bool {
        self.is_waiting_for(|control| matches!(control, Control::Grow(of, _) if *of == volume))
    }

    /// A volume has become larger.
    pub(super) fn grown(&mut self, volume: usize, sectors: u64) {
        self.count.faults.add(Fault::Grown);
        let known = &mut self.profile.volumes[volume].sectors;
        *known = sectors.max(*known);
        self.volumes[volume].guest.grow(*known);
    }

    /// Is this why a volume can't grow now? One whose last block is not whole never can; one that
    /// leaves is gone.
    pub(super) fn may_not_grow(&self, volume: usize, failure: Failure) -> bool {
        match failure {
            Failure::Invalid => {
                !self.profile.volumes[volume].sectors.is_multiple_of(BLOCK_SECTORS as u64)
            }
            Failure::NoVolume => !self.is_attached(volume),
            _ => false,
        }
    }

    /// Before a volume is attached: how large it is.
    pub(super) fn know_size(&mut self, volume: usize) {
        let sectors = self.media.backends[volume].sectors();
        self.profile.volumes[volume].sectors = sectors;
        self.volumes[volume].guest.grow(sectors);
    }
}
