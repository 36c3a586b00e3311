//! How a block gets in: probation, ghost, admission to flash.
//!
//! Policy after `docs/design/eviction.md`: a missed block lives in RAM first; leaving it, a block
//! that was used again goes to flash, another one's key to the ghost; a miss found in the ghost goes
//! to flash at once; while there is free flash everything is admitted.

use super::{Flags, Index, Key, Outbox, Place, Store};
use crate::buffers::Buffer;
use crate::config::{Admission, Endurance, Eviction};
use crate::journal::Ticket;
use crate::log::Need;
use crate::log::shares::{Class, Stream};
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::rehearsal::Access;
use crate::seam::Payload;
use crate::units::{BLOCK_BYTES, Instant};

/// Where a new copy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A read miss.
    Read,
    /// A write of a block that was not cached.
    Write,
    /// A write of a block that was cached.
    Rewrite,
}

/// What earned a block its place on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Filling,
    Referenced,
    Ghost,
    All,
    CleanStop,
    Reinserted,
}

/// How often the written blocks of a volume are read (useful) or written again (useless) next,
/// within the reach of cache and ghost: says whether writes should be cached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteReuse {
    useful: u32,
    useless: u32,
}

impl WriteReuse {
    /// Uses remembered; older ones fade.
    const MEMORY: u32 = 4096;

    pub(crate) fn useful(&mut self) {
        self.useful += 1;
        self.fade();
    }

    pub(crate) fn useless(&mut self) {
        self.useless += 1;
        self.fade();
    }

    fn fade(&mut self) {
        if self.useful + self.useless >= Self::MEMORY {
            self.useful /= 2;
            self.useless /= 2;
        }
    }

    /// Whether writes to this volume are worth keeping: a read served saves a back-end read, a
    /// written block that is not read costs at most a flash write.
    pub(crate) fn pays(self, endurance: Endurance) -> bool {
        self.useful * endurance.read_worth() >= self.useless
    }
}

impl<P: Payload> Store<P> {
    /// Whether a written block should be kept: while there is room for it, or by its volume's history.
    pub(crate) fn write_pays(&self, key: Key) -> bool {
        self.eviction == Eviction::Clock
            || !self.rehearsal.way().is_thrifty()
            || self.holdings[usize::from(key.volume)].reuse.pays(self.endurance)
            || self.has_room(key.volume)
    }

    /// A written block is not kept: only the ghost remembers it, so that the history goes on.
    pub(crate) fn note_unkept_write(&mut self, key: Key) {
        self.take_ghost(key, true);
        self.ghost.insert(self.hash(key), true);
    }

    /// Whether the ghost remembered a block that is used again; its volume's history learns of it.
    fn take_ghost(&mut self, key: Key, write: bool) -> bool {
        let remembered = self.ghost.take(self.hash(key));
        if remembered == Some(true) {
            let reuse = &mut self.holdings[usize::from(key.volume)].reuse;
            if write { reuse.useless() } else { reuse.useful() }
        }
        self.counters.returned_blocks += u64::from(remembered.is_some() && !write);
        remembered.is_some()
    }

    /// Takes in the block at byte `at` of `from`. Does nothing if it is cached already, or if there
    /// is no room just now; says whether it is cached afterwards.
    pub(crate) fn fill(
        &mut self,
        key: Key,
        origin: Origin,
        from: (&P, u64),
        now: Instant,
        outbox: &mut Outbox<P>,
    ) -> bool {
        if self.dead || self.index != Index::InUse {
            return false;
        }
        if let Some(slot) = self.find(key) {
            // Another reader was quicker; a write's block was taken out before.
            let leaves = self.mutants.is(Mutant::CapKeepsRewritten);
            debug_assert!(
                leaves || origin == Origin::Read,
                "a written block is still cached at {slot}"
            );
            return true;
        }
        assert!(
            self.holdings[usize::from(key.volume)].alive,
            "a fill is for a volume that is there"
        );
        // A read has brought all of it.
        self.drop_partials(key.volume, key.block, key.block + 1);
        let written = origin != Origin::Read;
        if !written {
            self.rehearse(key, Access::Read { hit: false });
        }
        let unflushed = self.holdings[usize::from(key.volume)].unflushed;
        let flags = Flags::default().with_written(written).with_unflushed(unflushed);
        let straight = match self.eviction {
            // It has no RAM to keep a block in that may not go to flash.
            Eviction::Clock => {
                if !self.may_admit(key.volume, now) {
                    return false;
                }
                Some(Reason::All)
            }
            Eviction::Probation => {
                let returned = self.take_ghost(key, written);
                let earned = returned && self.rehearsal.way() != Admission::Closed;
                (earned && self.may_admit(key.volume, now)).then_some(Reason::Ghost)
            }
        };
        if straight.is_none() {
            self.vacate_oldest(now, outbox);
        }
        let Some(buffer) = self.take_buffer(outbox) else { return false };
        self.buffers.data().copy_from(buffer.at(), from.0, from.1, BLOCK_BYTES);
        if let Some(reason) = straight {
            if !self.admit(key, flags, buffer, reason, now, outbox) {
                self.buffers.give(buffer);
                return false;
            }
        } else {
            let flags = if origin == Origin::Rewrite { flags.with_refs(1) } else { flags };
            let slot = self.probation.push(buffer);
            self.settle(slot, key, flags);
            self.counters.ram_blocks += 1;
            self.holdings[usize::from(key.volume)].ram_blocks += 1;
            self.enter(key, slot);
        }
        self.counters.fills += 1;
        true
    }

