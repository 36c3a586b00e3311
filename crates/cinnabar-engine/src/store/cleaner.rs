//! The cleaner: frees whole segments, carrying referenced blocks forward.
//!
//! A segment is announced first: a durable word that nothing in it is to be believed after a crash
//! comes before the first block leaves, so a block that has left needs no mark when it is written.
//!
//! Called by the engine at the end of each batch (`clean`) and when its reads complete. Work is
//! paid for by appends, some slots of scanning for each, so that no event waits for a whole segment.

use super::fill::Reason;
use super::{Key, Outbox, Pending, Store};
use crate::bounds::Bound;
use crate::buffers::Buffer;
use crate::descriptors::Flags;
use crate::journal::Ticket;
use crate::log::SegmentState;
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::seam::{IoError, IoOp, Payload, Slices, Target};
use crate::units::Instant;

/// Slots scanned for each block appended. Above the inverse of the share of slots that a scan
/// frees, or free segments run out; 4 suffices while at most three of four blocks are carried.
const SLOTS_AN_APPEND: u32 = 4;

/// The segment being emptied.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    victim: Option<Victim>,
    /// The next victim, and what has to be durable before it is one.
    announced: Option<(u32, Ticket)>,
    /// Emptied, but a guest's read of one of its blocks is still under way.
    parked: Vec<u32>,
    owed: u32,
}

#[derive(Debug)]
struct Victim {
    segment: u32,
    /// Next slot to scan, within the segment.
    cursor: u32,
    /// Reads of blocks to be carried under way.
    reads: u32,
    /// Uses since it was written that a block needs to be carried, while the bound lasts.
    refs_min: u8,
    carry_left: u32,
}

impl Cleaner {
    /// A block was appended.
    pub(super) fn owe(&mut self) {
        self.owed += SLOTS_AN_APPEND;
    }
}

impl<P: Payload> Store<P> {
    /// Whether a segment is announced; one is being emptied; blocks of it are being read; emptied
    /// ones wait for reads.
    pub(crate) fn cleaning(&self) -> (bool, bool, bool, bool) {
        let Cleaner { victim, announced, parked, .. } = &self.cleaner;
        let reads = victim.as_ref().is_some_and(|victim| victim.reads > 0);
        let waits = announced.is_some_and(|(_, ticket)| !self.journal.is_durable(ticket));
        (waits, victim.is_some(), reads, !parked.is_empty())
    }

    /// Goes on emptying segments while free ones are short. True if there is more to do now.
    pub(crate) fn clean(&mut self, outbox: &mut Outbox<P>) -> bool {
        // So many at least, so that a slow trickle of appends gets there too.
        let (least, most) = self.bounds.clean_slots;
        let mut budget = (self.cleaner.owed + least).min(most);
        self.crossings.note_if(self.cleaner.owed + least > most, Bound::CleanSlots);
        self.cleaner.owed = 0;
        self.release_parked();
        while budget > 0 {
            self.announce();
            if self.cleaner.victim.is_none() && !self.begin_victim() {
                return false;
            }
            let victim = self.cleaner.victim.as_ref().expect("just chosen");
            let (segment, cursor, reads) = (victim.segment, victim.cursor, victim.reads);
            let used = self.log.segments[segment as usize].used;
            if cursor < used {
                let count = budget.min(used - cursor);
                budget -= self.scan(segment, cursor, count, outbox).max(1);
            } else if reads > 0 || self.cleaner.parked.len() >= self.bounds.parked_segments {
                self.crossings.note_if(reads == 0, Bound::ParkedSegments);
                return false;
            } else {
                self.cleaner.victim = None;
                self.cleaner.parked.push(segment);
                self.release_parked();
            }
        }
        true
    }

    /// Gives back emptied segments that nobody reads any more. One read that hangs in the SSD must
    /// not keep the others from being reused.
    fn release_parked(&mut self) {
        let mut parked = std::mem::take(&mut self.cleaner.parked);
        parked.retain(|&segment| {
            let busy = self.log.segments[segment as usize].pins > 0;
            if !busy {
                self.counters.segments_freed += 1;
                self.log.release(segment);
            }
            busy
        });
        self.cleaner.parked = parked;
    }

