//! Volumes come and go: attach, detach, seal, forget.
//!
//! What the device knows of a volume is in its journal and its checkpoints; an attach is answered
//! when that is durable.

use super::{Engine, Recording};
use crate::journal::Ticket;
use crate::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX};
use crate::log::shares::Wanted;
use crate::metadata::checkpoint::VolumeRecord;
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, Failure, IoError, IoOp, Payload, RequestId, Target};
use crate::store::Holding;
use crate::units::{BLOCK_BYTES, VolumeId};
use crate::volume::{
    Belief, Covers, DropReason, ProofToken, Recorded, Volume, VolumeSpec, VolumeState, Warmth,
};

impl<P: Payload> Engine<P> {
    /// What the device knows of a volume that is not attached, for the driver's comparison with
    /// the backend.
    pub fn recorded(&self, name: &str) -> Option<Recorded> {
        let mut known = self.volumes.iter().flatten();
        let volume = known.find(|v| v.state == VolumeState::Sealed && v.spec.name == name)?;
        Some(Recorded { proof: volume.spec.proof.clone(), written: volume.written })
    }

    /// Volumes that recovery found.
    pub(super) fn adopt_volumes(&mut self, records: Vec<VolumeRecord>) {
        for record in records {
            let index = usize::from(record.index);
            let spec = VolumeSpec {
                proof: record.proof,
                generation: record.generation,
                ..VolumeSpec::new(record.name, record.size_bytes)
            };
            if self.volumes.len() <= index {
                self.volumes.resize_with(index + 1, || None);
            }
            assert!(self.volumes[index].is_none(), "of each index one volume is left");
            let mut volume = Volume::new(spec, record.incarnation, VolumeState::Sealed);
            volume.written = record.written;
            self.volumes[index] = Some(volume);
        }
    }

    pub(super) fn attach(&mut self, id: RequestId, spec: VolumeSpec) {
        self.attaching.push_back((id, spec));
        self.continue_attaches();
    }

    /// Attaches the volumes that there is an index and an incarnation for, in order.
    pub(super) fn continue_attaches(&mut self) {
        while let Some((_, spec)) = self.attaching.front() {
            let sound = self.is_attachable(spec);
            if sound && !self.is_remembered(spec) && !self.has_identity() {
                return;
            }
            let (id, spec) = self.attaching.pop_front().expect("just seen");
            if !sound {
                self.outbox.reply(id, Err(Failure::Invalid));
                continue;
            }
            match self.try_attach(spec) {
                Ok((volume, warmth)) => {
                    let ticket = self.newest_ticket();
                    let last = self.at_journal.back().map_or(Ticket::NONE, |(last, ..)| *last);
                    assert!(last <= ticket, "answers go in the order of their records");
                    self.at_journal.push_back((ticket, id, Recording::Attach(volume, warmth)));
                    self.answer_recorded();
                }
                Err(failure) => self.outbox.reply(id, Err(failure)),
            }
        }
    }

    /// Answers those whose volume the device knows of by now, or knows no more.
    pub(super) fn answer_recorded(&mut self) {
        while let Some(&(ticket, id, recording)) = self.at_journal.front()
            && (self.store.dead || self.store.journal.is_durable(ticket))
        {
            self.at_journal.pop_front();
            match recording {
                Recording::Attach(volume, warmth) => self.attach_recorded(id, volume, warmth),
                Recording::Seal(volume) => self.seal_recorded(id, volume),
                Recording::Grow => self.outbox.reply(id, Ok(Answer::Done)),
                Recording::Forget => {
                    let durable = self.store.journal.is_durable(ticket);
                    let result = durable.then_some(Answer::Done).ok_or(Failure::Io(IoError::Io));
                    self.outbox.reply(id, result);
                }
            }
        }
    }

