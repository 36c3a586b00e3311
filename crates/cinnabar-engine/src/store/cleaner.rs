//! The cleaner: evicts blocks, and frees whole segments by reinserting what is left in them.
//!
//! The two are apart. *Evicting* happens when more is worth keeping than the log can hold: a hand
//! goes over the group furthest over its share, segment by segment as CLOCK does over blocks, and
//! condemns what was not used since it came by. *Reclaiming* happens when free segments are short:
//! the segment with the least worth keeping is emptied, whatever its age; condemned blocks go, all
//! others are reinserted. A condemned block is served until then, and a use in time saves it.
//!
//! A segment is announced first: a durable record that nothing in it is to be believed after a crash
//! comes before the first block leaves, so a block that has left needs no invalidation record when it is written.
//!
//! Work is paid for by appends, some slots of scanning for each, so that no event waits for a whole
//! segment.

use super::fill::Reason;
use super::{Key, Outbox, Pending, Store};
use crate::bounds::Bound;
use crate::buffers::Buffer;
use crate::config::{Endurance, Eviction};
use crate::journal::Ticket;
use crate::log::SegmentState;
use crate::log::shares::{Class, Group};
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::seam::{IoError, IoOp, Payload, Slices, Target};
use crate::units::Instant;

/// Slots scanned for each block appended. Above the inverse of the share of slots that a scan
/// frees, or free segments run out; 16 suffices for what [`reinserts_max`] leaves.
const SLOTS_AN_APPEND: u32 = 16;

/// Segments that the hand goes over in one step, at most.
const HAND_SEGMENTS: usize = 8;

/// Segments emptied in a row for free ones while those behind the bound wait for their turn.
const FRONT_TURNS_MAX: u32 = 4;

/// Where this many segments or more are sealed, the hand sets out when one in so many is left free, and
/// goes over as many slots for each block appended: once around before free segments are short, or
/// the first ones to be emptied would be full of what was used once.
const HAND_AHEAD: u32 = 64;

/// Blocks of a segment with `used` slots that are reinserted at most: each one emptied is a gain.
const fn reinserts_max(used: u32) -> u32 {
    used - used.div_ceil(16)
}

/// Slots that they take at most, headers included: where chunks stay small, as many blocks take more
/// room than they leave, and emptying segments would never come to rest.
const fn slots_max(used: u32) -> u32 {
    used - used.div_ceil(32)
}

/// Evicting and reclaiming, as far as they have got.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    victim: Option<Victim>,
    /// The next victim, and what has to be durable before it is one.
    announced: Option<(u32, Ticket)>,
    /// Emptied, but a guest's read of one of its blocks is still under way.
    parked: Vec<u32>,
    owed: u32,
    /// Slots that the hand has yet to go over.
    hand_owed: u32,
    /// Blocks that the log is left to be short of, so that cleaning is cheap.
    air: Air,
    /// Segments before the bound chosen since the last one behind it.
    front_turns: u32,
}

/// Slots left without a block worth keeping, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Air {
    now: u64,
    least: u64,
    most: u64,
    /// As [`Endurance`] has it: what a log without enough air would write to the SSD
    /// again and again.
    reinserted_256ths: u64,
}

impl Air {
    /// The least and the most of it.
    fn bounds(capacity: u64, eviction: Eviction, endurance: Endurance) -> (u64, u64) {
        let (least, most) = endurance.air_divisors();
        match eviction {
            Eviction::Probation => (capacity / least, capacity / most),
            Eviction::Clock => (0, 0),
        }
    }

    /// A segment of `blocks` is emptied, and `worth` of them are reinserted.
    fn learn(&mut self, blocks: u64, worth: u64) {
        let wanted = blocks * self.reinserted_256ths / 256;
        let now = (self.now + worth / 4).saturating_sub(wanted / 4);
        self.now = now.clamp(self.least, self.most);
    }
}

#[derive(Debug)]
struct Victim {
    segment: u32,
    /// Next slot to scan, within the segment.
    cursor: u32,
    /// Reads of blocks to be reinserted under way.
    reads: u32,
    reinserts_left: u32,
    /// Slots that reinserted blocks may still take, headers included.
    slots_left: u32,
}

