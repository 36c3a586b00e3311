//! What must hold of the store between any two events.

use super::Store;
use crate::address_map::Filling;
use crate::log::SegmentState;
use crate::log::shares::Group;
use crate::mutant::Mutant;
use crate::regions::{Name, region_of};
use crate::seam::Payload;

impl<P: Payload> Store<P> {
    /// While the index is being loaded, or if that was given up, segments are not in order.
    pub(crate) fn check_invariants(&self, unordered: bool) {
        let flash = self.log.geometry.slots();
        let slots = flash + self.probation.len();
        let mut cached = vec![0u64; self.holdings.len()];
        let mut in_ram = vec![0u64; self.holdings.len()];
        let mut held = vec![(0, 0); self.log.segments.len()];
        for slot in 0..slots {
            let Some(key) = self.descriptors.key(slot) else { continue };
            let on_its_way = |filling: &Filling| filling.holds(&self.map, slot);
            if !self.filling.as_deref().is_some_and(on_its_way) {
                let found = self.find_loaded(key);
                assert_eq!(found, Some(slot), "slot {slot} is what its key maps to");
            }
            cached[usize::from(key.volume)] += 1;
            if self.probation.holds(slot) {
                in_ram[usize::from(key.volume)] += 1;
                assert!(self.probation.buffer(slot).is_some(), "RAM slot {slot} has a buffer");
            } else {
                let segment = &self.log.segments[self.log.segment_of(slot) as usize];
                assert_ne!(segment.state, SegmentState::Free, "slot {slot} in a free segment");
                let (live, condemned) = &mut held[self.log.segment_of(slot) as usize];
                *live += 1;
                *condemned += u32::from(self.descriptors.flags(slot).condemned());
            }
        }
        let counted: Vec<u64> = self.holdings.iter().map(|h| h.cached_blocks).collect();
        assert_eq!(cached, counted, "cached blocks by volume");
        assert_eq!(cached.iter().sum::<u64>(), self.counters.cached_blocks, "cached blocks");
        let counted: Vec<u64> = self.holdings.iter().map(|h| h.ram_blocks).collect();
        assert_eq!(in_ram, counted, "blocks in probation by volume");
        assert_eq!(in_ram.iter().sum::<u64>(), self.counters.ram_blocks, "blocks in probation");
        let counted = self.log.segments.iter().map(|s| (s.live, s.condemned));
        assert!(counted.eq(held), "blocks and condemned blocks by segment");
        self.partials.check_invariants(|key| {
            assert_eq!(self.find_loaded(key), None, "an incomplete block is cached, too");
            let alive = self.holdings[usize::from(key.volume)].alive;
            let outlives = self.mutants.is(Mutant::PartialOutlivesVolume);
            assert!(alive || outlives, "the volume of an incomplete block is there");
        });
        let doubt_max =
            self.bounds.doubt_max(self.log.geometry.shards, self.counters.capacity_blocks);
        self.regions.check_invariants(doubt_max, |name| self.durable_blocks_in(name));
        if !unordered {
            self.check_segments();
        }
    }

    /// Blocks of a region in chunks that have been written.
    fn durable_blocks_in(&self, name: Name) -> u64 {
        let pending: Vec<_> = self.log.pending_slots().collect();
        let is_there = |slot: &u32| {
            let key = self.descriptors.key(*slot);
            key.is_some_and(|key| {
                let incarnation = self.holdings[usize::from(key.volume)].incarnation;
                (incarnation, region_of(key.block)) == name
            }) && !pending.iter().any(|(first, end)| (*first..*end).contains(slot))
        };
        (0..self.log.geometry.slots()).filter(is_there).count() as u64
    }

    fn check_segments(&self) {
        let state = |wanted| self.log.segments.iter().filter(|s| s.state == wanted).count();
        let behind = &self.log.segments[self.log.bound as usize..];
        let held = behind.iter().filter(|s| s.state != SegmentState::Free).count();
        assert_eq!(held, self.log.behind as usize, "segments held behind the bound are counted");
        let free = state(SegmentState::Free) + held - behind.len();
        assert_eq!(free, self.log.free.len(), "free segments are listed");
        let open = |s: &crate::log::Segment| s.state == SegmentState::Open;
        assert!(!behind.iter().any(open), "nothing is filled behind the bound");
        let queued: usize = self.log.groups.iter().map(|g| g.queue.len()).sum();
        assert_eq!(state(SegmentState::Sealed), queued, "sealed segments are queued");
        self.log.check_ranks();
        for (index, group) in self.log.groups.iter().enumerate() {
            let of = |s: &&crate::log::Segment| {
                usize::from(s.group) == index && s.state != SegmentState::Free
            };
            let held = self.log.segments.iter().filter(of).count();
            assert_eq!(held, group.segments as usize, "segments of group {index}");
            let worth = self.log.segments.iter().filter(of).map(|s| u64::from(s.worth()));
            assert_eq!(worth.sum::<u64>(), group.worth, "blocks worth keeping of group {index}");
        }
        let writing = self.log.writing.iter().map(|(_, chunk)| chunk.buffers.len());
        let filling = self.log.groups.iter().flat_map(Group::chunks).map(|c| c.buffers.len());
        let held: usize = writing.chain(filling).sum();
        let used = self.buffers.total() - self.buffers.available();
        assert!(held as u64 + self.counters.ram_blocks <= u64::from(used), "buffers in use");
    }
}
