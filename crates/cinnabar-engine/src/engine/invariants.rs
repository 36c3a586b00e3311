//! What must hold between any two events; checked whole by tests and the simulator, for it reads
//! every descriptor.

use super::Engine;
use super::request::{Active, Kind};
use crate::descriptors::Key;
use crate::outbox::Pending;
use crate::seam::Payload;
use crate::store::AtRisk;
use crate::units::VolumeId;
use crate::volume::VolumeState;

impl<P: Payload> Engine<P> {
    /// What of the blocks on flash a crash now need not bring back. Expensive.
    pub fn at_risk(&self) -> AtRisk {
        self.store.at_risk()
    }

    /// Blocks of a volume that a crash now must bring back, and the byte of the device where each is.
    /// Expensive.
    pub fn settled_blocks(&self, volume: VolumeId) -> Vec<(u64, u64)> {
        let start = self.superblock().region_start();
        let blocks = self.store.settled_blocks(volume.0).into_iter();
        blocks.map(|(block, offset)| (block, start + offset)).collect()
    }

    /// Whether a block of a volume is cached now.
    pub fn holds(&self, volume: VolumeId, block: u64) -> bool {
        self.store.find(Key { volume: volume.0, block }).is_some()
    }

    /// Checks that address map, descriptors, probation, segments and counters agree.
    ///
    /// # Panics
    /// If they don't; the message says which.
    pub fn check_invariants(&self) {
        self.store.check_invariants(self.loader.is_some() || self.store.dead);
        let reads = |pending: &Pending| match pending {
            Pending::CacheRead { .. } | Pending::Edge { slot: Some(_), .. } => 1,
            _ => 0,
        };
        let reading: u32 = self.outbox.pending.iter().map(|(_, pending)| reads(pending)).sum();
        let pins: u32 = self.store.log.segments.iter().map(|segment| segment.pins).sum();
        assert_eq!(pins, reading, "each pin is a read under way");
        self.check_cached_blocks();
        let active = || self.requests.iter().map(|(_, active)| active);
        let invalidates =
            |a: &&Active<P>| matches!(&a.kind, Kind::Zero(state) if state.invalidates());
        let invalidations = active().filter(|a| invalidates(a) && !a.late).count();
        assert_eq!(invalidations, self.invalidations as usize, "invalidations that are not late");
        for (index, volume) in self.volumes.iter().enumerate() {
            let Some(volume) = volume else { continue };
            let ends = matches!(volume.state, VolumeState::Sealing(..));
            let alive = self.store.dead || self.store.holdings[index].alive;
            assert!(alive || ends, "a known volume's holding lives");
            let of = |a: &&Active<P>| usize::from(a.volume) == index && !a.parked;
            let requests = active().filter(of).count();
            let invalidations = active().filter(|a| of(a) && invalidates(a)).count();
            assert_eq!(invalidations, volume.invalidations as usize, "those of volume {index}");
            assert_eq!(requests, volume.requests as usize, "requests of volume {index}");
            let c = &volume.counters;
            assert_eq!(c.read_hits + c.misses, c.blocks_read, "read blocks are hits or misses");
        }
    }

    /// What counts as cached are blocks of volumes that are known: an operator takes the number for
    /// what a restart brings back.
    fn check_cached_blocks(&self) {
        if self.store.dead {
            return;
        }
        let known = self.volumes.iter().zip(&self.store.holdings);
        let known = known.filter(|(volume, holding)| volume.is_some() && holding.alive);
        let (cached, in_ram) = known.fold((0, 0), |(cached, in_ram), (_, holding)| {
            (cached + holding.cached_blocks, in_ram + holding.ram_blocks)
        });
        let counters = self.cache_counters();
        assert_eq!(counters.cached_blocks, cached, "cached blocks of volumes that are known");
        assert_eq!(counters.ram_blocks, in_ram, "those of them that are in RAM only");
    }
}