    fn attach_recorded(&mut self, id: RequestId, volume: u16, warmth: Warmth) {
        // What an earlier session wrote may not be flushed; the proof given with the attach is new, so
        // the first that is asked for is due in a period.
        self.volume(volume).beat.next = Some(self.next_beat(volume));
        if self.store.holdings[usize::from(volume)].unflushed {
            self.beat_due(volume);
        }
        let volume = VolumeId(volume);
        self.outbox.reply(id, Ok(Answer::Attached { volume, warmth }));
    }

    /// Whether such a volume can be served, now.
    fn is_attachable(&self, spec: &VolumeSpec) -> bool {
        let align = u64::from(spec.align_bytes);
        !spec.name.is_empty()
            && spec.name.len() <= NAME_BYTES_MAX
            && spec.size_bytes > 0
            && spec.size_bytes.div_ceil(BLOCK_BYTES) <= VOLUME_BLOCKS_MAX
            && (align == 512 || align == BLOCK_BYTES)
            && spec.size_bytes.is_multiple_of(align)
            && (self.reopening || self.lifecycle.takes_volumes())
    }

    /// Whether the volume goes on with what the device holds of it, or can't be attached at all: it
    /// needs no index and no incarnation.
    fn is_remembered(&self, spec: &VolumeSpec) -> bool {
        let known = self.volumes.iter().flatten().find(|volume| volume.spec.name == spec.name);
        let anyway = self.config.mutants.is(Mutant::ProofIgnored);
        known.is_some_and(|volume| {
            volume.state != VolumeState::Sealed || believe(&volume.spec, spec, anyway).is_ok()
        })
    }

    fn try_attach(&mut self, spec: VolumeSpec) -> Result<(u16, Warmth), Failure> {
        let named = |v: &Option<Volume>| v.as_ref().is_some_and(|v| v.spec.name == spec.name);
        let mut warmth = Warmth::New;
        let mut dropped = (0, None);
        if let Some(index) = self.volumes.iter().position(named) {
            let old = self.volumes[index].as_ref().expect("just found");
            if old.state != VolumeState::Sealed {
                return Err(Failure::Invalid);
            }
            let blocks = self.store.holdings[index].cached_blocks;
            match believe(&old.spec, &spec, self.config.mutants.is(Mutant::ProofIgnored)) {
                Ok(()) => {
                    let (incarnation, group) = (old.incarnation, old.group);
                    // What it holds may have been written without a flush, if it was left so.
                    let writes = u64::from(old.written && !spec.read_only);
                    let mut volume = Volume::new(spec, incarnation, VolumeState::Attached);
                    volume.group = group;
                    self.volumes[index] = Some(volume);
                    self.take_up(index as u16, writes);
                    let warm = Warmth::Warm { blocks };
                    let loading = self.loader.is_some();
                    return Ok((index as u16, if loading { Warmth::Loading } else { warm }));
                }
                Err(reason) => {
                    self.bury(index as u16);
                    warmth = Warmth::Dropped { blocks, reason };
                    dropped = (blocks, self.loader.is_some().then_some(index as u16));
                }
            }
        }
        let index = self.take_index().ok_or(Failure::Limit)?;
        let incarnation = self.take_incarnation().ok_or(Failure::Limit)?;
        let writes = u64::from(!spec.read_only);
        let mut volume = Volume::new(spec, incarnation, VolumeState::Attached);
        (volume.counters.dropped_blocks, volume.replaces) = dropped;
        self.volumes[usize::from(index)] = Some(volume);
        self.store.holdings[usize::from(index)] =
            Holding { incarnation, alive: true, ..Holding::default() };
        self.take_up(index, writes);
        Ok((index, warmth))
    }

    /// A volume begins to be served. `writes`: some may not be covered by a backend flush.
    fn take_up(&mut self, index: u16, writes: u64) {
        let holding = self.store.holdings[usize::from(index)];
        let volume = self.volume(index);
        assert_eq!(volume.state, VolumeState::Attached, "a volume that is to be served");
        let same = holding.alive && holding.incarnation == volume.incarnation;
        assert!(same, "its blocks are those of its own incarnation");
        volume.writes = writes;
        volume.written = !volume.spec.read_only;
        self.store.holdings[usize::from(index)].unflushed = writes > 0;
        self.join_group(index);
        self.record_volume(index);
    }