    /// Chooses the next segment to be emptied: ahead of its turn if the one being emptied will not
    /// be enough, for the word takes a while.
    fn announce(&mut self) {
        let coming = usize::from(self.cleaner.victim.is_some());
        if self.cleaner.announced.is_some() {
            return;
        }
        let victim = match self.log.group_at_maximum() {
            Some(group) if coming == 0 => self.log.victim(Some(group)),
            None if self.log.free.len() + coming < self.log.low_water() => self.log.victim(None),
            _ => None,
        };
        let written = |s: &u32| self.log.segments[*s as usize].pending_chunks == 0;
        let Some(segment) = victim.filter(written) else { return };
        let group = usize::from(self.log.segments[segment as usize].group);
        self.log.groups[group].queue.pop_front();
        self.log.segments[segment as usize].state = SegmentState::Cleaning;
        let version = self.log.sequence;
        let ticket = if self.mutants.is(Mutant::SegmentReusedSilently) {
            Ticket::default()
        } else {
            self.journal.append(Record::SegmentVoid { segment, version })
        };
        self.cleaner.announced = Some((segment, ticket));
    }

    /// The announced segment is next, if the word is durable.
    fn begin_victim(&mut self) -> bool {
        let announced = self.cleaner.announced;
        let Some((segment, _)) = announced.filter(|(_, t)| self.journal.is_durable(*t)) else {
            return false;
        };
        self.cleaner.announced = None;
        let (refs_min, carry_left) = self.carry_bound(segment);
        self.cleaner.victim = Some(Victim { segment, cursor: 0, reads: 0, refs_min, carry_left });
        true
    }

    /// Which blocks of a segment to carry: the most used first, until the bound is reached.
    fn carry_bound(&self, segment: u32) -> (u8, u32) {
        let base = segment * self.log.geometry.segment_slots();
        let used = self.log.segments[segment as usize].used;
        let bound = self.eviction.carry_max(used);
        let mut by_refs = [0u32; 4];
        for slot in base..base + used {
            if self.descriptors.key(slot).is_some() {
                by_refs[usize::from(self.descriptors.flags(slot).refs())] += 1;
            }
        }
        let mut more = 0;
        let reached = |refs: &u8| {
            more += by_refs[usize::from(*refs)];
            more >= bound
        };
        ((1..=3).rev().find(reached).unwrap_or(1), bound)
    }

    /// Scans up to `count` slots: evicts what was not used, starts reading what was. Gives the
    /// number of slots scanned: it ends early when buffers run out.
    fn scan(&mut self, segment: u32, cursor: u32, count: u32, outbox: &mut Outbox<P>) -> u32 {
        let base = segment * self.log.geometry.segment_slots() + cursor;
        let ahead = 16.min(count);
        (base..base + ahead).for_each(|slot| self.prefetch_victim(slot));
        let mut run: Option<(u32, Vec<Buffer>)> = None;
        let mut scanned = 0;
        for slot in base..base + count {
            if slot + ahead < base + count {
                self.prefetch_victim(slot + ahead);
            }
            let buffer = match self.judge(slot) {
                Judgement::Carry => {
                    self.cleaner.victim.as_mut().expect("being scanned").carry_left -= 1;
                    self.buffers.take()
                }
                Judgement::Drop => None,
                Judgement::Evict(key) => {
                    self.evict(slot, key);
                    None
                }
            };
            scanned += 1;
            if let Some(buffer) = buffer {
                let (_, buffers) = run.get_or_insert_with(|| (slot, Vec::new()));
                buffers.push(buffer);
            } else if let Some((first, buffers)) = run.take() {
                self.read_victims(first, buffers, outbox);
            }
        }
        if let Some((first, buffers)) = run {
            self.read_victims(first, buffers, outbox);
        }
        self.cleaner.victim.as_mut().expect("being scanned").cursor += scanned;
        scanned
    }

    fn prefetch_victim(&self, slot: u32) {
        if let Some(key) = self.descriptors.key(slot) {
            let hash = self.hash(key);
            self.map.prefetch(hash);
            self.ghost.prefetch(hash);
        }
    }

