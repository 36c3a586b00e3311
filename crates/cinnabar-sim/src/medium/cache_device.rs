//! A simulated cache device: blocks of stamps (cached data) or of real bytes (metadata), behind a
//! write cache that a power cut empties.
//!
//! Called through [`Media`](super::Media), and by drivers that damage it.

use crate::machine::Format;
use crate::medium::cell::Contents;
use crate::medium::rules;
use crate::medium::transfer::{Transfer, block_of};
use crate::medium::volatile::Volatile;
use crate::rng::Rng;
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped, mix};
use crate::violation::{Kind, Violation};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{IoError, IoOp, IoRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A block.
#[derive(Clone, Debug)]
struct Cell {
    contents: Contents,
    /// Not what was written last: rotten, torn, lost or misdirected.
    rotten: bool,
}

/// What a power cut did to a cache device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Blocks that went back to older contents.
    pub lost: u64,
    /// Metadata pages that are old in some sectors and new in others.
    pub torn_pages: u64,
    /// So are blocks of data.
    pub torn_data: u64,
}

/// What a place of a cache device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Superblock,
    Journal,
    Checkpoint,
    Log,
}

/// Copies of the superblock, at the beginning of a region.
const SUPERBLOCKS: usize = 2;

/// Blocks that have room together or none, where a power cut leaves it to chance.
const ROOM_TOGETHER: usize = 64;

/// How a device dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Every I/O fails.
    Fails,
    /// Every I/O hangs, and fails in the end.
    Hangs,
}

#[derive(Debug)]
pub struct CacheDevice {
    cells: Vec<Cell>,
    /// Blocks for which there is no room.
    roomless: BTreeSet<usize>,
    /// Whether there is room for a block, where a power cut may undo that.
    unsettled: BTreeMap<usize, Volatile<bool>>,
    /// Whether there ever was less room than the device was formatted for.
    resized: bool,
    volatile: BTreeMap<usize, Volatile<Contents>>,
    /// Blocks of a region; it begins with its superblocks.
    region: usize,
    /// First block of a region's checkpoints.
    checkpoints: usize,
    /// First block of a region's log.
    log: usize,
    rotten_reads: u64,
    data_blocks_written: u64,
    meta_blocks_written: u64,
    /// Which of all cache devices this is.
    pub serial: u8,
    /// A copy of a superblock has gone astray.
    pub superblock_astray: bool,
    /// Something happened to it that costs cached blocks, or everything: errors, rot, death.
    pub damaged: bool,
    death: Option<Death>,
}

impl CacheDevice {
    /// A freshly formatted device.
    pub fn new(format: &Format) -> Self {
        let empty = Cell { contents: Contents::Empty, rotten: false };
        let region = format.region_blocks as usize;
        let mut cells = vec![empty; region * format.superblocks.len()];
        for (region, pages) in cells.chunks_exact_mut(region).zip(&format.superblocks) {
            for (cell, page) in region.iter_mut().zip(pages) {
                cell.contents = Contents::meta(page);
            }
        }
        let checkpoints = format.checkpoints as usize;
        Self { region, checkpoints, ..Self::of(cells, format.log as usize) }
    }

    /// The device that there was, formatted again: its superblocks are new, and its journal and its
    /// checkpoints are left from before, durably. The daemon's format blanks the journal and the
    /// checkpoints' heads; an engine does not rely on that. If the size differs, it is a new device.
    #[must_use]
    pub fn formatted_over(format: &Format, old: &Self) -> Self {
        let mut device = Self::new(format);
        let region = device.region;
        if (old.cells.len(), old.region, old.log) != (device.cells.len(), region, device.log) {
            return device;
        }
        for (at, (cell, old)) in device.cells.iter_mut().zip(&old.cells).enumerate() {
            if (format.superblocks[0].len()..device.log).contains(&(at % region)) {
                cell.clone_from(old);
            }
        }
        device
    }

    /// No device at all.
    pub fn none() -> Self {
        Self::of(Vec::new(), 0)
    }

    fn of(cells: Vec<Cell>, log: usize) -> Self {
        Self {
            cells,
            roomless: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            resized: false,
            volatile: BTreeMap::new(),
            region: 1,
            checkpoints: log,
            log,
            rotten_reads: 0,
            data_blocks_written: 0,
            meta_blocks_written: 0,
            serial: 0,
            superblock_astray: false,
            damaged: false,
            death: None,
        }
    }