    /// Lets the device know of a volume as it is now.
    pub(super) fn record_volume(&mut self, index: u16) {
        if self.store.dead {
            return;
        }
        let stamp = self.store.journal.next_stamp();
        let record = self.volume_record(index, stamp);
        self.store.journal.append(Record::Volume(Box::new(record)));
    }

    pub(super) fn volume_record(&self, index: u16, stamp: u64) -> VolumeRecord {
        let volume = self.volumes[usize::from(index)].as_ref().expect("a known volume");
        VolumeRecord {
            index,
            incarnation: volume.incarnation,
            size_bytes: volume.spec.size_bytes,
            generation: volume.spec.generation,
            stamp,
            flushed: self.store.holdings[usize::from(index)].flushed,
            written: volume.written,
            name: volume.spec.name.clone(),
            proof: volume.spec.proof.clone(),
        }
    }

    pub(super) fn join_group(&mut self, index: u16) {
        let volume = self.volumes[usize::from(index)].as_mut().expect("just attached");
        let wanted = Wanted {
            min: volume.spec.share_min_blocks,
            max: volume.spec.share_max_blocks,
            target: volume.share_target_blocks,
        };
        let group = self.store.log.join(index, volume.group, wanted);
        volume.group = Some(group);
        let fill_limit = volume.spec.fill_limit_bytes;
        let holding = &mut self.store.holdings[usize::from(index)];
        holding.group = group;
        holding.fill_cap.set(fill_limit);
    }

    /// A volume's incarnation ends: its blocks are never believed again, and go as they are met.
    pub(super) fn bury(&mut self, index: u16) {
        self.end_incarnation(index);
        self.volumes[usize::from(index)] = None;
    }

    /// As [`bury`](Self::bury), but the volume keeps its index while its end is being recorded.
    fn end_incarnation(&mut self, index: u16) {
        self.store.close_regions_of(index);
        let volume = self.volumes[usize::from(index)].as_mut().expect("a known volume");
        let holding = &mut self.store.holdings[usize::from(index)];
        assert!(holding.alive || self.store.dead, "an incarnation ends once");
        holding.alive = false;
        if let Some(group) = volume.group.take() {
            self.store.log.leave(group);
        }
        if !self.store.dead && !self.config.mutants.is(Mutant::DropNotRecorded) {
            let incarnation = volume.incarnation;
            self.store.journal.append(Record::Dropped { incarnation });
        }
    }

    /// Drops the blocks of a volume that is not attached; answered when that is durable.
    pub(super) fn forget(&mut self, id: RequestId, name: &str) {
        let sealed = |v: &Volume| v.state == VolumeState::Sealed && v.spec.name == name;
        let index = self.volumes.iter().position(|v| v.as_ref().is_some_and(sealed));
        let Some(index) = index.filter(|_| self.lifecycle.is_serving()) else {
            return self.outbox.reply(id, Err(Failure::NoVolume));
        };
        self.bury(index as u16);
        self.at_journal.push_back((self.newest_ticket(), id, Recording::Forget));
        self.answer_recorded();
    }

