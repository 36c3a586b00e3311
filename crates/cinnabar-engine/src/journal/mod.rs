//! The journal: short records, durable before what depends on them goes on.
//!
//! A ring of pages, written one I/O at a time, so that a page is durable only if all before it are.
//! Records since the last checkpoint are kept in RAM too, to be rewritten (a rebase) when pages
//! with a single record each have filled the ring; what volumes are like at the moment is recorded
//! again by the engine instead, for only the newest of that counts.

mod backlog;
pub mod scan;

use crate::config::Config;
use crate::metadata::MetaPage;
use crate::metadata::chunk::device_of;
use crate::metadata::journal::{PAGE_ROOM_MIN, PageHeader, Record};
use crate::metadata::superblock::{Geometry, Superblock};
use crate::mutant::{Mutant, Mutants};
use crate::seam::IoError;
use crate::units::BLOCK_BYTES;
use backlog::Backlog;

/// A number that grows with every record appended; see [`Journal::is_durable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// Of no record.
    pub(crate) const NONE: Self = Self(0);
}

/// What a write under way will have achieved.
#[derive(Clone, Copy, Debug)]
struct Writing {
    /// First page of it.
    first: u64,
    appended: u64,
    tail: u64,
    /// The rebase that this write completes. By the time it has ended, a checkpoint may have ended
    /// that rebase, and another one may have begun.
    rebased: Option<u64>,
}

/// Live records being rewritten.
#[derive(Clone, Copy, Debug)]
struct Rebase {
    /// Which one, counted from 1.
    number: u64,
    /// Next live record to write, and the end.
    next: usize,
    end: usize,
    /// The newest record of the volumes' state, which belongs to it.
    state: u64,
    /// First page of it: the tail, once all of it is durable.
    first: u64,
}

/// The journal of a cache device.
#[derive(Debug)]
pub(crate) struct Journal {
    /// First block, and pages of the ring.
    area: (u64, u64),
    device: u32,
    era: u32,
    /// Pages of one write at most.
    write_pages: u64,
    /// Off: nothing is recorded, and nothing survives a crash.
    enabled: bool,
    /// Next page to be written.
    next: u64,
    /// First page that still counts, and the newest such value that is durable itself.
    tail: u64,
    tail_durable: u64,
    checkpoint: u64,
    queue: Backlog,
    /// Records that no checkpoint covers.
    live: Backlog,
    appended: u64,
    durable: u64,
    writing: Option<Writing>,
    rebase: Option<Rebase>,
    /// Live records that the checkpoint being made will cover.
    covered: Option<usize>,
    /// Order of records about volumes.
    stamp: u64,
    pub(crate) writes: u64,
    /// Writes that had no room for all there was.
    pub(crate) cut: u32,
    pub(crate) rebases: u64,
    mutants: Mutants,
}

impl Journal {
    /// A journal without records, on a ring that is [formatted](Self::formatted) for this era.
    pub(crate) fn new(superblock: &Superblock, config: &Config) -> Self {
        assert!(superblock.geometry.journal.1 >= 4, "a quarter of the ring is for rebases");
        Self {
            area: superblock.geometry.journal,
            device: device_of(superblock.uuid),
            era: superblock.era,
            write_pages: config.bounds.journal_pages,
            enabled: config.crash_safe,
            next: superblock.geometry.journal.1 + 1,
            tail: superblock.geometry.journal.1 + 1,
            tail_durable: superblock.geometry.journal.1 + 1,
            checkpoint: 0,
            queue: Backlog::default(),
            live: Backlog::default(),
            appended: 0,
            durable: 0,
            writing: None,
            rebase: None,
            covered: None,
            stamp: u64::from(superblock.next_incarnation) << 32,
            writes: 0,
            cut: 0,
            rebases: 0,
            mutants: config.mutants,
        }
    }

    /// The pages of a ring that holds nothing, from place `first` on.
    pub(crate) fn formatted(superblock: &Superblock, first: u64, count: u64) -> Vec<MetaPage> {
        let (device, places) = (device_of(superblock.uuid), superblock.geometry.journal.1);
        let page = |at| PageHeader::formatted(device, superblock.era, places, at);
        (first..first + count).map(page).collect()
    }

