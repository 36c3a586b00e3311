//! What of the cache a crash at this moment must bring back, and what it need not, though it is on
//! flash. For observers: each of these looks at every descriptor.

use super::Store;
use crate::descriptors::Key;
use crate::log::SegmentState;
use crate::seam::Payload;
use std::collections::BTreeMap;

/// Blocks on flash that are in flight, in a sense: see the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtRisk {
    /// In segments that are being emptied, or are about to be: they are recorded as invalid before the
    /// first block leaves.
    pub leaving: u64,
    /// In segments of which no record is durable yet that says that they are in use.
    pub unannounced: u64,
    /// In neither, but taken in while the backend had writes that no flush covered: they come back
    /// only where a flush is known to have covered those.
    pub unflushed: u64,
    /// In chunks behind one of the same segment that is being written: without its header the
    /// search for chunks ends there.
    pub behind: u64,
    /// In regions that are active, or whose end is not durable yet.
    pub doubt: u64,
}

impl std::ops::Add for AtRisk {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            leaving: self.leaving + other.leaving,
            unannounced: self.unannounced + other.unannounced,
            unflushed: self.unflushed + other.unflushed,
            behind: self.behind + other.behind,
            doubt: self.doubt + other.doubt,
        }
    }
}

impl<P: Payload> Store<P> {
    /// Blocks of a volume that a crash now must bring back, if the device keeps what it was given,
    /// and where they are on it, in bytes. Left out: what is in RAM or being written, what is at
    /// risk, what came in while the backend had writes that no flush covered, and everything of a
    /// volume whose blocks have been given up.
    pub(crate) fn settled_blocks(&self, volume: u16) -> Vec<(u64, u64)> {
        let mut settled = Vec::new();
        if self.holdings.get(usize::from(volume)).is_none_or(|holding| !holding.alive) {
            return settled;
        }
        for slot in 0..self.log.geometry.slots() {
            let Some(key) = self.descriptors.key(slot).filter(|key| key.volume == volume) else {
                continue;
            };
            let segment = &self.log.segments[self.log.segment_of(slot) as usize];
            let stays = segment.state != SegmentState::Cleaning
                && segment.pending_chunks == 0
                && self.journal.is_durable(segment.announced);
            if stays && !self.descriptors.flags(slot).unflushed() && !self.is_in_doubt(key) {
                settled.push((key.block, self.log.offset_of(slot)));
            }
        }
        settled
    }

    /// See [`AtRisk`].
    pub(crate) fn at_risk(&self) -> AtRisk {
        let (mut at_risk, mut emptied) = (AtRisk::default(), 0);
        let slots = self.log.geometry.segment_slots();
        for (index, segment) in (0..).zip(&self.log.segments) {
            let leaving = segment.state == SegmentState::Cleaning;
            let unannounced = !self.journal.is_durable(segment.announced);
            if segment.state == SegmentState::Free {
                continue;
            }
            let first = index * slots;
            let cached =
                (first..first + slots).filter(|slot| self.descriptors.key(*slot).is_some());
            if !leaving && !unannounced {
                let unflushed = |slot: &u32| self.descriptors.flags(*slot).unflushed();
                at_risk.unflushed += cached.filter(unflushed).count() as u64;
                continue;
            }
            let blocks = cached.count() as u64;
            let sum = if leaving { &mut at_risk.leaving } else { &mut at_risk.unannounced };
            *sum += blocks;
            emptied += u32::from(leaving && blocks > 0);
        }
        at_risk.behind = self.blocks_behind();
        let slots = (0..self.log.geometry.slots()).filter_map(|slot| self.descriptors.key(slot));
        at_risk.doubt = slots.filter(|key| self.is_in_doubt(*key)).count() as u64;
        assert!(emptied <= 2, "one segment is being emptied, and the next one is announced");
        at_risk
    }

    fn is_in_doubt(&self, key: Key) -> bool {
        let incarnation = self.holdings[usize::from(key.volume)].incarnation;
        let durable = |ticket| self.journal.is_durable(ticket);
        self.regions.is_in_doubt(incarnation, key.block, durable)
    }

    /// See [`AtRisk::behind`].
    fn blocks_behind(&self) -> u64 {
        let writing = self.log.writing.iter().map(|(_, chunk)| (chunk.segment, chunk.first));
        let mut earliest: BTreeMap<u32, u32> = BTreeMap::new();
        for (segment, first) in writing {
            let known = earliest.entry(segment).or_insert(first);
            *known = first.min(*known);
        }
        let pending =
            |slot: u32| self.log.pending_slots().any(|(first, end)| (first..end).contains(&slot));
        let mut behind = 0;
        for (segment, first) in earliest {
            let end = segment * self.log.geometry.segment_slots()
                + self.log.segments[segment as usize].used;
            let cached = |slot: &u32| self.descriptors.key(*slot).is_some() && !pending(*slot);
            behind += (first..end).filter(cached).count() as u64;
        }
        behind
    }
}