    /// Its size.
    pub fn blocks(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Rotten blocks handed to the engine so far, each time counted.
    pub fn rotten_reads(&self) -> u64 {
        self.rotten_reads
    }

    /// Blocks written so far: data, metadata.
    pub fn written_blocks(&self) -> (u64, u64) {
        (self.data_blocks_written, self.meta_blocks_written)
    }

    /// What this byte belongs to.
    pub fn part(&self, offset: u64) -> Part {
        match (offset / BLOCK_BYTES) as usize % self.region {
            0 | 1 => Part::Superblock,
            block if block < self.checkpoints => Part::Journal,
            block if block < self.log => Part::Checkpoint,
            _ => Part::Log,
        }
    }

    pub fn has_log(&self) -> bool {
        self.cells.len() > self.log
    }

    /// Blocks of the log that a power cut could take back.
    pub fn volatile_log_blocks(&self) -> u64 {
        self.volatile.keys().filter(|block| self.is_log(**block)).count() as u64
    }

    /// Could a power cut take back what is at this byte, or one of the `before` blocks before it?
    pub fn is_volatile(&self, offset: u64, before: u64) -> bool {
        let block = (offset / BLOCK_BYTES) as usize;
        let first = block.saturating_sub(before as usize);
        self.volatile.range(first..=block).next().is_some()
    }

    fn is_log(&self, block: usize) -> bool {
        block % self.region >= self.log
    }

    /// Where some region begins.
    fn any_region(&self, rng: &mut Rng) -> usize {
        let regions = self.regions();
        if regions > 1 { rng.below(regions) as usize * self.region } else { 0 }
    }

    fn regions(&self) -> u64 {
        (self.cells.len() / self.region) as u64
    }

    /// What its regions begin with.
    pub fn superblocks(&self) -> Vec<[MetaPage; 2]> {
        let firsts = (0..self.regions()).map(|region| region * self.region as u64);
        firsts.map(|first| [self.page(first), self.page(first + 1)]).collect()
    }

    /// From now on nothing works any more.
    pub fn die(&mut self, death: Death) {
        self.death = Some(death);
        self.damaged = true;
    }

    pub fn is_dead(&self) -> bool {
        self.death.is_some()
    }

    /// Is it dead, and silent?
    pub fn hangs(&self) -> bool {
        self.death == Some(Death::Hangs)
    }

    /// How many blocks of each volume the log holds a whole copy of, as `current` says that it should
    /// be now.
    pub fn sound_copies(
        &self,
        current: impl Fn(usize, u64) -> Option<[Stamp; BLOCK_SECTORS]>,
    ) -> BTreeMap<usize, u64> {
        let mut found = BTreeSet::new();
        let log = self.cells.iter().enumerate().filter(|(block, _)| self.is_log(*block));
        for (_, cell) in log.filter(|(_, cell)| !cell.rotten) {
            let Contents::Data(stamps) = &cell.contents else { continue };
            let Some((volume, sector)) = stamps.iter().find_map(|stamp| stamp.origin()) else {
                continue;
            };
            let block = sector / BLOCK_SECTORS as u64;
            if current(volume, block).as_ref() == Some(stamps) {
                found.insert((volume, block));
            }
        }
        let mut copies = BTreeMap::new();
        for (volume, _) in found {
            *copies.entry(volume).or_insert(0) += 1;
        }
        copies
    }

    /// What may not be asked of the room there is: a write where there is none, or behind the size
    /// that every copy of the region's superblock says durably; or to give back what one of them says
    /// is used. A superblock that went astray, or rotted, says nothing.
    pub(super) fn check_room(&self, request: &IoRequest<Stamped>) -> Result<(), Violation> {
        let trims = matches!(request.op, IoOp::Trim { .. });
        if !(self.resized || trims) {
            return Ok(());
        }
        let Some((blocks, writes)) = rules::cache_blocks(&request.op) else { return Ok(()) };
        let first = blocks.start as usize;
        if !writes || !self.is_log(first) {
            return Ok(());
        }
        let bad = |why: &str| Err(Violation::new(Kind::BadIo, format!("{why}: {request:?}")));
        let (first, end) = (first, blocks.end as usize);
        if !trims && self.roomless.range(first..end).next().is_some() {
            return bad("a write where the device has no room");
        }
        let base = first / self.region * self.region;
        let sizes = [base, base + 1].map(|copy| {
            let copies = [self.page(copy as u64), MetaPage::zeroed()];
            let sound = Superblock::decode(&copies).ok().filter(|_| !self.superblock_astray)?;
            let slots = sound.geometry.segment_slots();
            Some(base + self.log + (sound.segments_used * slots) as usize)
        });
        let sizes = sizes.into_iter().flatten();
        let (least, most) = (sizes.clone().min(), sizes.max());
        if trims && most.is_some_and(|most| first < most) {
            return bad("room is given back that a superblock says is used");
        }
        if !trims && least.is_some_and(|least| end > least) {
            return bad("a write behind the size that a superblock says");
        }
        Ok(())
    }

    /// Of each region, the segments that have room, from the first one on.
    pub fn segments_with_room(&self) -> Vec<u32> {
        let regions = (0..self.regions()).map(|region| region as usize * self.region);
        let room = |base: usize| {
            let copies = [self.page(base as u64), self.page(base as u64 + 1)];
            let slots = Superblock::decode(&copies).map_or(1, |s| s.geometry.segment_slots());
            let end = base + self.region;
            let first = self.roomless.range(base..end).next().copied().unwrap_or(end);
            ((first - base - self.log) / slots as usize) as u32
        };
        regions.map(room).collect()
    }

    /// The bytes of a block.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn page(&self, block: u64) -> MetaPage {
        self.cells[block as usize].contents.page()
    }

