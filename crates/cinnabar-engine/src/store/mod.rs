//! The store: which blocks are cached, where, and how they come and go.
//!
//! It joins the address map, the descriptors, probation, the ghost and the log; it knows keys and
//! data, not requests. Who may touch a block at a time is settled before (see `inflight`).

mod at_risk;
mod checkpoint;
mod cleaner;
mod doubt;
mod fill;
mod fill_cap;
mod invariants;
mod load;
mod overwrite;
mod partial;
mod replay;
mod size;

use crate::address_map::{AddressMap, Filling};
use crate::bounds::{Bounds, Crossings};
use crate::buffers::{Buffer, Buffers};
use crate::config::{Config, Endurance, Eviction};
use crate::counters::{CacheCounters, RamBytes};
use crate::descriptors::{Descriptors, Flags, Key};
use crate::ghost::Ghost;
use crate::journal::{Journal, Ticket};
use crate::log::shares::Stream;
use crate::log::{Log, SegmentState};
use crate::metadata::chunk::{ChunkHeader, Entry, RecordKind, block_seed, device_seed};
use crate::metadata::journal::Record;
use crate::metadata::superblock::Superblock;
use crate::mutant::{Mutant, Mutants};
use crate::outbox::{Outbox, Pending};
use crate::probation::Probation;
use crate::regions::Regions;
use crate::rehearsal::{Access, Rehearsal};
use crate::seam::{IoError, IoOp, Payload, Slices, Target};
use crate::units::{BLOCK_BYTES, Instant};
pub use at_risk::AtRisk;
pub(crate) use checkpoint::{CheckpointPhase, CheckpointWriter};
pub(crate) use cleaner::Cleaner;
pub(crate) use doubt::Doubt;
pub(crate) use fill::Origin;
pub(crate) use load::{Chain, Known, is_sound};
use partial::Partials;
pub(crate) use partial::Sectors;
pub(crate) use replay::Replay;

/// Buffers for chunks being filled and written, and for reinserted blocks, at most and at least.
const STAGING_BLOCKS: (u32, u32) = (1024, 8192);

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ram(Buffer),
    /// On flash only.
    Flash,
}

/// What the store keeps of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) incarnation: u32,
    pub(crate) group: u16,
    /// The incarnation lives; blocks of a dead one are dropped when they are come across.
    pub(crate) alive: bool,
    /// Blocks that the index has, those of a dead incarnation included until they are met.
    pub(crate) cached_blocks: u64,
    /// Of those, in RAM only.
    pub(crate) ram_blocks: u64,
    /// Blocks of a dead incarnation that a load did not take in.
    pub(crate) passed_by: u64,
    pub(crate) reuse: fill::WriteReuse,
    pub(crate) fill_cap: fill_cap::FillCap,
    /// Writes have completed that no backend flush covers.
    pub(crate) unflushed: bool,
    /// Written copies in chunks of this session up to this sequence number are covered by a flush.
    pub(crate) flushed: u64,
}

/// What was removed from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// Nothing.
    Absent,
    /// A copy that only RAM held.
    FromRam,
    /// A copy that the device holds, and would still hold after a crash.
    FromFlash,
}

/// How far the index can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// It is being loaded: nothing is found in it, and nothing comes in.
    Partial,
    /// All of it is loaded, but blocks that were written meanwhile are still in it. Nothing is found
    /// and nothing comes in; writes take out what they invalidate.
    InPlace,
    /// It is complete.
    InUse,
}

