//! Replay: chunks that are newer than the checkpoint, and invalidation records, in the order of
//! the log.
//!
//! A record with version v comes behind every chunk up to v. The work is done in steps, some
//! thousand blocks an event.

use super::load::{Chain, Known};
use super::{Index, Outbox, Pending, Store};
use crate::bounds::Bound;
use crate::descriptors::{Flags, Key};
use crate::limits::VOLUME_BLOCKS_MAX;
use crate::metadata::MetaPage;
use crate::metadata::chunk::{ChunkHeader, DATA_BLOCKS_MAX, RecordKind};
use crate::metadata::journal::{REGION_BLOCKS, Record, RegionEnd};
use crate::mutant::Mutant;
use crate::seam::{IoOp, Payload, Target};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// A chunk found behind the checkpoint.
#[derive(Debug)]
struct Found {
    header: ChunkHeader,
    opened: u64,
}

/// A block of a chunk that is taken in.
#[derive(Clone, Copy, Debug)]
struct Believed {
    slot: u32,
    key: Key,
    hash: u64,
    checksum: u32,
}

type Entries = SmallVec<[Believed; DATA_BLOCKS_MAX as usize]>;

/// A [`Record::Invalidation`], or what the end of a region says.
#[derive(Clone, Debug)]
struct Invalidation {
    version: u64,
    incarnation: u32,
    blocks: Blocks,
}

#[derive(Clone, Debug)]
enum Blocks {
    /// First block and end; the record may be anything that its checksum passes.
    Range(u64, u64),
    OfRegion(Box<RegionEnd>),
}

/// A record has room for more blocks than a volume has.
fn of_a_volume(first: u64, end: u64) -> std::ops::Range<u64> {
    let end = end.min(VOLUME_BLOCKS_MAX);
    first.min(end)..end
}

/// What is to be applied.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    chains: VecDeque<Chain>,
    reading: usize,
    chunks: Vec<Found>,
    invalidations: Vec<Invalidation>,
    next: (usize, usize),
    /// Blocks, or slots, of the current range that are done.
    within: u64,
    pub(crate) headers: u64,
    pub(crate) replayed_blocks: u64,
    pub(crate) overwritten_blocks: u64,
    /// A header could not be read: what is behind it is unknown.
    pub(crate) failed_reads: u64,
    /// Slots of chunks whose write failed, and the newest that is meant.
    failed_chunks: BTreeMap<u32, u64>,
}

impl Replay {
    /// Everything that `records` say of the log, and the chains to follow.
    /// What is older than the checkpoint's `sequence` is in it already; records rewritten may
    /// still say it, and applying them again would undo what came later.
    pub(crate) fn new(records: &[Record], mut chains: Vec<Chain>, sequence: u64) -> Self {
        let mut replay = Self::default();
        for record in records {
            match *record {
                Record::RegionClosed(ref end) if end.version >= sequence => {
                    let blocks = Blocks::OfRegion(end.clone());
                    replay.invalidate(end.version, end.incarnation, blocks);
                }
                Record::Opened { segment, sequence: opened, session } if opened > sequence => {
                    chains.push(Chain { segment, at: 0, session, after: opened, opened });
                }
                Record::ChunkInvalidation { slot, version } => {
                    let newest = replay.failed_chunks.entry(slot).or_default();
                    *newest = version.max(*newest);
                }
                Record::Invalidation { incarnation, block, count, version }
                    if version >= sequence =>
                {
                    let blocks = Blocks::Range(block, block + u64::from(count));
                    replay.invalidate(version, incarnation, blocks);
                }
                _ => {}
            }
        }
        replay.invalidations.sort_by_key(|invalidation| invalidation.version);
        // Rebased records may come twice.
        chains.sort_by_key(|chain| (chain.segment, chain.opened, chain.at));
        chains.dedup_by_key(|chain| (chain.segment, chain.opened, chain.at));
        replay.chains = chains.into();
        replay
    }

    fn invalidate(&mut self, version: u64, incarnation: u32, blocks: Blocks) {
        self.invalidations.push(Invalidation { version, incarnation, blocks });
    }

    /// All headers are there: put them in order.
    pub(crate) fn order(&mut self) {
        self.chunks.sort_by_key(|found| found.header.sequence);
        // A segment opened twice may have been followed twice to the same chunk.
        self.chunks.dedup_by_key(|found| found.header.sequence);
    }

    /// Whether all chains have been followed to their ends.
    pub(crate) fn is_read(&self) -> bool {
        self.reading == 0 && self.chains.is_empty()
    }
}

