//! Incomplete blocks: absent ones that were written in part, by sectors and in RAM only.
//!
//! A guest whose partitions are not aligned writes the end of one block with one request and the rest
//! of it with the next one. The table is apart from the address map and the descriptors: what serves,
//! moves, saves or recovers whole blocks never meets an incomplete one, so none can reach flash, a
//! checkpoint or the journal, and none survives a crash. The backend has all that is here.
//!
//! An incomplete block leaves the table at the start of any write, trim, zeroing or invalidation that
//! touches it, when a read of it has brought the whole block, with its volume, with the device, and
//! when it is the oldest and the table is full. It comes back, larger, when the backend has
//! acknowledged the write.

use super::{Index, Key, Store};
use crate::bounds::Bound;
use crate::buffers::{Buffer, Buffers};
use crate::mutant::Mutant;
use crate::seam::Payload;
use crate::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, sector_runs};
use std::collections::BTreeMap;

/// Blocks of capacity for one incomplete block, and incomplete blocks of a small cache.
const BLOCKS_PER: u64 = 256;
const PARTIALS_MIN: u64 = 64;

const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES == u8::BITS as u64);

/// Some of a block's eight sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sectors(u8);

impl Sectors {
    pub(crate) const ALL: Self = Self(u8::MAX);

    /// Those of `block` that are within `span`, which touches it.
    pub(crate) fn of(span: ByteSpan, block: u64) -> Self {
        Self(span.sectors_in(block))
    }