/// All that is cached by one shard.
pub(crate) struct Store<P> {
    seed: u64,
    uuid: [u8; 16],
    eviction: Eviction,
    endurance: Endurance,
    map: AddressMap,
    /// What is on its way into the map while an index is being loaded.
    filling: Option<Box<Filling>>,
    pub(crate) descriptors: Descriptors,
    ghost: Ghost,
    probation: Probation,
    partials: Partials<P>,
    rehearsal: Rehearsal,
    pub(crate) buffers: Buffers<P>,
    pub(crate) log: Log,
    cleaner: Cleaner,
    pub(crate) holdings: Vec<Holding>,
    counters: CacheCounters,
    chunk_age_ns_max: u64,
    pub(crate) journal: Journal,
    pub(crate) regions: Regions,
    /// Which session of the device this is.
    pub(crate) session: u32,
    /// An invalidation record that belongs to no request: every write waits for it.
    barrier: Ticket,
    /// Segments opened since the last checkpoint.
    pub(crate) opened: u32,
    /// Bytes have been given to the device that no flush covers.
    pub(crate) unflushed_log: bool,
    /// The device is not used any more: nothing is found, nothing comes in.
    pub(crate) dead: bool,
    /// Blocks may go to flash.
    pub(crate) admits: bool,
    /// Whether the index is complete.
    pub(crate) index: Index,
    pub(crate) bounds: Bounds,
    pub(crate) crossings: Crossings,
    pub(crate) mutants: Mutants,
}

impl<P: Payload> Store<P> {
    /// An empty store over a device with this superblock.
    pub(crate) fn new(config: &Config, superblock: &Superblock) -> Self {
        let geometry = superblock.geometry;
        assert!(geometry.is_laid_out(), "what is read is looked at before it is used");
        config.bounds.check();
        let capacity = geometry.capacity_blocks();
        assert!(capacity < u64::from(geometry.slots()), "each chunk has a header");
        let bound = superblock.segments_used;
        let default = Config::probation_for(capacity, geometry.shards);
        let probation = config.probation_blocks.unwrap_or(default as u32).clamp(1, 1 << 20);
        let staging = (capacity / 16).clamp(STAGING_BLOCKS.0.into(), STAGING_BLOCKS.1.into());
        let slots = geometry.slots() + probation;
        let capacity_blocks = geometry.blocks_of(bound);
        Self {
            seed: device_seed(superblock.uuid),
            uuid: superblock.uuid,
            eviction: config.eviction,
            endurance: config.endurance,
            map: AddressMap::new(slots),
            filling: None,
            descriptors: Descriptors::new(slots),
            ghost: Ghost::new(capacity as u32).reaching(capacity_blocks),
            probation: Probation::new(geometry.slots(), probation),
            partials: Partials::new(capacity, config.bounds.partial_blocks),
            rehearsal: Rehearsal::new(capacity, config.endurance, config.admission),
            buffers: Buffers::new(probation + staging as u32),
            log: Log::new(
                geometry,
                bound,
                u64::from(superblock.next_incarnation) << 32,
                match config.eviction {
                    Eviction::Probation => config.bounds.class_segments,
                    Eviction::Clock => u32::MAX,
                },
            ),
            cleaner: Cleaner::new(capacity_blocks, config.eviction, config.endurance),
            holdings: Vec::new(),
            counters: CacheCounters { capacity_blocks, ..CacheCounters::default() },
            chunk_age_ns_max: config.chunk_age_ns_max,
            journal: Journal::new(superblock, config),
            regions: Regions::new(
                config.bounds.regions,
                if config.mutants.is(Mutant::DoubtNotBounded) {
                    u64::from(u32::MAX)
                } else {
                    config.bounds.doubt_max(geometry.shards, capacity_blocks)
                },
            ),
            session: superblock.next_incarnation,
            barrier: Ticket::default(),
            opened: 0,
            unflushed_log: false,
            dead: false,
            admits: true,
            index: Index::InUse,
            bounds: config.bounds,
            crossings: Crossings::default(),
            mutants: config.mutants,
        }
    }

    /// Everything before this is given up; the ring has been blanked.
    pub(crate) fn begin_era(&mut self, superblock: &Superblock, config: &Config) {
        assert_eq!(self.counters.cached_blocks, 0, "nothing is cached when an era begins");
        assert!(self.journal.is_idle(), "no request waits for a record of the era before");
        assert!(self.regions.is_empty(), "and nothing was written");
        self.journal = Journal::new(superblock, config);
    }