impl<P: Payload> Store<P> {
    /// Reads the next headers, as many at a time as is good.
    pub(crate) fn read_headers(&self, replay: &mut Replay, outbox: &mut Outbox<P>) {
        let slots = self.log.geometry.segment_slots();
        while replay.reading < self.bounds.replay_reads
            && let Some(chain) = replay.chains.pop_front()
        {
            if chain.segment >= self.log.geometry.segments || chain.at + 2 > slots {
                continue;
            }
            replay.reading += 1;
            let offset = self.log.offset_of(chain.segment * slots + chain.at);
            let op = IoOp::ReadMeta { offset, pages: vec![MetaPage::zeroed()] };
            outbox.io(Target::Cache, op, Pending::Header { chain });
        }
        self.crossings.note_if(!replay.chains.is_empty(), Bound::ReplayReads);
    }

    /// A header, or what is in its place, has been read; `None`: it could not be.
    pub(crate) fn header_read(&self, replay: &mut Replay, chain: Chain, page: Option<&MetaPage>) {
        assert!(replay.reading > 0, "a header that comes was asked for");
        replay.reading -= 1;
        replay.headers += 1;
        let Some(page) = page else {
            replay.failed_reads += 1;
            return;
        };
        let slots = self.log.geometry.segment_slots();
        let slot = chain.segment * slots + chain.at;
        let trusting = self.mutants.is(Mutant::TornChunkTrusted);
        let header = ChunkHeader::decode_or_trust(page, trusting).filter(|header| {
            header.uuid == self.uuid
                && header.slot == slot
                && (header.session == chain.session || self.mutants.is(Mutant::SessionIgnored))
                && header.sequence > chain.after
                && chain.at + 1 + header.entries.len() as u32 <= slots
                && !header.entries.is_empty()
        });
        let Some(header) = header else { return };
        let at = chain.at + 1 + header.entries.len() as u32;
        if !self.mutants.is(Mutant::ReplayCutShort) {
            replay.chains.push_back(Chain { at, after: header.sequence, ..chain });
        }
        replay.chunks.push(Found { header, opened: chain.opened });
    }

    /// Applies some of what is next; true when nothing is left.
    pub(crate) fn replay(&mut self, known: &mut Known, replay: &mut Replay) -> bool {
        let mut budget = self.bounds.replay_blocks;
        while budget > 0 {
            let (chunk, next) = replay.next;
            let chunk = replay.chunks.get(chunk).map(|found| found.header.sequence);
            let version = replay.invalidations.get(next).map(|next| next.version);
            let cost = match (chunk, version) {
                (None, None) => return true,
                (Some(chunk), version) if version.is_none_or(|version| chunk <= version) => {
                    self.replay_chunk(known, replay)
                }
                _ => self.replay_invalidation(known, replay, budget),
            };
            budget = budget.saturating_sub(cost.max(1));
        }
        self.crossings.note(Bound::ReplayBlocks);
        false
    }

    fn replay_chunk(&mut self, known: &mut Known, replay: &mut Replay) -> u64 {
        assert_eq!(self.index, Index::Partial, "an index in use is not replayed into");
        let Found { header, opened } = &replay.chunks[replay.next.0];
        replay.next.0 += 1;
        let slots = self.log.geometry.segment_slots();
        let (segment, count) = (header.slot / slots, header.entries.len() as u32);
        if known.emptied.get(&segment).is_some_and(|newest| header.sequence <= *newest) {
            return 1;
        }
        let owner = known.volumes.get(&header.group).copied().filter(|_| header.group != 0);
        let group = self.group_owned_by(owner);
        self.occupy(segment, group, *opened, header.sequence, header.slot % slots + 1 + count);
        let failed = replay.failed_chunks.get(&header.slot);
        if failed.is_some_and(|newest| *newest >= header.sequence) {
            return u64::from(count);
        }
        let blocks = self.believed_entries(known, header);
        self.prefetch_blocks(&blocks);
        for Believed { slot, key, hash, checksum } in blocks {
            if let Some(other) = self.descriptors.key(slot) {
                self.forget(slot, other);
            }
            let older = self.map.find(hash, |other| self.descriptors.is(other, key));
            if let Some(older) = older {
                self.forget(older, key);
            }
            self.settle(slot, key, Flags::default());
            self.descriptors.set_checksum(slot, checksum);
            self.enter_hashed(key, hash, slot);
            replay.replayed_blocks += 1;
        }
        u64::from(count)
    }

    /// The blocks of a chunk that may be believed. Nearly all are of one volume, mostly.
    fn believed_entries(&mut self, known: &mut Known, header: &ChunkHeader) -> Entries {
        let mut blocks = Entries::new();
        let mut newest = (0, None);
        for (slot, entry) in (header.slot + 1..).zip(&header.entries) {
            if entry.kind == RecordKind::Hole {
                continue;
            }
            if newest.0 != entry.incarnation || newest.1.is_none() {
                newest = (entry.incarnation, known.volumes.get(&entry.incarnation).copied());
            }
            let Some(volume) = newest.1 else { continue };
            let covered = entry.kind == RecordKind::Clean
                || known.is_flushed(entry.incarnation, header.session, header.sequence)
                || self.mutants.is(Mutant::RecordRetiredBeforeFlush);
            let alive = self.holdings[usize::from(volume)].alive;
            if !covered || !alive || entry.block >= VOLUME_BLOCKS_MAX {
                known.unflushed_blocks += u64::from(!covered);
                self.holdings[usize::from(volume)].passed_by += u64::from(!alive);
                continue;
            }
            if known.doubt.covers(entry.incarnation, entry.block, header.session) {
                known.doubtful_blocks += 1;
                continue;
            }
            let key = Key { volume, block: entry.block };
            blocks.push(Believed { slot, key, hash: self.hash(key), checksum: entry.checksum });
        }
        blocks
    }