    /// Whether all of `other` are among them.
    pub(crate) const fn cover(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Consecutive ones, as first byte within the block and length in bytes.
    fn runs(self) -> impl Iterator<Item = (u64, u64)> {
        sector_runs(self.0)
    }
}

/// Incomplete blocks of a cache of `capacity` blocks, but at most `most`.
fn room(capacity: u64, most: u32) -> u32 {
    (capacity / BLOCKS_PER).max(PARTIALS_MIN).min(most.into()) as u32
}

/// Copies these sectors of a block from the block at a byte of one payload to that of another.
fn copy<P: Payload>(sectors: Sectors, to: (&P, u64), from: (&P, u64)) {
    for (at, len) in sectors.runs() {
        to.0.copy_from(to.1 + at, from.0, from.1 + at, len);
    }
}

#[derive(Debug)]
struct Partial {
    sectors: Sectors,
    buffer: Buffer,
    /// Its place in the order.
    age: u64,
}

/// The incomplete blocks of a shard. What is not known of a block is zeros in its buffer.
pub(crate) struct Partials<P> {
    blocks: BTreeMap<(u16, u64), Partial>,
    /// The least recently written one first.
    order: BTreeMap<u64, Key>,
    next_age: u64,
    buffers: Buffers<P>,
}

impl<P: Payload> Partials<P> {
    /// Room for so many as a cache of `capacity` blocks has, but at most `most`.
    pub(super) fn new(capacity: u64, most: u32) -> Self {
        Self {
            blocks: BTreeMap::new(),
            order: BTreeMap::new(),
            next_age: 0,
            buffers: Buffers::new(room(capacity, most)),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Bytes of RAM for data and for the table, at most.
    pub(super) fn ram_bytes(&self) -> (u64, u64) {
        let room = u64::from(self.buffers.total());
        let entry = size_of::<((u16, u64), Partial)>() + size_of::<(u64, Key)>();
        (room * BLOCK_BYTES, room * entry as u64 * 3 / 2)
    }

    fn remove(&mut self, key: Key) -> bool {
        let Some(partial) = self.blocks.remove(&(key.volume, key.block)) else { return false };
        let place = self.order.remove(&partial.age);
        assert_eq!(place, Some(key), "an incomplete block's place in the order");
        assert_eq!(self.order.len(), self.blocks.len(), "each has one");
        self.buffers.give(partial.buffer);
        true
    }

    /// A block at or behind `first` and before `end`.
    fn any(&self, volume: u16, first: u64, end: u64) -> Option<Key> {
        let (&(volume, block), _) = self.blocks.range((volume, first)..(volume, end)).next()?;
        Some(Key { volume, block })
    }

    /// Checks that table, order and buffers agree; `check` gets each block.
    pub(super) fn check_invariants(&self, check: impl Fn(Key)) {
        for (&(volume, block), partial) in &self.blocks {
            let key = Key { volume, block };
            assert_eq!(self.order.get(&partial.age), Some(&key), "an incomplete block's place");
            assert_ne!(partial.sectors, Sectors::ALL, "an incomplete block is not complete");
            assert_ne!(partial.sectors, Sectors(0), "an incomplete block has sectors");
            check(key);
        }
        assert_eq!(self.order.len(), self.blocks.len(), "places of incomplete blocks");
        let used = self.buffers.total() - self.buffers.available();
        assert_eq!(u64::from(used), self.len(), "each incomplete block has a buffer");
    }
}

impl<P: Payload> Store<P> {
    fn partial(&self, key: Key) -> Option<&Partial> {
        if self.partials.blocks.is_empty() || self.dead || self.index != Index::InUse {
            return None;
        }
        self.partials.blocks.get(&(key.volume, key.block))
    }

    /// Copies the sectors that are asked for to the block at a byte of `to`, if all of them are there.
    pub(crate) fn serve_partial(&mut self, key: Key, asked: Sectors, to: (&P, u64)) -> bool {
        let Some(partial) = self.partial(key) else { return false };
        let careless = self.mutants.is(Mutant::PartialServedWhole);
        let served = partial.sectors.cover(asked) || careless;
        if served {
            copy(asked, to, (self.partials.buffers.data(), partial.buffer.at()));
            self.counters.partials_read += 1;
        }
        served
    }

    /// Copies what is known of a block, but for the sectors in `newer`; gives both together.
    pub(crate) fn merge_partial(&self, key: Key, newer: Sectors, to: (&P, u64)) -> Sectors {
        let Some(partial) = self.partial(key) else { return newer };
        let older = partial.sectors.without(newer);
        copy(older, to, (self.partials.buffers.data(), partial.buffer.at()));
        newer.and(older)
    }

    /// The backend has acknowledged the last sectors that were missing of a block.
    pub(crate) fn count_completed_partial(&mut self) {
        self.counters.partials_completed += 1;
    }

    /// Keeps these sectors, some but not all, of an absent block of which nothing is known.
    pub(crate) fn keep_partial(&mut self, key: Key, sectors: Sectors, from: (&P, u64)) {
        if self.dead || self.index != Index::InUse {
            return;
        }
        assert!(sectors != Sectors(0) && sectors != Sectors::ALL, "a block known in part");
        if self.partials.buffers.available() == 0 {
            self.drop_oldest_partial();
        }
        if self.mutants.is(Mutant::PartialNotTakenOut) {
            self.partials.remove(key);
        }
        let Some(buffer) = self.partials.buffers.take() else { return };
        let partials = &mut self.partials;
        let (data, at) = (partials.buffers.data(), buffer.at());
        data.zero(at, BLOCK_BYTES);
        copy(sectors, (data, at), from);
        let age = partials.next_age;
        partials.next_age += 1;
        partials.order.insert(age, key);
        let old = partials.blocks.insert((key.volume, key.block), Partial { sectors, buffer, age });
        assert!(old.is_none(), "a write takes out what was known of its blocks");
        let used = partials.buffers.total() - partials.buffers.available();
        assert_eq!(u64::from(used), partials.len(), "each incomplete block has a buffer");
    }

    /// The ghost remembers the block, as one that left probation.
    fn drop_oldest_partial(&mut self) {
        let Some((_, &key)) = self.partials.order.first_key_value() else { return };
        self.crossings.note(Bound::PartialBlocks);
        self.counters.partials_dropped += 1;
        self.partials.remove(key);
        self.ghost.insert(self.hash(key), true);
    }

    /// The device is lost: nothing is served or kept without it.
    pub(crate) fn drop_all_partials(&mut self) {
        while let Some((_, &key)) = self.partials.order.first_key_value() {
            self.partials.remove(key);
        }
        assert!(self.partials.blocks.is_empty(), "each is in the order");
    }

    /// Nothing is known any more of these blocks but what the address map says.
    pub(crate) fn drop_partials(&mut self, volume: u16, first: u64, end: u64) {
        while let Some(key) = self.partials.any(volume, first, end) {
            self.partials.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;

    fn of(block: u64, first: u64, count: u64) -> Sectors {
        let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
        Sectors::of(span, block)
    }

    #[test]
    fn sectors_of_a_span_within_a_block() {
        assert_eq!(of(0, 0, 8), Sectors::ALL);
        assert_eq!(of(0, 0, 1), Sectors(0b1));
        assert_eq!(of(0, 7, 9), Sectors(0b1000_0000));
        assert_eq!(of(1, 7, 9), Sectors::ALL);
        assert_eq!(of(1, 7, 4), Sectors(0b111));
        assert_eq!(of(2, 19, 2), Sectors(0b1_1000));
    }

    #[test]
    fn room_grows_with_the_cache_between_its_bounds() {
        let most = Bounds::default().partial_blocks;
        let rooms = [(1, 64), (65 * 256 - 1, 64), (65 * 256, 65), (1023 * 256, 1023)];
        for (capacity, wanted) in rooms.into_iter().chain([(1025 * 256, 1024), (1 << 32, 1024)]) {
            assert_eq!(room(capacity, most), wanted, "of {capacity} blocks");
        }
        assert_eq!((room(1, 2), room(1 << 32, 2)), (2, 2));
    }

    #[test]
    fn runs_are_the_sectors_and_nothing_else() {
        for bits in 0..=u8::MAX {
            let mut seen = 0u8;
            for (at, len) in Sectors(bits).runs() {
                for sector in at / SECTOR_BYTES..(at + len) / SECTOR_BYTES {
                    assert_eq!(seen >> sector & 1, 0, "{bits:08b}: {sector} twice");
                    seen |= 1 << sector;
                }
            }
            assert_eq!(seen, bits);
        }
        assert_eq!(Sectors(0b0110_0001).runs().collect::<Vec<_>>(), [(0, 512), (2560, 1024)]);
    }
}