    /// Goes on behind what recovery read: `records` count until the next checkpoint.
    pub(crate) fn go_on(&mut self, read: scan::Read, checkpoint: u64, keep: bool) {
        assert!(
            self.appended == 0 && self.writing.is_none(),
            "a session begins with what it reads"
        );
        assert!(read.start <= read.next && read.next - read.start < self.area.1, "one round");
        assert!(read.checkpoint <= checkpoint, "the records go with this checkpoint");
        self.next = read.next;
        self.tail = read.start;
        self.tail_durable = read.start;
        self.checkpoint = checkpoint;
        if keep {
            self.live = read.records.into_iter().collect();
        } else {
            self.tail = read.next;
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn append(&mut self, record: Record) -> Ticket {
        if self.enabled {
            self.appended += 1;
            // Of a volume's state only the newest counts, and the engine knows that.
            let known = match record {
                Record::Volume(_) | Record::Flushed { .. } => true,
                Record::RegionOpened { .. } => self.mutants.is(Mutant::RegionsLeftOutOfRebase),
                _ => false,
            };
            if !known {
                self.live.push(record.clone());
            }
            self.queue.push(record);
        }
        Ticket(self.appended)
    }

    /// Pages before this one are durable, those that count no more left out.
    pub(crate) fn durable_page(&self) -> u64 {
        self.writing.map_or(self.next, |writing| writing.first)
    }

    /// The ticket of the newest record.
    pub(crate) fn newest(&self) -> Ticket {
        Ticket(self.appended)
    }

    /// Whether the record of this ticket, and so every one before, is durable.
    pub(crate) fn is_durable(&self, ticket: Ticket) -> bool {
        assert!(ticket.0 <= self.appended, "a ticket is that of a record");
        self.durable >= ticket.0
    }

    /// Number for the next record about a volume or a region.
    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// The newest number of a record about a volume or a region.
    pub(crate) const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Number of live records, those that a checkpoint being made covers left out.
    pub(crate) fn live_len(&self) -> usize {
        let covered = self.covered.unwrap_or(0);
        assert!(covered <= self.live.len(), "what a checkpoint covers stays until it ends");
        self.live.len() - covered
    }

    /// Records that wait to be written.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Records appended in all.
    pub(crate) fn records(&self) -> u64 {
        self.appended
    }

    /// Pages that may be written without touching one that still counts.
    fn room(&self) -> u64 {
        assert!(self.tail_durable <= self.tail && self.tail <= self.next, "the ring's order");
        let used = self.next - self.tail_durable;
        assert!(used <= self.area.1, "no page that counts has been written over");
        self.area.1 - used
    }

    /// The next write, if there is something to write, no other under way, and room.
    pub(crate) fn next_write(&mut self) -> Option<(u64, Vec<MetaPage>)> {
        if self.writing.is_some() || !self.enabled {
            return None;
        }
        // The last quarter of the ring is for rebases: without it, none could make room again. The
        // last page of all is for a new tail: without it, not even a checkpoint could.
        let reserve = self.area.1 / 4;
        let advances = self.tail > self.tail_durable;
        let urgent = self.rebase.is_some() || advances && self.room() <= reserve;
        let kept = if urgent { u64::from(!advances) } else { reserve };
        let room = self.room().saturating_sub(kept);
        if room == 0 || self.queue.is_empty() && !urgent {
            return None;
        }
        let first = self.next;
        let position = first % self.area.1;
        let most = room.min(self.write_pages).min(self.area.1 - position);
        let pages = self.fill_pages(first, most);
        assert!(!pages.is_empty() && pages.len() as u64 <= most, "a write stays within its room");
        self.next += pages.len() as u64;
        let appended = self.appended - self.queue.len() as u64;
        assert!(self.durable <= appended, "what is durable has left the queue");
        let complete = |rebase: &Rebase| rebase.next == rebase.end && rebase.state <= appended;
        let rebased = self.rebase.filter(complete).map(|rebase| rebase.number);
        self.writing = Some(Writing { first, appended, tail: self.tail, rebased });
        self.writes += 1;
        Some(((self.area.0 + position) * BLOCK_BYTES, pages))
    }

    fn fill_pages(&mut self, first: u64, most: u64) -> Vec<MetaPage> {
        assert!(self.tail <= first, "no page is dead when it is written");
        let mut pages = Vec::new();
        loop {
            let header = PageHeader {
                device: self.device,
                era: self.era,
                page: first + pages.len() as u64,
                first,
                tail: self.tail,
                checkpoint: self.checkpoint,
            };
            let rebase = self.rebase.map_or(0..0, |rebase| rebase.next..rebase.end);
            let new = self.queue.len();
            let mut records = self.queue.range(0..new).chain(self.live.range(rebase)).peekable();
            let (page, taken) = header.encode(&mut records);
            let done = records.peek().is_none();
            assert!(taken > 0 || done, "the largest record fits a page");
            drop(records);
            self.queue.drop_first(taken.min(new));
            if let Some(rebase) = &mut self.rebase {
                rebase.next += taken.saturating_sub(new);
            }
            pages.push(page);
            if done || pages.len() as u64 == most {
                self.cut += u32::from(!done && most == self.write_pages);
                return pages;
            }
        }
    }

    /// Whether so much of the ring is in use that room should be made.
    pub(crate) fn is_half_full(&self) -> bool {
        self.enabled && self.next - self.tail > self.area.1 / 2
    }

    /// Whether rewriting the live records, and the state of so many volumes, would make room
    /// and go on making it: 2000 volumes alone fill 160 pages, more than a small ring has.
    fn rebase_pays(&self, volumes: usize) -> bool {
        let state = volumes * Record::VOLUME_STATE_BYTES;
        let bytes = self.live.bytes() + self.queue.bytes() + state;
        let pages = bytes.div_ceil(PAGE_ROOM_MIN) as u64 + 2;
        pages < (self.next - self.tail) / 4
    }

    /// Whether the ring is half full, and rewriting the live records would make room.
    pub(crate) fn wants_rebase(&self, volumes: usize) -> bool {
        self.is_half_full() && self.rebase.is_none() && self.rebase_pays(volumes)
    }

    /// Whether the ring is half full, and only a checkpoint makes room: a rebase would not, or the
    /// one under way was overtaken by new records.
    pub(crate) fn wants_checkpoint(&self, volumes: usize) -> bool {
        let stuck = self.room() <= 1 && self.tail == self.tail_durable;
        self.is_half_full() && (stuck || self.rebase.is_none() && !self.rebase_pays(volumes))
    }

    /// Rewrites the live records, and the state of all volumes with them.
    pub(crate) fn begin_rebase(&mut self, state: impl IntoIterator<Item = Record>) {
        assert!(self.enabled && self.rebase.is_none(), "one rebase at a time");
        // What is under way goes to earlier pages. Records still queued are among the live ones,
        // and will be written twice: harmless.
        let (end, first) = (self.live.len(), self.next);
        for record in state {
            self.append(record);
        }
        self.rebases += 1;
        let (number, state) = (self.rebases, self.appended);
        self.rebase = Some(Rebase { number, next: 0, end, state, first });
    }

    /// The write has ended.
    pub(crate) fn written(&mut self, result: Result<(), IoError>) -> Result<(), IoError> {
        let writing = self.writing.take().expect("one write at a time");
        result?;
        assert!(self.durable <= writing.appended && writing.appended <= self.appended);
        assert!(self.tail_durable <= writing.tail && writing.tail <= self.tail);
        self.durable = writing.appended;
        self.tail_durable = writing.tail;
        self.rebase_written(writing);
        Ok(())
    }

    /// Whether a write is under way; whether the journal is being rewritten, and if that write is
    /// the last one of it.
    pub(crate) fn under_way(&self) -> (bool, bool, bool) {
        let last = self.writing.is_some_and(|writing| writing.rebased.is_some());
        (self.writing.is_some(), self.rebase.is_some(), last)
    }

    /// Ends the rebase under way, if the write that has ended was the last one of it.
    fn rebase_written(&mut self, writing: Writing) {
        let mistaken = self.mutants.is(Mutant::RebaseMistaken) && writing.rebased.is_some();
        let ends = |rebase: &Rebase| writing.rebased == Some(rebase.number) || mistaken;
        let Some(rebase) = self.rebase.take_if(|rebase| ends(rebase)) else { return };
        if !mistaken {
            // The tail never passes a live record: all of them lie behind the rebase's first page.
            assert!(rebase.next == rebase.end, "a rebase ends when its records are written");
            assert!(rebase.state <= self.durable, "and the volumes' state with them");
            assert!(rebase.first < self.next, "which takes a page at least");
        }
        self.tail = self.tail.max(rebase.first);
    }

    /// Whether everything appended is durable.
    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_none() && self.durable == self.appended
    }

    /// A checkpoint begins: it covers every record appended so far. Gives the first page whose
    /// records it does not cover.
    pub(crate) fn checkpoint_begins(&mut self) -> u64 {
        assert!(self.covered.is_none(), "one checkpoint at a time");
        self.covered = Some(self.live.len());
        self.next
    }

    /// The checkpoint that began last is durable (`Some`: its number, and the page it began with),
    /// or was given up.
    pub(crate) fn checkpoint_ends(&mut self, durable: Option<(u64, u64)>) {
        assert!(self.covered.is_some(), "a checkpoint that ends has begun");
        let covered = self.covered.take().unwrap_or(0);
        if let Some((checkpoint, page)) = durable {
            assert!(checkpoint > self.checkpoint, "checkpoints are numbered in order");
            assert!(page <= self.next, "a checkpoint covers pages that there are");
            self.live.drop_first(covered);
            self.tail = self.tail.max(page);
            assert!(self.tail <= self.next, "the tail is a page that there is, or the next one");
            self.checkpoint = checkpoint;
            // What was being rewritten is covered, and the indices have moved. A write of it may
            // still be under way.
            self.rebase = None;
        }
    }

    /// Live records that call for a checkpoint: 1 % of the slots, but so many at least. A checkpoint
    /// takes a page for 372 slots, so it adds 27 % to what is written for a block that is cached and
    /// written again.
    pub(crate) fn live_max(geometry: &Geometry, least: usize) -> usize {
        (geometry.slots() as usize / 100).max(least)
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.queue.ram_bytes() + self.live.ram_bytes()
    }
}

#[cfg(test)]
mod tests;