    /// Whether a block that has earned flash may go there; counts the ones that may not.
    fn may_admit(&mut self, volume: u16, now: Instant) -> bool {
        self.counters.throttled_blocks += u64::from(!self.admits);
        self.admits && self.holdings[usize::from(volume)].fill_cap.passes(now)
    }

    /// Registers a block that has just been put into `slot`.
    pub(super) fn enter(&mut self, key: Key, slot: u32) {
        self.enter_hashed(key, self.hash(key), slot);
    }

    /// The same, with the hash of the key.
    pub(super) fn enter_hashed(&mut self, key: Key, hash: u64, slot: u32) {
        let pushed_out = self.map.insert(hash, slot);
        self.entered(key, pushed_out);
    }

    fn entered(&mut self, key: Key, pushed_out: Option<u32>) {
        self.holdings[usize::from(key.volume)].cached_blocks += 1;
        self.counters.cached_blocks += 1;
        if let Some(pushed_out) = pushed_out {
            let key = self.descriptors.key(pushed_out).expect("a mapped slot holds a key");
            let on_flash = self.is_on_flash(pushed_out);
            self.vacate(pushed_out, key);
            if on_flash {
                self.invalidate_key(key);
            }
        }
    }

    /// A buffer; if there is none, the fullest chunk is written early so that there will be.
    pub(super) fn take_buffer(&mut self, outbox: &mut Outbox<P>) -> Option<Buffer> {
        // Probation's own buffers are in use for good once it is full.
        let staging = self.buffers.total() - self.probation.len();
        if self.buffers.available() < staging / 8
            && self.log.writing.is_empty()
            && let Some(stream) = self.log.fullest_chunk()
        {
            self.submit_chunk(stream, outbox);
        }
        self.buffers.take()
    }

    /// Makes the oldest RAM slot free: its block earns flash, or its key goes to the ghost.
    fn vacate_oldest(&mut self, now: Instant, outbox: &mut Outbox<P>) {
        let slot = self.probation.oldest();
        let Some(key) = self.descriptors.key(slot) else { return };
        let flags = self.descriptors.flags(slot);
        let reason = if flags.refs() > 0 {
            Some(Reason::Referenced)
        } else {
            let room = self.rehearsal.way() == Admission::Open || self.has_room(key.volume);
            room.then_some(Reason::Filling)
        };
        if let Some(reason) = reason
            && self.may_admit(key.volume, now)
            && self.promote(slot, key, reason, now, outbox)
        {
            return;
        }
        if self.holdings[usize::from(key.volume)].alive {
            self.ghost.insert(self.hash(key), flags.written());
        }
        self.counters.rejected_blocks += 1;
        self.forget(slot, key);
    }

    /// Moves a block from RAM to flash; false if there is no room or its volume is gone.
    pub(super) fn promote(
        &mut self,
        slot: u32,
        key: Key,
        reason: Reason,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) -> bool {
        if !self.holdings[usize::from(key.volume)].alive {
            return false;
        }
        assert!(self.probation.holds(slot), "only what is in RAM moves to flash");
        let buffer = self.probation.buffer(slot).expect("an occupied RAM slot has a buffer");
        let flags = self.descriptors.flags(slot).with_refs(0);
        let Some((to, full)) = self.append(key, flags, buffer, reason, now) else { return false };
        let taken = self.probation.take(slot);
        assert_eq!(taken, Some(buffer), "a buffer has one owner: the chunk from now on");
        self.count_out_of_ram(key);
        self.unsettle(slot);
        let moved = self.map.replace(self.hash(key), slot, to);
        assert!(moved, "a descriptor without an entry in the address map");
        if let Some(stream) = full {
            self.submit_chunk(stream, outbox);
        }
        true
    }

