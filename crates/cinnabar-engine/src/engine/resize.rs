//! Another size of the log while it serves: see `docs/design/resize.md`.
//!
//! The superblock says two numbers of segments: those that are *used*, and those that may have *room*
//! on the device. A step is chosen by these two, by what the log may fill now, and by the size wanted;
//! so it does not matter where an earlier resize was interrupted.
//!
//! Larger: `room` is raised, durably; room is made; `used` is raised, durably; only then is a segment
//! behind the old size filled. Smaller: nothing more is filled behind the new size; the segments there
//! are emptied as the cleaner empties any other, each after a durable record that nothing in it is to
//! be believed; `used` is lowered, durably; room is given back; `room` is lowered.

use super::Engine;
use super::lifecycle::Copies;
use crate::health::PassThroughReason;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, Failure, IoError, IoOp, Payload, RequestId, Target};
use crate::units::{BLOCK_BYTES, ByteSpan};
use crate::volume::{Volume, VolumeState};

/// Bytes for which room is made or given back by one I/O: little enough to end within the time-out of
/// any device that works.
const ROOM_BYTES: u64 = 256 << 20;
/// In so many parts at least, for all of a log.
const PARTS_MIN: u32 = 8;
/// Fewest segments that a log can do with.
const SEGMENTS_MIN: u32 = 4;

/// A resize under way.
#[derive(Debug)]
pub(super) struct Resize {
    /// Of the command that asked for it. None if it goes on with what an earlier session began.
    asked: Option<RequestId>,
    /// It goes back to where it was: that is not refused.
    back: bool,
    /// Segments wanted.
    target: u32,
    /// The I/O under way.
    io: Option<ResizeIo>,
    /// Segments that have room for sure, from the first one on.
    made: u32,
    /// Where room begins that was given back.
    given: u32,
    /// A flush covers all room that was made or given back.
    settled: bool,
    /// Segments to be emptied or made room for, when it began.
    of: u32,
    /// It could not be done, and goes back.
    failure: Option<Failure>,
}

/// An I/O of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResizeIo {
    /// A superblock is written; which copies are still to be.
    Mark(Copies),
    /// Room is made up to this segment.
    Make(u32),
    /// It is given back from this segment on.
    Give(u32),
    /// What was made or given back becomes durable.
    Settle,
}

impl Resize {
    /// Whether an I/O of it is under way.
    pub(super) const fn has_io(&self) -> bool {
        self.io.is_some()
    }

    const fn is_marking(&self) -> bool {
        matches!(self.io, Some(ResizeIo::Mark(_)))
    }
}