    /// A volume has become larger. The proof is recorded with the size: after a crash a disk of the
    /// old size in the record would look like another one.
    pub(super) fn grow(
        &mut self,
        id: RequestId,
        volume: VolumeId,
        size_bytes: u64,
        proof: Option<ProofToken>,
    ) {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        let Some(known) = known.filter(|v| v.state == VolumeState::Attached) else {
            return self.outbox.reply(id, Err(Failure::NoVolume));
        };
        let sound = size_bytes >= known.spec.size_bytes
            && size_bytes.is_multiple_of(u64::from(known.spec.align_bytes))
            && size_bytes.div_ceil(BLOCK_BYTES) <= VOLUME_BLOCKS_MAX;
        // The rest of a block that was not whole is padded with zeros where it is cached.
        let grows = size_bytes > known.spec.size_bytes;
        if !sound || grows && !known.spec.size_bytes.is_multiple_of(BLOCK_BYTES) {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        known.spec.size_bytes = size_bytes;
        if proof.is_some() {
            known.spec.proof = proof;
        }
        // The proof under way may be of the old size.
        known.beat.due |= known.beat.in_flight;
        if self.store.dead {
            return self.outbox.reply(id, Ok(Answer::Done));
        }
        self.record_volume(volume.0);
        self.at_journal.push_back((self.newest_ticket(), id, Recording::Grow));
        self.answer_recorded();
    }

    pub(super) fn detach(&mut self, id: RequestId, volume: VolumeId) {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        match known.filter(|v| v.state == VolumeState::Attached) {
            None => self.outbox.reply(id, Err(Failure::NoVolume)),
            Some(state) => {
                state.state = VolumeState::Detaching(id);
                self.orphan(volume.0);
                self.detach_if_quiet(volume.0);
            }
        }
    }

    /// Once a volume being detached has no more requests, its backend is flushed.
    pub(super) fn detach_if_quiet(&mut self, index: u16) {
        let volume = self.volume(index);
        let VolumeState::Detaching(id) = volume.state else { return };
        if volume.requests > 0 || volume.beat.in_flight || volume.bumping_generation {
            return;
        }
        if !self.config.mutants.is(Mutant::PartialOutlivesVolume) {
            self.store.drop_partials(index, 0, u64::MAX);
        }
        let volume = self.volume(index);
        assert!(volume.locks.is_empty(), "who has left holds nothing");
        assert!(volume.late == 0 && volume.invalidations == 0, "and is counted nowhere");
        self.store.close_regions_of(index);
        let volume = self.volume(index);
        // One flush: from now on there is no second way here.
        volume.state = VolumeState::Flushing(id);
        if volume.spec.read_only {
            volume.state = VolumeState::Detached;
            return self.outbox.reply(id, Ok(Answer::Done));
        }
        volume.counters.backend_flushes += 1;
        let covers = self.covers(index);
        let target = Target::Backend(VolumeId(index));
        self.outbox.io(target, IoOp::Flush, Pending::Detach { volume: index, covers });
    }

    /// The last flush of a volume has ended. If it failed, its blocks prove nothing any more.
    pub(super) fn detach_flushed(
        &mut self,
        index: u16,
        covers: Covers,
        result: Result<(), IoError>,
    ) {
        let result = self.flush_ended(index, covers, result);
        let volume = self.volume(index);
        let VolumeState::Flushing(id) = volume.state else { unreachable!("it was detaching") };
        match result {
            Ok(()) => {
                volume.state = VolumeState::Detached;
                self.outbox.reply(id, Ok(Answer::Done));
            }
            Err(error) => {
                volume.state = VolumeState::Sealing(id, Some(error));
                self.end_incarnation(index);
                self.await_record(index, id);
            }
        }
    }

    /// A volume's backend may have lost what was not flushed, and it is unknown which blocks those
    /// are.
    pub(super) fn discard(&mut self, id: RequestId, volume: VolumeId) {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        let there = known.filter(|volume| {
            !matches!(volume.state, VolumeState::Sealing(..) | VolumeState::Sealed)
        });
        let result = match there {
            Some(volume) => {
                volume.discarded = true;
                Ok(Answer::Done)
            }
            None => Err(Failure::NoVolume),
        };
        self.outbox.reply(id, result);
    }

    /// A volume ends, with the proof by which it is known again. Answered when the device knows of
    /// that: until then it has the volume as one that is being written, and what others write
    /// within the window would pass for the volume's own.
    pub(super) fn seal(&mut self, id: RequestId, volume: VolumeId, proof: Option<ProofToken>) {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        let Some(state) = known.filter(|v| v.state == VolumeState::Detached) else {
            return self.outbox.reply(id, Err(Failure::NoVolume));
        };
        state.state = VolumeState::Sealing(id, None);
        let unproven = proof.is_none() && !state.spec.exclusive;
        if self.store.dead || state.discarded || unproven {
            self.end_incarnation(volume.0);
        } else {
            state.spec.proof = proof;
            state.written = false;
            // What it was guaranteed is for those who are there.
            state.spec.share_min_blocks = 0;
            state.share_target_blocks = None;
            self.record_volume(volume.0);
            self.join_group_sealed(volume.0);
        }
        self.await_record(volume.0, id);
    }

    /// Lets the end of a volume wait for its record.
    fn await_record(&mut self, index: u16, id: RequestId) {
        if self.config.mutants.is(Mutant::SealBeforeDurable) {
            return self.seal_recorded(id, index);
        }
        self.at_journal.push_back((self.newest_ticket(), id, Recording::Seal(index)));
        self.answer_recorded();
    }

    /// The device knows of a volume's end, or is lost. If it was lost under the volume, its record
    /// says that the volume is being written, and only another generation shows that it is not.
    fn seal_recorded(&mut self, id: RequestId, index: u16) {
        let dead = self.store.dead;
        let volume = self.volume(index);
        let waits = matches!(volume.state, VolumeState::Sealing(sealed, _) if sealed == id);
        assert!(waits, "a record is that of the volume which waits for it");
        if dead && (volume.bumping_generation || volume.device_lost && !volume.generation_bumped) {
            return self.bump_generation(index);
        }
        self.end_sealing(index, Ok(()));
    }

    /// Answers the end of a volume; `result` is that of its new generation, if it needed one.
    pub(super) fn end_sealing(&mut self, index: u16, result: Result<(), IoError>) {
        let kept = !self.store.dead && self.store.holdings[usize::from(index)].alive;
        let volume = self.volume(index);
        let VolumeState::Sealing(id, failure) = volume.state else { unreachable!("it waits") };
        if kept {
            assert!(!volume.written, "a sealed volume is as its proof says");
            volume.state = VolumeState::Sealed;
        } else {
            self.volumes[usize::from(index)] = None;
            if !self.config.mutants.is(Mutant::LostVolumeKeepsIndex) {
                // If the device was lost while the end was being recorded, the incarnation ends here:
                // else no sweep would take its blocks out, and its index would never be free again.
                self.store.holdings[usize::from(index)].alive = false;
            }
        }
        let failure = failure.or(result.err()).map(Failure::Io);
        self.outbox.reply(id, failure.map_or(Ok(Answer::Done), Err));
        self.resume_replacement();
        self.continue_attaches();
    }

    /// A sealed volume keeps its group, so that its blocks keep their place, but no minimum.
    fn join_group_sealed(&mut self, index: u16) {
        let Some(group) = self.volume(index).group else { return };
        if group != 0 {
            let group = &mut self.store.log.groups[usize::from(group)];
            (group.segments_wanted, group.segments_target) = (0, None);
            self.store.log.share_out();
        }
    }
}

/// Whether blocks of `old` may be served for `new`.
fn believe(old: &VolumeSpec, new: &VolumeSpec, anyway: bool) -> Result<(), DropReason> {
    if old.size_bytes != new.size_bytes {
        return Err(DropReason::BackendChanged);
    }
    if old.generation != new.generation {
        return Err(DropReason::WrittenWithoutCache);
    }
    match new.belief {
        _ if anyway => Ok(()),
        Belief::Unchanged => Ok(()),
        Belief::Changed => Err(DropReason::BackendChanged),
        Belief::Unknown if new.exclusive => Ok(()),
        Belief::Unknown => Err(DropReason::NoProof),
    }
}