    /// Puts a block straight onto flash.
    fn admit(
        &mut self,
        key: Key,
        flags: Flags,
        buffer: Buffer,
        reason: Reason,
        now: Instant,
        outbox: &mut Outbox<P>,
    ) -> bool {
        let Some((slot, full)) = self.append(key, flags, buffer, reason, now) else { return false };
        self.enter(key, slot);
        if let Some(stream) = full {
            self.submit_chunk(stream, outbox);
        }
        true
    }

    /// Appends to the open chunk of the volume's group: descriptor and checksum, not the map, which
    /// the caller reports before it submits the chunk. The index must be in use. Gives the slot,
    /// and the stream if its chunk is now full, or nothing if there is no room.
    pub(super) fn append(
        &mut self,
        key: Key,
        flags: Flags,
        buffer: Buffer,
        reason: Reason,
        now: Instant,
    ) -> Option<(u32, Option<Stream>)> {
        assert!(!self.dead && self.index == Index::InUse, "nothing comes in before all is known");
        let class = match reason {
            Reason::Reinserted => Class::Kept,
            _ if flags.written() => Class::Written,
            _ => Class::Read,
        };
        let stream = self.log.stream(self.group_of(key), class);
        let need = match reason {
            Reason::Reinserted if self.is_cleaning_behind() => Need::Move,
            Reason::Reinserted | Reason::CleanStop => Need::Keep,
            _ => Need::Fill,
        };
        if !self.log.open_chunk(stream, need, now) {
            return None;
        }
        for (segment, sequence) in self.log.opened.drain(..) {
            let ticket =
                self.journal.append(Record::Opened { segment, sequence, session: self.session });
            self.log.segments[segment as usize].announced = ticket;
            self.opened += 1;
        }
        let (slot, full) = self.log.push(stream, buffer);
        let segment = &self.log.segments[self.log.segment_of(slot) as usize];
        let announced = segment.announced != Ticket::NONE || !self.journal.is_enabled();
        assert!(announced, "recovery looks for chunks in segments that the journal names");
        self.settle(slot, key, flags);
        debug_assert_eq!(self.place(slot), Place::Ram(buffer), "served from RAM until written");
        if reason != Reason::Reinserted {
            let checksum = self.buffers.data().checksum(buffer.at(), self.checksum_seed(key));
            self.descriptors.set_checksum(slot, checksum);
        }
        self.cleaner.owe();
        *match reason {
            Reason::Filling => &mut self.counters.admitted.filling,
            Reason::Referenced => &mut self.counters.admitted.referenced,
            Reason::Ghost => &mut self.counters.admitted.ghost,
            Reason::All => &mut self.counters.admitted.all,
            Reason::CleanStop => &mut self.counters.admitted.clean_stop,
            Reason::Reinserted => &mut self.counters.reinserted_blocks,
        } += 1;
        Some((slot, full.then_some(stream)))
    }

    pub(super) fn group_of(&self, key: Key) -> u16 {
        self.holdings[usize::from(key.volume)].group
    }

    /// Whether nothing has to be given up for one more block of this volume: the log has room for
    /// more that is worth keeping, or the volume's group is within its share. A segment or two are
    /// left out, or what the hand has just condemned would look like room.
    fn has_room(&self, volume: u16) -> bool {
        let group = &self.log.groups[usize::from(self.holdings[usize::from(volume)].group)];
        let segment = self.log.segment_blocks();
        let (held, slack) = (self.counters.ram_blocks, 2 * segment);
        let limit = self.log.limit(self.cleaner.air());
        let most = self.log.limit_of(group);
        let most = most - slack.min(most / 4);
        let share = self.log.fair_blocks(group, limit);
        let share = share - share.min((share / 8).max(slack));
        let least = u64::from(group.segments_min) * segment;
        let room = limit - slack.min(limit / 4);
        group.worth < least
            || group.worth < most
                && (self.log.worth() + held < room || group.worth + held < share.min(room))
    }
}