impl<P: Payload> Engine<P> {
    /// An operator wants so many segments to be used; `back`: as before, because another shard can't.
    pub(super) fn resize(&mut self, id: RequestId, segments: u32, back: bool) {
        let all = self.superblock.geometry.segments;
        let sound = (SEGMENTS_MIN.min(all)..=all).contains(&segments);
        if !self.lifecycle.is_serving() || !sound {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        let crowded = !self.store.log.has_place_for_groups(segments);
        if crowded && segments < self.store.log.bound && !back {
            return self.outbox.reply(id, Err(Failure::Limit));
        }
        self.want_size(Some(id), segments, back);
        self.advance_resize();
    }

    fn want_size(&mut self, asked: Option<RequestId>, target: u32, back: bool) {
        let used = self.superblock.segments_used;
        let before = self.resize.take();
        let (io, made, given, settled) = match &before {
            Some(resize) => (resize.io, resize.made, resize.given, resize.settled),
            None => (None, used, self.superblock.segments_room, true),
        };
        if let Some(id) = before.and_then(|resize| resize.asked) {
            self.outbox.reply(id, Err(Failure::Interrupted));
        }
        let of = target.abs_diff(used);
        let failure = None;
        self.resize = Some(Resize { asked, back, target, io, made, given, settled, of, failure });
        // The cleaner has something to do, perhaps.
        self.wake_at(self.now);
    }

    /// A session begins, and its index is there: an earlier one may have left a resize unfinished, or,
    /// where an older copy of the superblock had to do, blocks behind the size that this one says.
    pub(super) fn continue_old_resize(&mut self) {
        self.store.log.count_behind();
        let unfinished = self.superblock.segments_room > self.superblock.segments_used;
        if self.resize.is_none() && (unfinished || self.store.log.behind > 0) {
            self.want_size(None, self.superblock.segments_used, true);
        }
        self.advance_resize();
    }

    /// Whether a resize writes the superblock just now.
    pub(super) fn resize_marks(&self) -> bool {
        self.resize.as_ref().is_some_and(Resize::is_marking)
    }

    /// Segments that a resize under way has to empty or to make room for, and how many are done.
    pub(super) fn resize_progress(&self) -> (u64, u64) {
        let Some(resize) = &self.resize else { return (0, 0) };
        let used = self.superblock.segments_used;
        let left = match resize.target {
            target if target > used => target - resize.made.clamp(used, target),
            _ => self.store.log.behind,
        };
        let of = resize.of.max(left);
        (of.into(), (of - left).into())
    }

    /// The device is gone, or a clean stop does not wait for the rest.
    pub(super) fn end_resize(&mut self, failure: Failure) {
        if let Some(id) = self.resize.take().and_then(|resize| resize.asked) {
            self.outbox.reply(id, Err(failure));
        }
    }

    /// Goes on with a resize as far as it can without waiting.
    pub(super) fn advance_resize(&mut self) {
        while let Some(resize) = &self.resize
            && resize.io.is_none()
            && self.loader.is_none()
            && self.lifecycle.is_serving()
            // It writes superblocks, too; what waits for it goes on when it has ended.
            && !self.identities.is_reserving()
            && self.step_resize()
        {}
    }

    /// Takes the next step; false if something has to be waited for.
    fn step_resize(&mut self) -> bool {
        let Some(resize) = &self.resize else { return false };
        let (target, made, given) = (resize.target, resize.made, resize.given);
        let settled = resize.settled || self.config.mutants.is(Mutant::RoomNotSettled);
        let (used, room) = (self.superblock.segments_used, self.superblock.segments_room);
        assert!(used <= room, "what is used has room");
        let mutants = self.config.mutants;
        let early = mutants.is(Mutant::FilledBeforeRoom);
        let bound = if early { target } else { target.min(used) };
        let lowers = bound < self.store.log.bound && !resize.back && resize.failure.is_none();
        if lowers && !self.store.log.has_place_for_groups(bound) {
            // Volumes have come since it was asked for, or their groups with the index.
            self.fail_resize(Failure::Limit);
            return true;
        }
        if self.store.log.bound != bound {
            self.move_bound(bound);
        }
        if target > used {
            if room < target {
                self.superblock.segments_room = target;
                return self.mark_size();
            }
            if made < target {
                return self.make_room(made.max(used), target);
            }
            if !settled {
                return self.settle_room();
            }
            self.superblock.segments_used = target;
            return mutants.is(Mutant::FilledBeforeRecorded) || self.mark_size();
        }
        let hasty = mutants.is(Mutant::RoomGivenBeforeRecorded) && used > target;
        if hasty && given > target && self.store.is_empty_behind() {
            return self.give_room(target, given);
        }
        if !self.store.is_empty_behind() {
            // The cleaner empties it.
            return false;
        }
        if used > target {
            self.superblock.segments_used = target;
            return self.mark_size();
        }
        if room > used && given > used {
            return self.give_room(used, given);
        }
        if room > used && !settled {
            return self.settle_room();
        }
        if room > used {
            self.superblock.segments_room = used;
            return self.mark_size();
        }
        self.resized();
        false
    }

    /// All of it is done, or undone.
    fn resized(&mut self) {
        let resize = self.resize.take().expect("it is under way");
        assert_eq!(self.superblock.segments_used, resize.target, "the device has the size wanted");
        assert_eq!(self.store.log.bound, resize.target, "and so has the log");
        if let Some(id) = resize.asked {
            self.outbox.reply(id, resize.failure.map_or(Ok(Answer::Done), Err));
        }
    }

    /// It can't be done: the size stays what the superblock says, and what was begun is undone.
    fn fail_resize(&mut self, failure: Failure) {
        let resize = self.resize.as_mut().expect("it is under way");
        assert!(resize.failure.is_none(), "what has failed goes back, and that is not refused");
        (resize.failure, resize.target) = (Some(failure), self.superblock.segments_used);
    }

    /// From now on only so many segments are filled, and shares are parts of them.
    fn move_bound(&mut self, bound: u32) {
        self.store.set_bound(bound, &mut self.outbox);
        let there = |volume: &Volume| volume.group.is_some() && volume.state != VolumeState::Sealed;
        for index in 0..self.volumes.len() {
            if self.volumes[index].as_ref().is_some_and(there) {
                self.join_group(index as u16);
            }
        }
        self.store.log.share_out();
    }

    /// Writes both copies of the superblock, one after the other; false: waits for them.
    fn mark_size(&mut self) -> bool {
        assert!(!self.identities.is_reserving(), "one copy of a superblock is written at a time");
        self.begin_resize_io(ResizeIo::Mark(Copies::Both));
        self.write_superblock_for(Pending::Resize(ResizeIo::Mark(Copies::Both)));
        false
    }

    fn begin_resize_io(&mut self, io: ResizeIo) {
        let resize = self.resize.as_mut().expect("it is under way");
        assert!(resize.io.is_none(), "one I/O of a resize at a time");
        resize.io = Some(io);
    }

    fn make_room(&mut self, from: u32, to: u32) -> bool {
        let to = to.min(from + self.segments_at_once());
        self.begin_resize_io(ResizeIo::Make(to));
        let op = IoOp::MakeRoom { span: self.span_of(from, to) };
        self.outbox.io(Target::Cache, op, Pending::Resize(ResizeIo::Make(to)));
        false
    }

    fn give_room(&mut self, from: u32, to: u32) -> bool {
        let from = from.max(to.saturating_sub(self.segments_at_once()));
        self.begin_resize_io(ResizeIo::Give(from));
        let op = IoOp::Trim { span: self.span_of(from, to) };
        self.outbox.io(Target::Cache, op, Pending::Resize(ResizeIo::Give(from)));
        false
    }

    /// A superblock speaks of room only when that is durable: its own write covers nothing else, and
    /// what file systems do beside it is not promised.
    fn settle_room(&mut self) -> bool {
        self.begin_resize_io(ResizeIo::Settle);
        self.outbox.io(Target::Cache, IoOp::Flush, Pending::Resize(ResizeIo::Settle));
        false
    }

    fn segments_at_once(&self) -> u32 {
        let segment = u64::from(self.superblock.geometry.segment_slots()) * BLOCK_BYTES;
        let parts = u64::from(self.superblock.geometry.segments / PARTS_MIN);
        (ROOM_BYTES / segment).min(parts).max(1) as u32
    }

    fn span_of(&self, from: u32, to: u32) -> ByteSpan {
        let geometry = &self.superblock.geometry;
        assert!(from < to && to <= geometry.segments, "some segments of the log");
        let slots = u64::from(geometry.segment_slots());
        let offset = (geometry.log + u64::from(from) * slots) * BLOCK_BYTES;
        ByteSpan::new(offset, u64::from(to - from) * slots * BLOCK_BYTES)
    }

    /// An I/O of a resize has ended.
    pub(super) fn resize_io_done(&mut self, io: ResizeIo, result: Result<(), IoError>) {
        if let (Some(resize), false) = (&mut self.resize, self.store.dead) {
            assert_eq!(resize.io.take(), Some(io), "one I/O of a resize at a time");
            match (io, result) {
                (ResizeIo::Mark(_) | ResizeIo::Settle, Err(error)) => {
                    self.store.count_device_error();
                    self.lose_device(PassThroughReason::Failed(error));
                }
                (ResizeIo::Mark(Copies::Both), Ok(())) => {
                    let last = ResizeIo::Mark(Copies::Last);
                    self.begin_resize_io(last);
                    self.write_superblock_for(Pending::Resize(last));
                }
                (ResizeIo::Mark(Copies::Last), Ok(())) => self.continue_attaches(),
                (ResizeIo::Settle, Ok(())) => resize.settled = true,
                // Where room can't be kept free, it is there or it is not when it is needed.
                (ResizeIo::Make(to), Ok(()) | Err(IoError::Unsupported)) => {
                    resize.made = to;
                    resize.given = resize.given.max(to);
                    resize.settled = false;
                }
                (ResizeIo::Make(to), Err(error)) => {
                    // Part of it may have been made.
                    resize.given = resize.given.max(to);
                    resize.settled = false;
                    // The one that asked for more than is wanted now may have been overtaken.
                    if to <= resize.target {
                        self.fail_resize(Failure::Io(error));
                    }
                }
                // What can't be given back stays, and is used when the log grows again.
                (ResizeIo::Give(from), _) => {
                    resize.given = from;
                    resize.made = resize.made.min(from);
                    resize.settled = false;
                }
            }
        }
        self.advance_resize();
        self.advance_lifecycle();
    }
}