    fn prefetch_blocks(&self, blocks: &Entries) {
        blocks.iter().for_each(|block| self.map.prefetch(block.hash));
        for block in blocks {
            let _ = self.map.find(block.hash, |slot| {
                self.descriptors.prefetch(slot);
                false
            });
        }
    }

    /// Applies some of a record; gives what it cost.
    fn replay_invalidation(&mut self, known: &Known, replay: &mut Replay, budget: u64) -> u64 {
        let cached_before = self.counters.cached_blocks;
        let Invalidation { incarnation, blocks, .. } = &replay.invalidations[replay.next.1];
        let (cost, done) = match (known.volumes.get(incarnation), blocks) {
            (Some(&volume), Blocks::Range(first, end)) => {
                let range = of_a_volume(*first, *end);
                self.invalidate_some(volume, range, &mut replay.within, budget)
            }
            (Some(&volume), Blocks::OfRegion(end)) => {
                let runs = end.runs().into_iter().map(|(first, end)| of_a_volume(first, end));
                runs.for_each(|run| self.invalidate_blocks(volume, run));
                (REGION_BLOCKS, true)
            }
            (None, _) => (1, true),
        };
        if done {
            replay.next.1 += 1;
            replay.within = 0;
        }
        assert!(
            self.counters.cached_blocks <= cached_before,
            "an invalidation only removes copies"
        );
        replay.overwritten_blocks += cached_before - self.counters.cached_blocks;
        cost
    }

    /// Invalidates a range from block `within` of it on, within the budget; gives the cost and whether
    /// it is done.
    fn invalidate_some(
        &mut self,
        volume: u16,
        blocks: std::ops::Range<u64>,
        within: &mut u64,
        budget: u64,
    ) -> (u64, bool) {
        assert!(blocks.start <= blocks.end, "cut off at the end of the largest volume");
        let count = blocks.end - blocks.start;
        if count > self.bounds.invalidate_lookups {
            self.crossings.note(Bound::InvalidateLookups);
            let slots = self.log.geometry.slots();
            assert!(*within <= u64::from(slots), "no further than the log goes");
            let from = *within as u32;
            let stop = u64::from(slots).min(*within + budget * 8) as u32;
            self.invalidate_slots(from..stop, |key| {
                key.volume == volume && blocks.contains(&key.block)
            });
            *within = u64::from(stop);
            return (u64::from(stop - from) / 8, stop == slots);
        }
        assert!(*within <= count, "no further than the range goes");
        let stop = count.min(*within + budget);
        self.invalidate_blocks(volume, blocks.start + *within..blocks.start + stop);
        let cost = stop - *within;
        *within = stop;
        (cost, stop == count)
    }

    /// Takes these blocks out of an index that is not in use yet.
    pub(crate) fn invalidate_blocks(&mut self, volume: u16, blocks: std::ops::Range<u64>) {
        assert_ne!(self.index, Index::InUse, "what leaves an index in use is recorded");
        for block in blocks {
            let key = Key { volume, block };
            if let Some(slot) = self.find_loaded(key) {
                self.forget(slot, key);
            }
        }
    }

    /// Takes out what lies in these slots and is `invalid`. The index is not in use yet: there is
    /// nothing in RAM.
    pub(crate) fn invalidate_slots(
        &mut self,
        slots: std::ops::Range<u32>,
        invalid: impl Fn(Key) -> bool,
    ) {
        assert_ne!(self.index, Index::InUse, "what leaves an index in use is recorded");
        for slot in slots {
            if let Some(key) = self.descriptors.key(slot)
                && invalid(key)
            {
                self.forget(slot, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record has 40 bits for a block, a volume 36; a region's number has 32, a volume 28.
    #[test]
    fn an_invalidation_beyond_every_volume_is_cut_off() {
        let end = VOLUME_BLOCKS_MAX;
        assert_eq!(of_a_volume(end - 2, end + 7), end - 2..end);
        assert_eq!(of_a_volume((1 << 40) - 1, (1 << 40) + 5), end..end);
        assert_eq!(of_a_volume(3, 7), 3..7);
        let region_end = |region| RegionEnd {
            incarnation: 1,
            region,
            opening: 1,
            version: 7,
            stale: [1, 0, 0, 0],
        };
        let run = |region| region_end(region).runs()[0];
        let runs = [1, u32::MAX].map(run).map(|(first, end)| of_a_volume(first, end));
        assert_eq!(runs, [256..257, end..end]);
    }
}