impl Cleaner {
    /// For a log of `capacity` blocks. Plain CLOCK keeps all it can.
    pub(super) fn new(capacity: u64, eviction: Eviction, endurance: Endurance) -> Self {
        let (least, most) = Air::bounds(capacity, eviction, endurance);
        let reinserted_256ths = endurance.reinserted_256ths();
        Self { air: Air { now: least, least, most, reinserted_256ths }, ..Self::default() }
    }

    /// The log has another capacity.
    pub(super) fn set_capacity(&mut self, capacity: u64, eviction: Eviction, endurance: Endurance) {
        let (least, most) = Air::bounds(capacity, eviction, endurance);
        // What it has learned is a part of the log.
        let now = self.air.now * least / self.air.least.max(1);
        let now = now.clamp(least, most);
        self.air = Air { now, least, most, ..self.air };
    }

    /// A block was appended.
    pub(super) fn owe(&mut self) {
        self.owed = self.owed.saturating_add(SLOTS_AN_APPEND);
        self.hand_owed = self.hand_owed.saturating_add(HAND_AHEAD);
    }

    /// Blocks that the log is left to be short of.
    pub(super) fn air(&self) -> u64 {
        self.air.now
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
        self.move_hand();
        while budget > 0 {
            self.announce();
            self.leave_for_those_behind();
            if self.cleaner.victim.is_none() && !self.begin_victim() {
                return false;
            }
            let victim = self.cleaner.victim.as_ref().expect("just chosen");
            let (segment, cursor, reads) = (victim.segment, victim.cursor, victim.reads);
            let used = self.log.segments[segment as usize].used;
            if cursor < used {
                let count = budget.min(used - cursor);
                let scanned = self.scan(segment, cursor, count, outbox);
                if scanned == 0 {
                    // All buffers are in use; the end of an I/O gives some back.
                    return false;
                }
                budget -= scanned;
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

    /// Gives back emptied segments that no read is using any more. One read that hangs in the SSD
    /// must not keep the others from being reused.
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

    /// Blocks that the log is left to be short of.
    #[cfg(test)]
    pub(crate) fn air(&self) -> u64 {
        self.cleaner.air()
    }

    /// Whether nothing is left behind the bound, and no read is under way there.
    pub(crate) fn is_empty_behind(&self) -> bool {
        if self.mutants.is(Mutant::RoomGivenUnderRead) {
            let behind = &self.log.segments[self.log.bound as usize..];
            return behind.iter().all(|segment| segment.live == 0 && segment.pending_chunks == 0);
        }
        self.log.behind == 0
    }

    /// Whether the segment being emptied is behind the bound.
    pub(super) fn is_cleaning_behind(&self) -> bool {
        let victim = self.cleaner.victim.as_ref();
        victim.is_some_and(|victim| victim.segment >= self.log.bound)
    }

    /// One behind the bound is due, announced, or being emptied: what is worth keeping there needs a
    /// free segment, which fills leave, beside the one that the next victim needs.
    fn leave_for_those_behind(&mut self) {
        let due = self.log.sealed_behind() > 0 && self.cleaner.front_turns >= FRONT_TURNS_MAX;
        let announced = self.cleaner.announced.is_some_and(|(s, _)| s >= self.log.bound);
        let leaves = due || announced || self.is_cleaning_behind();
        self.log.fills_leave = 1 + usize::from(leaves);
    }

    /// Chooses the next segment to be emptied: ahead of its turn if the one being emptied will not
    /// be enough, for the record takes a while.
    fn announce(&mut self) {
        if self.cleaner.announced.is_some() {
            return;
        }
        let victim = self.cleaner.victim.as_ref().map(|victim| victim.segment);
        // One behind the bound gives no free segment.
        let coming = usize::from(victim.is_some_and(|segment| segment < self.log.bound));
        let short = self.log.free.len() + coming < self.log.low_water();
        let group = match self.log.group_at_maximum() {
            Some(group) if coming == 0 => Some(Some(group)),
            None if short => Some(None),
            _ => None,
        };
        // What leaves a log that becomes smaller needs free segments, and these come first; but
        // whatever guests do, it gets on. The last free one is not for it.
        let behind = self.log.sealed_behind() > 0
            && self.log.free.len() > 1
            && (group.is_none() || self.cleaner.front_turns >= FRONT_TURNS_MAX);
        if group.is_none() && !behind {
            return;
        }
        self.evict_beyond_limits();
        let before = group.filter(|_| !behind).and_then(|group| self.log.cheapest(group));
        let Some(segment) = before.or_else(|| self.log.cheapest_behind()) else { return };
        let is_behind = segment >= self.log.bound;
        let waits = !is_behind && self.log.sealed_behind() > 0;
        self.cleaner.front_turns = if waits { self.cleaner.front_turns + 1 } else { 0 };
        self.log.dequeue(segment);
        let version = self.log.sequence;
        let silent = self.mutants.is(Mutant::SegmentReusedSilently)
            || is_behind && self.mutants.is(Mutant::ShrunkSilently);
        let ticket = if silent {
            Ticket::default()
        } else {
            self.journal.append(Record::SegmentInvalidation { segment, version })
        };
        self.cleaner.announced = Some((segment, ticket));
    }

    /// The announced segment is next, if the record is durable.
    fn begin_victim(&mut self) -> bool {
        let announced = self.cleaner.announced;
        let Some((segment, _)) = announced.filter(|(_, t)| self.journal.is_durable(*t)) else {
            return false;
        };
        self.cleaner.announced = None;
        assert!(self.cleaner.victim.is_none(), "one segment is emptied at a time");
        let state = &self.log.segments[segment as usize];
        assert_eq!(state.state, SegmentState::Cleaning, "what is announced is filled no more");
        assert!(state.used > 0 && state.pending_chunks == 0, "and all of it is on flash");
        let (reinserts_left, slots_left) = (reinserts_max(state.used), slots_max(state.used));
        if segment < self.log.bound {
            // Others were not chosen for being cheap.
            self.cleaner.air.learn(self.log.segment_blocks(), state.worth().into());
        }
        let victim = Victim { segment, cursor: 0, reads: 0, reinserts_left, slots_left };
        self.cleaner.victim = Some(victim);
        true
    }

    /// Condemns blocks while more is worth keeping than there is room for, before free segments are
    /// short, in a log of many segments: paid for by appends.
    fn move_hand(&mut self) {
        let ahead = self.log.sealed() / HAND_AHEAD as usize;
        if ahead == 0 || self.log.free.len() >= self.log.low_water() + ahead {
            self.cleaner.hand_owed = 0;
            return;
        }
        let segment = self.log.geometry.segment_slots();
        for _ in 0..HAND_SEGMENTS {
            if self.cleaner.hand_owed < segment {
                return;
            }
            self.cleaner.hand_owed -= segment;
            let Some(group) = self.beyond_limit() else {
                self.cleaner.hand_owed = 0;
                return;
            };
            self.advance_hand(group);
        }
    }

    /// The same at once, for a victim is chosen next.
    fn evict_beyond_limits(&mut self) {
        // One lap at a time: a use must save a block from more than one of them.
        for _ in 0..HAND_SEGMENTS.min(self.log.sealed()) {
            let Some(group) = self.beyond_limit() else { return };
            self.advance_hand(group);
        }
    }

    /// The group whose hand is to move, if more is worth keeping than there is room for.
    fn beyond_limit(&self) -> Option<u16> {
        let over_maximum =
            |group: &Group| !group.queue.is_empty() && group.worth > self.log.limit_of(group);
        if let Some(group) = self.log.groups.iter().position(over_maximum) {
            return Some(group as u16);
        }
        let limit = self.log.limit(self.cleaner.air());
        if self.log.worth() <= limit { None } else { self.log.most_over_share(limit) }
    }

    /// The hand of a group goes over its next segment: what was used has one use less, what was not
    /// is condemned.
    fn advance_hand(&mut self, group: u16) {
        let queue = &mut self.log.groups[usize::from(group)].queue;
        let segment = queue.pop_front().expect("groups with a segment only");
        queue.push_back(segment);
        let state = self.log.segments[segment as usize].state;
        assert_eq!(state, SegmentState::Sealed, "the hand goes over sealed segments");
        let base = segment * self.log.geometry.segment_slots();
        for slot in base..base + self.log.segments[segment as usize].used {
            let Some(key) = self.descriptors.key(slot) else { continue };
            let flags = self.descriptors.flags(slot);
            let alive = self.holdings[usize::from(key.volume)].alive;
            let condemned = flags.refs() == 0 || !alive;
            let next = flags.with_refs(flags.refs().saturating_sub(1)).with_condemned(condemned);
            if next != flags {
                self.descriptors.set_flags(slot, next);
            }
            if condemned != flags.condemned() {
                self.log.condemn(slot, condemned);
            }
        }
    }

    /// Scans up to `count` slots: evicts what is condemned, starts reading what is not. Gives the
    /// number of slots scanned: it ends early when buffers run out.
    fn scan(&mut self, segment: u32, cursor: u32, count: u32, outbox: &mut Outbox<P>) -> u32 {
        let state = &self.log.segments[segment as usize];
        assert_eq!(
            state.state,
            SegmentState::Cleaning,
            "blocks leave a segment that is recorded as invalid"
        );
        assert!(cursor + count <= state.used, "a scan ends where the segment does");
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
                Judgement::Reinsert => {
                    let Some(buffer) = self.take_buffer(outbox) else { break };
                    self.cleaner.victim.as_mut().expect("being scanned").reinserts_left -= 1;
                    Some(buffer)
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
        let left = self.cleaner.victim.as_ref().expect("being scanned").reinserts_left;
        let alive = self.holdings[usize::from(key.volume)].alive;
        let flags = self.descriptors.flags(slot);
        if alive && (!flags.condemned() || flags.refs() > 0) && left > 0 {
            Judgement::Reinsert
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
        assert!(!buffers.is_empty(), "a read brings something");
        let data: Slices<P> = buffers.iter().map(|buffer| self.buffers.slice(*buffer)).collect();
        let op = IoOp::Read { offset: self.log.offset_of(slot), data };
        self.cleaner.victim.as_mut().expect("being scanned").reads += 1;
        outbox.io(Target::Cache, op, Pending::Reinsert { slot, buffers });
    }

    /// Blocks to be reinserted have been read. Each is appended only if the map still points at its
    /// source: a newer copy, or a write under way, has taken it out meanwhile.
    pub(crate) fn reinsert(
        &mut self,
        slot: u32,
        buffers: &[Buffer],
        result: Result<(), IoError>,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) {
        let segment = self.log.segment_of(slot);
        let victim = self.cleaner.victim.as_mut().expect("reads keep the victim");
        assert!(victim.reads > 0, "a read that ends was counted");
        assert_eq!(victim.segment, segment, "and is one of the segment being emptied");
        victim.reads -= 1;
        if result.is_err() {
            self.counters.device_errors += 1;
        }
        let read = result.is_ok() && !self.dead;
        for (source, buffer) in (slot..).zip(buffers) {
            let Some(key) = self.descriptors.key(source) else {
                self.buffers.give(*buffer);
                continue;
            };
            if !self.reinsert_block(source, key, *buffer, read, now, outbox) {
                self.buffers.give(*buffer);
                self.evict(source, key);
            }
        }
    }

    fn reinsert_block(
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
        let stream = self.log.stream(self.group_of(key), Class::Kept);
        let takes = 1 + u32::from(self.log.chunk(stream).is_none());
        let victim = self.cleaner.victim.as_mut().expect("reads keep the victim");
        let Some(left) = victim.slots_left.checked_sub(takes) else { return false };
        victim.slots_left = left;
        let flags = self.descriptors.flags(source);
        let unflushed = flags.unflushed() && self.holdings[usize::from(key.volume)].unflushed;
        // A use has saved it from the hand, which takes that for it.
        let refs = flags.refs() - u8::from(flags.condemned() && flags.refs() > 0);
        let flags = flags.with_refs(refs).with_condemned(false).with_unflushed(unflushed);
        let Some((to, full)) = self.append(key, flags, buffer, Reason::Reinserted, now) else {
            return false;
        };
        self.descriptors.set_checksum(to, checksum);
        self.unsettle(source);
        let moved = self.map.replace(self.hash(key), source, to);
        assert!(moved, "a descriptor without an entry in the address map");
        if let Some(stream) = full {
            self.submit_chunk(stream, outbox);
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
            assert_eq!(victim.reads, 0, "its buffers are given back");
            self.put_back(victim.segment);
        }
        true
    }

    /// What the journal says of a segment put back is undone by the checkpoint that must follow.
    fn put_back(&mut self, segment: u32) {
        self.log.enqueue(segment, true);
    }
}

enum Judgement {
    Reinsert,
    Drop,
    Evict(Key),
}