    fn judge(&self, slot: u32) -> Judgement {
        let Some(key) = self.descriptors.key(slot) else { return Judgement::Drop };
        let victim = self.cleaner.victim.as_ref().expect("being scanned");
        let alive = self.holdings[usize::from(key.volume)].alive;
        let used = self.descriptors.flags(slot).refs() >= victim.refs_min;
        if alive && used && victim.carry_left > 0 && self.buffers.available() > 0 {
            Judgement::Carry
        } else {
            Judgement::Evict(key)
        }
    }

    fn evict(&mut self, slot: u32, key: Key) {
        if self.holdings[usize::from(key.volume)].alive {
            let written = self.descriptors.flags(slot).written();
            self.ghost.insert(self.hash(key), written);
        }
        self.counters.evicted_blocks += 1;
        self.forget(slot, key);
    }

    fn read_victims(&mut self, slot: u32, buffers: Vec<Buffer>, outbox: &mut Outbox<P>) {
        let data: Slices<P> = buffers.iter().map(|buffer| self.buffers.slice(*buffer)).collect();
        let op = IoOp::Read { offset: self.log.offset_of(slot), data };
        self.cleaner.victim.as_mut().expect("being scanned").reads += 1;
        outbox.io(Target::Cache, op, Pending::Carry { slot, buffers });
    }

    /// Blocks to be carried have been read. Each is appended only if the map still points at its
    /// source: a newer copy, or a write under way, has taken it out meanwhile.
    pub(crate) fn carry(
        &mut self,
        slot: u32,
        buffers: &[Buffer],
        result: Result<(), IoError>,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) {
        self.cleaner.victim.as_mut().expect("reads keep the victim").reads -= 1;
        if result.is_err() {
            self.counters.device_errors += 1;
        }
        let read = result.is_ok() && !self.dead;
        for (source, buffer) in (slot..).zip(buffers) {
            let Some(key) = self.descriptors.key(source) else {
                self.buffers.give(*buffer);
                continue;
            };
            if !self.carry_block(source, key, *buffer, read, now, outbox) {
                self.buffers.give(*buffer);
                self.evict(source, key);
            }
        }
    }

    fn carry_block(
        &mut self,
        source: u32,
        key: Key,
        buffer: Buffer,
        read: bool,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) -> bool {
        if !read || !self.holdings[usize::from(key.volume)].alive {
            return false;
        }
        let checksum = self.descriptors.checksum(source);
        if self.buffers.data().checksum(buffer.at(), self.checksum_seed(key)) != checksum {
            self.counters.checksum_failures += 1;
            return false;
        }
        let written = self.descriptors.flags(source).written();
        let unflushed = self.descriptors.flags(source).unflushed()
            && self.holdings[usize::from(key.volume)].unflushed;
        let flags = Flags::default().with_written(written).with_unflushed(unflushed);
        let Some((to, full)) = self.append(key, flags, buffer, Reason::Carried, now) else {
            return false;
        };
        self.descriptors.set_checksum(to, checksum);
        self.descriptors.clear(source);
        let moved = self.map.replace(self.hash(key), source, to);
        assert!(moved, "a descriptor without an entry in the address map");
        if full {
            self.submit_chunk(self.group_of(key), outbox);
        }
        true
    }

    /// A clean stop: the segment being emptied goes back to the head of its queue, with what is
    /// left in it. Only when no read of it is under way; says whether that is so.
    pub(crate) fn abandon_cleaning(&mut self) -> bool {
        self.release_parked();
        if self.cleaner.victim.as_ref().is_some_and(|victim| victim.reads > 0) {
            return false;
        }
        if let Some((segment, _)) = self.cleaner.announced.take() {
            self.put_back(segment);
        }
        if let Some(victim) = self.cleaner.victim.take() {
            self.put_back(victim.segment);
        }
        true
    }

    /// What the journal says of a segment put back is undone by the checkpoint that must follow.
    fn put_back(&mut self, segment: u32) {
        let state = &mut self.log.segments[segment as usize];
        state.state = SegmentState::Sealed;
        let group = usize::from(state.group);
        self.log.groups[group].queue.push_front(segment);
    }
}

enum Judgement {
    Carry,
    Drop,
    Evict(Key),
}