    /// The same, read as data.
    pub fn data(&self, block: u64) -> Stamped {
        Stamped::from_stamps(self.cells[block as usize].contents.stamps().to_vec())
    }

    /// Overwrites a block with bytes, behind the engine's back.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn set_page(&mut self, block: u64, page: &MetaPage) {
        self.cells[block as usize] = Cell { contents: Contents::meta(page), rotten: true };
    }

    /// Lets a block of cached data rot, near a random place: bits that flipped, or the contents of
    /// another block, as a misdirected write leaves them. False if there is none.
    pub fn rot(&mut self, rng: &mut Rng) -> bool {
        let Some(victim) = self.data_near(rng) else { return false };
        let before = &self.cells[victim].contents;
        let after = match self.data_near(rng).filter(|_| rng.chance(0.5)) {
            Some(other) => self.cells[other].contents.clone(),
            None => before.rotten(rng),
        };
        if after == *before {
            return false;
        }
        self.cells[victim] = Cell { contents: after, rotten: true };
        true
    }

    /// Lets a metadata page rot, near a random place; the superblocks seldom. None if there is none.
    pub fn rot_metadata(&mut self, rng: &mut Rng) -> Option<u64> {
        if self.cells.is_empty() {
            return None;
        }
        let base = self.any_region(rng);
        // Half of the time outside of the log: journal and checkpoints are small beside it.
        let end = base + if rng.chance(0.5) { self.log } else { self.region };
        let from = base + if rng.chance(0.1) { 0 } else { 2 };
        let at = rng.within(from as u64..end as u64) as usize;
        let cells = &self.cells;
        let is_meta = |index: usize| matches!(cells[index].contents, Contents::Meta(_));
        let victim = (at..end).chain(from..at).find(|index| is_meta(*index))?;
        let other = (victim - base < 2).then(|| base + 1 - (victim - base));
        let contents = self.cells[victim].contents.rotten(rng);
        self.cells[victim] = Cell { contents, rotten: true };
        if let Some(other) =
            other.filter(|other| matches!(self.cells[*other].contents, Contents::Meta(_)))
        {
            // Both copies of the superblock: next to each other, they seldom go alone.
            let contents = self.cells[other].contents.rotten(rng);
            self.cells[other] = Cell { contents, rotten: true };
        }
        self.damaged = true;
        Some(victim as u64)
    }

    /// Lets every block of cached data rot.
    pub fn rot_everything(&mut self) {
        let mut rng = Rng::new(0);
        for cell in &mut self.cells {
            if let Contents::Data(_) = cell.contents {
                *cell = Cell { contents: cell.contents.rotten(&mut rng), rotten: true };
            }
        }
    }

    fn data_near(&self, rng: &mut Rng) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let at = rng.below(self.blocks()) as usize;
        let is_data = |&index: &usize| matches!(self.cells[index].contents, Contents::Data(_));
        (at..self.cells.len()).chain(0..at).find(is_data)
    }

    /// A place where `len` blocks of an I/O of `range` can go by mistake, apart from that: a log
    /// for what is meant for a log, a checkpoint for what is meant for a checkpoint, of any shard.
    /// A journal's page goes to another place of the same ring: anywhere else it could not be
    /// missed before the next one is written. A copy of the superblock goes anywhere but to the
    /// other copy, once in the life of a device: without the other copy it could not be seen that
    /// it is an old one.
    pub fn elsewhere(&self, rng: &mut Rng, range: &Range<u64>, len: u64) -> Option<u64> {
        let own = range.start / self.region as u64 * self.region as u64;
        let (area, base) = match self.part(range.start * BLOCK_BYTES) {
            Part::Log => (self.log..self.region, None),
            Part::Checkpoint => (self.checkpoints..self.log, None),
            Part::Journal => (SUPERBLOCKS..self.checkpoints, Some(own)),
            Part::Superblock if self.superblock_astray => return None,
            Part::Superblock => (SUPERBLOCKS..self.region, Some(own)),
        };
        let base = base.unwrap_or_else(|| self.any_region(rng) as u64);
        let last = (area.end as u64).checked_sub(len).filter(|last| *last > area.start as u64)?;
        let place = base + rng.within(area.start as u64..last + 1);
        (place + len <= range.start || range.end <= place).then_some(place)
    }

    /// A place of metadata, apart from `range`, that a read can go to by mistake. Never one that is
    /// still empty: that would look like metadata that were never written.
    pub fn metadata_elsewhere(&self, rng: &mut Rng, range: &Range<u64>, len: u64) -> Option<u64> {
        let place = rng.below((self.blocks() + 1).checked_sub(len)?);
        let written = |block: u64| {
            let contents = &self.cells[block as usize].contents;
            matches!(contents, Contents::Meta(_))
                && *contents != Contents::meta(&MetaPage::zeroed())
        };
        let apart = place + len <= range.start || range.end <= place;
        (apart && (place..place + len).all(written)).then_some(place)
    }

    /// There is room for a block from now on, or none: then it holds what it did, or nothing.
    fn effect_on_room(&mut self, transfer: &Transfer, block: usize) {
        self.resized = true;
        let (had, has) =
            (!self.roomless.contains(&block), matches!(transfer.request.op, IoOp::MakeRoom { .. }));
        let unsettled = self.unsettled.entry(block).or_insert_with(|| Volatile::new(had));
        unsettled.put(has, transfer.started);
        if has {
            self.roomless.remove(&block);
            return;
        }
        self.roomless.insert(block);
        let cell = &mut self.cells[block];
        cell.rotten = true;
        if mix(transfer.started ^ (block as u64 / 8) << 32) & 1 == 0 {
            cell.contents = Contents::Empty;
            self.volatile.remove(&block);
        }
    }

    pub(super) fn effect(&mut self, transfer: &mut Transfer, units: Range<usize>) {
        for unit in units {
            if transfer.is_about_room() {
                let (block, _) = transfer.block_of(unit);
                self.effect_on_room(transfer, block);
                continue;
            }
            let (meant, block) = transfer.block_of(unit);
            let astray = meant != block;
            let contents = match &transfer.request.op {
                IoOp::Read { .. } => {
                    let cell = &self.cells[block];
                    let wrong = cell.rotten || astray;
                    self.rotten_reads += u64::from(wrong);
                    let stamps = cell.contents.stamps();
                    transfer.data[unit * BLOCK_SECTORS..][..BLOCK_SECTORS].copy_from_slice(&stamps);
                    continue;
                }
                IoOp::ReadMeta { .. } => {
                    transfer.pages[unit] = self.page(block as u64);
                    continue;
                }
                IoOp::Write { .. } => Contents::Data(block_of(&transfer.data, unit)),
                IoOp::WriteMeta { pages, .. } => match pages.get(unit) {
                    Some(page) => Contents::meta(page),
                    None => Contents::Data(block_of(&transfer.data, unit - pages.len())),
                },
                IoOp::WriteZeroes { .. } => Contents::Empty,
                IoOp::Trim { .. }
                | IoOp::MakeRoom { .. }
                | IoOp::Flush
                | IoOp::Prove
                | IoOp::BumpGeneration { .. } => continue,
            };
            self.put(block, contents, transfer.started, astray);
        }
    }

    fn put(&mut self, block: usize, contents: Contents, by: u64, rotten: bool) {
        let cell = Cell { contents: contents.clone(), rotten };
        let old = std::mem::replace(&mut self.cells[block], cell);
        let volatile = self.volatile.entry(block).or_insert_with(|| Volatile::new(old.contents));
        volatile.put(contents, by);
    }

    pub(super) fn finish(&mut self, transfer: &Transfer, result: Result<(), IoError>, tick: u64) {
        let (op, began) = (&transfer.request.op, transfer.started);
        match op {
            IoOp::Flush if result.is_ok() => {
                self.volatile.retain(|_, volatile| !volatile.flush(began));
                self.unsettled.retain(|_, room| !room.flush(began));
            }
            IoOp::Trim { .. } | IoOp::MakeRoom { .. } => {
                for unit in 0..transfer.units() {
                    if let Some(room) = self.unsettled.get_mut(&transfer.block_of(unit).0) {
                        room.complete(began, tick, false);
                    }
                }
            }
            IoOp::Write { fua, .. } | IoOp::WriteMeta { fua, .. } => {
                let data = (transfer.data.len() / BLOCK_SECTORS) as u64;
                self.data_blocks_written += data;
                self.meta_blocks_written += transfer.units() as u64 - data;
                let durable = *fua && result.is_ok();
                for unit in 0..transfer.units() {
                    let (meant, block) = transfer.block_of(unit);
                    // What should be there is not.
                    self.cells[meant].rotten |= meant != block;
                    let Some(volatile) = self.volatile.get_mut(&block) else { continue };
                    if volatile.complete(began, tick, durable) {
                        self.volatile.remove(&block);
                    }
                }
            }
            _ => {}
        }
    }

    /// The engine died: what its writes left counts as complete, and what they did not is missing.
    pub(super) fn abandon(&mut self, tick: u64) {
        self.volatile.values_mut().for_each(|volatile| volatile.abandon(tick));
        self.unsettled.values_mut().for_each(|room| room.abandon(tick));
    }

    /// These blocks of a write that was under way will never be written.
    pub(super) fn miss(&mut self, transfer: &Transfer, units: Range<usize>) {
        if transfer.writes() && !transfer.is_about_room() {
            let first = (rules::offset_bytes(&transfer.request.op) / BLOCK_BYTES) as usize;
            self.cells[first + units.start..first + units.end]
                .iter_mut()
                .for_each(|cell| cell.rotten = true);
        }
    }

    /// The host loses power: every block that is not durable keeps its last contents, goes back to
    /// older ones, or is torn at a sector's border. Room that is not durable may be undone.
    pub fn power_cut(&mut self, rng: &mut Rng) -> Losses {
        let kept = rng.pick(&[0.0, 0.5, 0.9]);
        let tears = rng.pick(&[0.0, 0.1, 0.6]);
        let mut losses = Losses::default();
        for (block, volatile) in std::mem::take(&mut self.volatile) {
            let count = volatile.candidates() as u64;
            let new = if rng.chance(kept) { count - 1 } else { rng.below(count) } as usize;
            let mut contents = volatile.candidate(new).clone();
            if rng.chance(tears) && count > 1 {
                let new = volatile.candidate(new.max(1));
                let torn = new.torn(volatile.candidate(rng.below(count) as usize), rng);
                if torn != *new {
                    let is_data = matches!(torn, Contents::Data(_));
                    losses.torn_data += u64::from(is_data);
                    losses.torn_pages += u64::from(!is_data);
                }
                contents = torn;
            } else {
                losses.lost += u64::from(new as u64 != count - 1);
            }
            let cell = &mut self.cells[block];
            cell.rotten |= cell.contents != contents;
            cell.contents = contents;
        }
        self.undo_room(rng, kept);
        losses
    }

    /// Room that no flush covers is there or not, for each I/O that made it or gave it back.
    fn undo_room(&mut self, rng: &mut Rng, kept: f64) {
        let mut drawn = BTreeMap::new();
        for (block, room) in std::mem::take(&mut self.unsettled) {
            let count = room.candidates();
            // Blocks next to each other, for a file system knows of extents.
            let left = *drawn.entry((block / ROOM_TOGETHER, count)).or_insert_with(|| {
                if rng.chance(kept) { count - 1 } else { rng.below(count as u64) as usize }
            });
            if *room.candidate(left) {
                self.roomless.remove(&block);
            } else {
                self.roomless.insert(block);
            }
        }
    }
}