    pub(crate) fn hash(&self, key: Key) -> u64 {
        key.hash(self.seed)
    }

    /// Seed of a block's checksum; see [`checksum_seed`](crate::metadata::chunk::checksum_seed).
    pub(crate) fn checksum_seed(&self, key: Key) -> u64 {
        let incarnation = self.holdings[usize::from(key.volume)].incarnation;
        block_seed(self.seed, incarnation, key.block)
    }

    /// First stage of a batched lookup: the buckets.
    pub(crate) fn prefetch_buckets(&self, hash: u64) {
        self.map.prefetch(hash);
    }

    /// Second stage: the descriptors of the candidates, or the ghost if there are none.
    pub(crate) fn prefetch_candidates(&self, hash: u64) {
        let mut candidates = false;
        let _ = self.map.find(hash, |slot| {
            candidates = true;
            self.descriptors.prefetch(slot);
            self.log.prefetch(slot);
            false
        });
        if !candidates {
            self.ghost.prefetch(hash);
        }
    }

    /// The slot of a block.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        if self.dead || self.index != Index::InUse {
            return None;
        }
        self.find_loaded(key)
    }

    /// As [`find`](Self::find), whether or not the index is in use.
    fn find_loaded(&self, key: Key) -> Option<u32> {
        self.map.find(self.hash(key), |slot| self.descriptors.is(slot, key))
    }

    /// Where the data of an occupied slot are.
    pub(crate) fn place(&self, slot: u32) -> Place {
        debug_assert!(self.descriptors.key(slot).is_some(), "an empty slot has no data");
        let buffer = if self.probation.holds(slot) {
            Some(self.probation.buffer(slot).expect("an occupied RAM slot has a buffer"))
        } else {
            self.log.buffer_of(slot)
        };
        buffer.map_or(Place::Flash, Place::Ram)
    }

    /// Whether an occupied slot is one of RAM.
    pub(crate) fn is_in_probation(&self, slot: u32) -> bool {
        self.probation.holds(slot)
    }

    /// A read has used the block in `slot`.
    pub(crate) fn touch(&mut self, slot: u32, key: Key) {
        debug_assert!(self.descriptors.is(slot, key), "what is used is what was asked for");
        let flags = self.descriptors.flags(slot);
        if flags.written() {
            self.holdings[usize::from(key.volume)].reuse.useful();
        }
        self.rehearse(key, Access::Read { hit: true });
        let refs = (flags.refs() + 1).min(self.eviction.refs_max());
        let touched = flags.with_refs(refs).with_written(false);
        if touched != flags {
            self.descriptors.set_flags(slot, touched);
        }
    }

    /// The small simulations see an access, if its block is one of the sample.
    #[inline]
    pub(crate) fn rehearse(&mut self, key: Key, access: Access) {
        if self.eviction == Eviction::Probation && self.rehearsal.samples(key) {
            let pays = self.holdings[usize::from(key.volume)].reuse.pays(self.endurance);
            let limit = self.log.limit(self.cleaner.air());
            self.rehearsal.access(key, access, pays, limit);
        }
    }

    /// Forgets the block in `slot`, which is `key`, and gives its buffer back if it was in probation.
    /// A copy on flash stays there: it is invalid once that is recorded.
    pub(crate) fn forget(&mut self, slot: u32, key: Key) {
        assert!(self.descriptors.is(slot, key), "another block is in slot {slot}");
        let removed = self.map.remove(self.hash(key), slot);
        assert!(removed, "a descriptor without an entry in the address map");
        self.vacate(slot, key);
    }

    /// Clears the descriptor of a slot whose map entry is gone.
    fn vacate(&mut self, slot: u32, key: Key) {
        self.unsettle(slot);
        let holding = &mut self.holdings[usize::from(key.volume)];
        assert!(holding.cached_blocks > 0, "a cached block counts for its volume");
        assert!(self.counters.cached_blocks >= holding.cached_blocks, "and for the cache");
        holding.cached_blocks -= 1;
        self.counters.cached_blocks -= 1;
        if self.probation.holds(slot)
            && let Some(buffer) = self.probation.take(slot)
        {
            self.buffers.give(buffer);
            self.count_out_of_ram(key);
        }
    }

    /// A block has left probation.
    fn count_out_of_ram(&mut self, key: Key) {
        let holding = &mut self.holdings[usize::from(key.volume)];
        assert!(holding.ram_blocks > 0, "a block in probation counts for its volume");
        assert!(self.counters.ram_blocks >= holding.ram_blocks, "and for the cache");
        holding.ram_blocks -= 1;
        self.counters.ram_blocks -= 1;
    }

    /// Lets an empty slot hold a block; the map is updated next.
    fn settle(&mut self, slot: u32, key: Key, flags: Flags) {
        assert!(self.descriptors.key(slot).is_none(), "slot {slot} holds a block already");
        self.descriptors.set(slot, key, flags);
        if !self.probation.holds(slot) {
            self.log.settle(slot);
        }
    }

    /// Lets an occupied slot hold nothing.
    fn unsettle(&mut self, slot: u32) {
        assert!(self.descriptors.key(slot).is_some(), "slot {slot} holds nothing");
        if !self.probation.holds(slot) {
            self.log.unsettle(slot, self.descriptors.flags(slot).condemned());
        }
        self.descriptors.clear(slot);
    }

    /// Forgets a block that is about to be overwritten or trimmed; says whether it was cached. A
    /// copy on flash must be recorded as invalid before the write is sent to the backend.
    pub(crate) fn remove(&mut self, key: Key) -> Removed {
        if self.dead || self.index == Index::Partial {
            return Removed::Absent;
        }
        let Some(slot) = self.find_loaded(key) else { return Removed::Absent };
        if self.descriptors.flags(slot).written() {
            self.holdings[usize::from(key.volume)].reuse.useless();
        }
        let on_flash = self.is_on_flash(slot);
        self.forget(slot, key);
        if on_flash { Removed::FromFlash } else { Removed::FromRam }
    }

    /// Whether blocks of incarnations that are gone are still cached.
    pub(crate) fn holds_dead(&self) -> bool {
        self.holdings.iter().any(|holding| !holding.alive && holding.cached_blocks > 0)
    }

    /// Takes out what these slots hold of incarnations that are gone.
    pub(crate) fn sweep_dead(&mut self, slots: std::ops::Range<u32>) {
        for slot in slots {
            if let Some(key) = self.descriptors.key(slot)
                && !self.holdings[usize::from(key.volume)].alive
            {
                self.forget(slot, key);
            }
        }
    }

    /// Whether the device holds, or may come to hold, a copy in this slot.
    fn is_on_flash(&self, slot: u32) -> bool {
        !self.probation.holds(slot) && self.log.is_submitted(slot)
    }

    /// Forgets a block whose copy on flash stays there, for a reason that no write knows of: every
    /// write waits until that is recorded.
    pub(crate) fn forget_durably(&mut self, slot: u32, key: Key) {
        let on_flash = self.is_on_flash(slot);
        self.forget(slot, key);
        if on_flash {
            self.invalidate_key(key);
        }
    }

    fn invalidate_key(&mut self, key: Key) {
        self.invalidate_durably(key.volume, key.block, key.block + 1);
    }

    /// These blocks were forgotten without their copies on flash being recorded as invalid: every
    /// write waits until they are.
    pub(crate) fn invalidate_durably(&mut self, volume: u16, first: u64, end: u64) {
        if !self.dead && !self.mutants.is(Mutant::ForgottenNotRecorded) {
            self.barrier = self.record_invalidation(volume, first, end);
        }
    }

    /// The record that every write has to wait for, whether or not it appends one of its own.
    pub(crate) fn barrier(&self) -> Option<Ticket> {
        (!self.journal.is_durable(self.barrier)).then_some(self.barrier)
    }

    /// Writes the chunk that a stream is filling, if there is one. Whatever is in it is in the map by
    /// now, or has left it again.
    pub(crate) fn submit_chunk(&mut self, stream: Stream, outbox: &mut Outbox<P>) {
        let Some(index) = self.log.take_chunk(stream) else { return };
        assert!(!self.dead, "a device that is lost is not written");
        let owner = self.log.groups[usize::from(stream.group)].owner;
        let chunk = &self.log.writing[index];
        assert_eq!(chunk.sequence, self.log.sequence, "a header has the next number");
        let mut header = ChunkHeader {
            uuid: self.uuid,
            sequence: chunk.sequence,
            session: self.session,
            slot: chunk.first,
            group: owner.map_or(0, |volume| self.holdings[usize::from(volume)].incarnation),
            entries: Vec::with_capacity(chunk.buffers.len()),
        };
        let mut data: Slices<P> = Slices::with_capacity(chunk.buffers.len());
        for (buffer, slot) in chunk.buffers.iter().zip(chunk.first + 1..) {
            debug_assert!(self.is_mapped_or_empty(slot), "slot {slot} is not in the map");
            header.entries.push(self.entry(slot));
            let slice = self.buffers.slice(*buffer);
            match data.last_mut() {
                Some(last) if last.at + last.len == slice.at => last.len += slice.len,
                _ => data.push(slice),
            }
        }
        let sequence = chunk.sequence;
        let slots = header.slot + 1..header.slot + 1 + header.entries.len() as u32;
        let bytes: u64 = data.iter().map(|slice| slice.len).sum();
        assert_eq!(bytes, header.entries.len() as u64 * BLOCK_BYTES, "an entry for each block");
        let offset = self.log.offset_of(chunk.first);
        let end = offset + BLOCK_BYTES + bytes;
        assert!(end <= self.log.geometry.region_bytes(), "a shard writes to its own region");
        let op = IoOp::WriteMeta { offset, pages: vec![header.encode()], data, fua: false };
        outbox.io(Target::Cache, op, Pending::Chunk { chunk: index });
        self.supersede(slots, sequence);
    }

    fn is_mapped_or_empty(&self, slot: u32) -> bool {
        let mapped = |key| self.map.find(self.hash(key), |other| other == slot).is_some();
        self.descriptors.key(slot).is_none_or(mapped)
    }

    fn entry(&self, slot: u32) -> Entry {
        match self.descriptors.key(slot) {
            Some(key) => {
                let holding = &self.holdings[usize::from(key.volume)];
                let unflushed = self.descriptors.flags(slot).unflushed() && holding.unflushed;
                Entry {
                    incarnation: holding.incarnation,
                    block: key.block,
                    kind: if unflushed { RecordKind::Written } else { RecordKind::Clean },
                    checksum: self.descriptors.checksum(slot),
                }
            }
            None => Entry { incarnation: 0, block: 0, kind: RecordKind::Hole, checksum: 0 },
        }
    }

    /// A chunk's write has ended: its blocks are on flash, or lost to the cache.
    pub(crate) fn chunk_written(&mut self, chunk: usize, result: Result<(), IoError>) {
        let chunk = self.log.written(chunk);
        for (buffer, slot) in chunk.buffers.iter().zip(chunk.first + 1..) {
            self.buffers.give(*buffer);
            if let Some(key) = self.descriptors.key(slot)
                && result.is_err()
            {
                self.forget(slot, key);
            }
        }
        if result.is_err() {
            self.counters.device_errors += 1;
            // Part of it may be on flash all the same.
            let version = self.log.sequence;
            self.barrier =
                self.journal.append(Record::ChunkInvalidation { slot: chunk.first, version });
        }
        self.unflushed_log = true;
    }

    /// Writes every chunk that has waited long enough; gives the next instant to look again.
    pub(crate) fn submit_aged(&mut self, now: Instant, outbox: &mut Outbox<P>) -> Option<Instant> {
        let mut next = None;
        for stream in self.log.streams() {
            let filled = self.log.chunk(stream).filter(|chunk| !chunk.buffers.is_empty());
            let Some(opened) = filled.map(|chunk| chunk.opened) else {
                self.log.seal_if_abandoned(stream);
                continue;
            };
            let due = opened.plus_ns(self.chunk_age_ns_max);
            if due <= now {
                self.submit_chunk(stream, outbox);
            } else {
                next = Some(next.map_or(due, |n: Instant| n.min(due)));
            }
        }
        next
    }

    /// A read of a block on flash begins or ends: its segment stays as it is meanwhile.
    pub(crate) fn pin(&mut self, slot: u32) {
        debug_assert!(!self.probation.holds(slot), "slot {slot} is one of RAM");
        let segment = self.log.segment_of(slot);
        let segment = &mut self.log.segments[segment as usize];
        assert_ne!(segment.state, SegmentState::Free, "a read of a free segment");
        segment.pins += 1;
    }

    /// See [`pin`](Self::pin).
    pub(crate) fn unpin(&mut self, slot: u32) {
        let segment = self.log.segment_of(slot);
        let segment = &mut self.log.segments[segment as usize];
        assert!(segment.pins > 0, "a read that ends has pinned its segment");
        assert_ne!(segment.state, SegmentState::Free, "a segment is reused under a read");
        segment.pins -= 1;
    }

    /// Counters; what others count is added by the engine.
    pub(crate) fn counters(&self) -> CacheCounters {
        let (cached_blocks, ram_blocks) = self.servable_blocks();
        let (active_regions, doubt_blocks) = self.regions.load();
        CacheCounters {
            active_regions,
            doubt_blocks,
            cached_blocks,
            ram_blocks,
            staged_blocks: self.log.staged_blocks(),
            partial_blocks: self.partials.len(),
            trials: self.rehearsal.trials(),
            ..self.counters
        }
    }

    /// Blocks that may be served, and how many of them are in RAM only. Blocks of dead incarnations
    /// stay in the index until they are met, but no read finds them and no crash brings them back.
    fn servable_blocks(&self) -> (u64, u64) {
        let CacheCounters { cached_blocks, ram_blocks, .. } = self.counters;
        if self.mutants.is(Mutant::DeadBlocksCounted) {
            return (cached_blocks, ram_blocks);
        }
        let dead = self.holdings.iter().filter(|holding| !holding.alive);
        dead.fold((cached_blocks, ram_blocks), |(cached, ram), holding| {
            (cached - holding.cached_blocks, ram - holding.ram_blocks)
        })
    }

    pub(crate) fn count_checksum_failure(&mut self) {
        self.counters.checksum_failures += 1;
    }

    pub(crate) fn count_device_error(&mut self) {
        self.counters.device_errors += 1;
    }

    /// RAM held, by part.
    pub(crate) fn ram_bytes(&self) -> RamBytes {
        let segments = self.log.segments.len() * size_of::<crate::log::Segment>();
        let (partial_data, partial_table) = self.partials.ram_bytes();
        let filling = self.filling.as_ref().map_or(0, |filling| filling.ram_bytes());
        RamBytes {
            address_map: self.map.ram_bytes(),
            descriptors: self.descriptors.ram_bytes(),
            ghost: self.ghost.ram_bytes(),
            buffers: u64::from(self.buffers.total()) * BLOCK_BYTES + partial_data,
            other: (segments + self.holdings.len() * size_of::<Holding>()) as u64
                + u64::from(self.probation.len()) * 4
                + partial_table
                + filling
                + self.regions.ram_bytes()
                + self.rehearsal.ram_bytes()
                + self.journal.ram_bytes(),
        }
    }

    /// The large tables, for a driver that wants to back them with huge pages before first use.
    pub(crate) fn tables(&self) -> [(*const u8, usize); 3] {
        let (map, descriptors, ghost) =
            (self.map.table(), self.descriptors.table(), self.ghost.table());
        [
            (map.as_ptr().cast(), size_of_val(map)),
            (descriptors.as_ptr(), size_of_val(descriptors)),
            (ghost.as_ptr().cast(), size_of_val(ghost)),
        ]
    }
}
