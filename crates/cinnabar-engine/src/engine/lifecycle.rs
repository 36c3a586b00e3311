//! The engine's life: open, attach, detach, seal, close.
//!
//! Called by the engine's router. A device is marked as in use, durably, before anything else is
//! written to it; only a clean stop takes that back. So a checkpoint is believed once.

use super::Engine;
use crate::health::{Health, LoadReport};
use crate::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX, VOLUMES_MAX};
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::VolumeRecord;
use crate::metadata::superblock::DeviceState;
use crate::outbox::Pending;
use crate::seam::{Answer, Command, Failure, IoError, IoOp, Payload, RequestId, Target};
use crate::store::{CheckpointWriter, Holding, Loader, Store};
use crate::units::{BLOCK_BYTES, VolumeId};
use crate::volume::{Belief, DropReason, Epoch, Recorded, Volume, VolumeSpec, VolumeState, Warmth};

/// Incarnations that one life may give out.
const INCARNATIONS_A_LIFE: u32 = 4096;

/// Where the engine is in its life.
pub(super) enum Lifecycle {
    /// Not opened yet.
    Fresh,
    /// Reading the checkpoint of a clean stop.
    Loading(RequestId, Loader),
    /// Marking the device as in use, in one copy of the superblock and then in the other: rot in the
    /// newer one must not bring back an older that says clean.
    Marking(RequestId, Copies),
    Serving,
    Closing(RequestId, Closing),
    /// Closed, or failed to open.
    Ended,
}

/// Copies of the superblock still to be written, the one under way included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    Both,
    Last,
}

/// Steps of a clean stop.
pub(super) enum Closing {
    /// Writing probation out, from this RAM slot on.
    Probation(usize),
    /// Waiting for the log.
    Log,
    /// Flushing it.
    FlushLog,
    Checkpoint(CheckpointWriter),
    FlushCheckpoint,
    /// Marking the device as clean.
    Marking,
}

impl Lifecycle {
    pub(super) fn is_serving(&self) -> bool {
        matches!(self, Self::Serving)
    }
}

impl<P: Payload> Engine<P> {
    pub(super) fn control(&mut self, id: RequestId, command: Command) {
        match command {
            Command::Open => self.open(id),
            Command::Attach(spec) => {
                let result = self.attach(spec);
                self.outbox.reply(id, result);
            }
            Command::Detach(volume) => self.detach(id, volume),
            Command::Seal(volume, epoch) => {
                let result = self.seal(volume, epoch);
                self.outbox.reply(id, result);
            }
            Command::Close => self.close(id),
            Command::AwaitLoad => {
                self.outbox.reply(id, Ok(Answer::Loaded(LoadReport::default())));
            }
            Command::Forget(_) | Command::Replace(_) | Command::Abandon => {
                self.outbox.reply(id, Err(Failure::Invalid));
            }
        }
    }

    /// What the device knows of a volume that is not attached, for the driver's comparison with
    /// the backend.
    pub fn recorded(&self, name: &str) -> Option<Recorded> {
        let known = self.volumes.iter().flatten();
        let volume =
            known.filter(|v| v.state == VolumeState::Sealed).find(|v| v.spec.name == name)?;
        Some(Recorded { epoch: volume.spec.epoch.clone(), written: false })
    }

    /// Whether the cache device is in use.
    pub fn health(&self) -> Health {
        match self.lifecycle {
            Lifecycle::Serving => Health::Serving,
            Lifecycle::Ended => Health::Closed,
            _ => Health::Opening,
        }
    }

    fn open(&mut self, id: RequestId) {
        if !matches!(self.lifecycle, Lifecycle::Fresh) {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        match self.superblock.state {
            DeviceState::Clean { checkpoint } => {
                let loader = Loader::new(checkpoint);
                self.store.read_checkpoint(&loader, &mut self.outbox);
                self.lifecycle = Lifecycle::Loading(id, loader);
            }
            DeviceState::InUse => self.mark_in_use(id),
        }
    }

    fn mark_in_use(&mut self, id: RequestId) {
        self.lifecycle = Lifecycle::Marking(id, Copies::Both);
        self.superblock.state = DeviceState::InUse;
        self.superblock.next_incarnation += INCARNATIONS_A_LIFE;
        self.write_superblock();
    }

    fn write_superblock(&mut self) {
        self.superblock.sequence += 1;
        let (offset, page) = self.superblock.encode();
        let data = smallvec::SmallVec::new();
        let op = IoOp::WriteMeta { offset, pages: vec![page], data, fua: true };
        self.outbox.io(Target::Cache, op, Pending::Control);
    }

    /// Pages of a checkpoint have been read or written.
    pub(super) fn checkpoint_done(&mut self, result: Result<(), IoError>, pages: &[MetaPage]) {
        match std::mem::replace(&mut self.lifecycle, Lifecycle::Ended) {
            Lifecycle::Loading(id, mut loader) => {
                if result.is_err() || !self.store.load(&mut loader, pages) {
                    // A damaged checkpoint costs warmth, never truth.
                    self.store = Store::new(&self.config, &self.superblock);
                    self.store.count_device_error();
                    return self.mark_in_use(id);
                }
                if self.store.read_checkpoint(&loader, &mut self.outbox) {
                    self.lifecycle = Lifecycle::Loading(id, loader);
                    return;
                }
                self.store.finish_load(&mut loader);
                self.adopt_volumes(loader.volumes);
                self.mark_in_use(id);
            }
            Lifecycle::Closing(id, Closing::Checkpoint(mut writer)) => {
                if let Err(error) = result {
                    return self.outbox.reply(id, Err(Failure::Io(error)));
                }
                let more = self.store.write_checkpoint(&mut writer, &mut self.outbox);
                let step =
                    if more { Closing::Checkpoint(writer) } else { Closing::FlushCheckpoint };
                if !more {
                    self.outbox.io(Target::Cache, IoOp::Flush, Pending::Control);
                }
                self.lifecycle = Lifecycle::Closing(id, step);
            }
            _ => unreachable!("checkpoint I/O outside of opening and closing"),
        }
    }

    fn adopt_volumes(&mut self, records: Vec<VolumeRecord>) {
        for record in records {
            let index = usize::from(record.index);
            let spec = VolumeSpec {
                name: record.name,
                size_bytes: record.size_bytes,
                align_bytes: 512,
                read_only: false,
                mode: crate::plan::Mode::default(),
                share_min_blocks: 0,
                share_max_blocks: u64::MAX,
                bypass_sequential_bytes: 0,
                bypass_large_bytes: 0,
                epoch: record.epoch,
                belief: Belief::Unknown,
                generation: 0,
                exclusive: false,
            };
            if self.volumes.len() <= index {
                self.volumes.resize_with(index + 1, || None);
            }
            self.volumes[index] = Some(Volume::new(spec, record.incarnation, VolumeState::Sealed));
        }
    }

    /// A superblock write or a flush of the cache device has ended.
    pub(super) fn control_done(&mut self, result: Result<(), IoError>) {
        match (std::mem::replace(&mut self.lifecycle, Lifecycle::Ended), result) {
            (Lifecycle::Marking(id, _) | Lifecycle::Closing(id, _), Err(error)) => {
                self.outbox.reply(id, Err(Failure::Io(error)));
            }
            (Lifecycle::Marking(id, Copies::Both), Ok(())) => {
                self.lifecycle = Lifecycle::Marking(id, Copies::Last);
                self.write_superblock();
            }
            (Lifecycle::Marking(id, Copies::Last), Ok(())) => {
                self.lifecycle = Lifecycle::Serving;
                self.outbox.reply(id, Ok(Answer::Done));
            }
            (Lifecycle::Closing(id, Closing::FlushLog), Ok(())) => {
                let sequence = self.superblock.sequence;
                let mut writer = self.store.checkpoint(sequence, self.volume_records());
                self.store.write_checkpoint(&mut writer, &mut self.outbox);
                self.lifecycle = Lifecycle::Closing(id, Closing::Checkpoint(writer));
            }
            (Lifecycle::Closing(id, Closing::FlushCheckpoint), Ok(())) => {
                let checkpoint = self.superblock.sequence;
                self.superblock.state = DeviceState::Clean { checkpoint };
                self.write_superblock();
                self.lifecycle = Lifecycle::Closing(id, Closing::Marking);
            }
            (Lifecycle::Closing(id, Closing::Marking), Ok(())) => {
                self.outbox.reply(id, Ok(Answer::Done));
            }
            _ => unreachable!("control I/O outside of opening and closing"),
        }
    }

    fn volume_records(&self) -> Vec<VolumeRecord> {
        let cached = |index: usize| self.store.holdings[index].cached_blocks > 0;
        let known = self.volumes.iter().enumerate();
        known
            .filter_map(|(index, volume)| Some((index, volume.as_ref()?)))
            .filter(|(index, _)| cached(*index))
            .map(|(index, volume)| VolumeRecord {
                index: index as u16,
                incarnation: volume.incarnation,
                size_bytes: volume.spec.size_bytes,
                name: volume.spec.name.clone(),
                epoch: volume.spec.epoch.clone(),
            })
            .collect()
    }

    fn attach(&mut self, spec: VolumeSpec) -> Result<Answer<P>, Failure> {
        let align = u64::from(spec.align_bytes);
        let sound = !spec.name.is_empty()
            && spec.name.len() <= NAME_BYTES_MAX
            && spec.size_bytes > 0
            && spec.size_bytes.div_ceil(BLOCK_BYTES) <= VOLUME_BLOCKS_MAX
            && (align == 512 || align == BLOCK_BYTES)
            && spec.size_bytes.is_multiple_of(align);
        if !sound || !self.lifecycle.is_serving() {
            return Err(Failure::Invalid);
        }
        let named = |v: &Option<Volume>| v.as_ref().is_some_and(|v| v.spec.name == spec.name);
        let mut warmth = Warmth::New;
        if let Some(index) = self.volumes.iter().position(named) {
            let old = self.volumes[index].as_ref().expect("just found");
            if old.state != VolumeState::Sealed {
                return Err(Failure::Invalid);
            }
            let blocks = self.store.holdings[index].cached_blocks;
            match believe(&old.spec, &spec) {
                Ok(()) => {
                    let (incarnation, group) = (old.incarnation, old.group);
                    let mut volume = Volume::new(spec, incarnation, VolumeState::Attached);
                    volume.group = group;
                    self.volumes[index] = Some(volume);
                    self.join_group(index as u16);
                    let volume = VolumeId(index as u16);
                    return Ok(Answer::Attached { volume, warmth: Warmth::Warm { blocks } });
                }
                Err(reason) => {
                    self.bury(index as u16);
                    warmth = Warmth::Dropped { blocks, reason };
                }
            }
        }
        let index = self.new_index().ok_or(Failure::Limit)?;
        let incarnation = self.new_incarnation().ok_or(Failure::Limit)?;
        let volume = Volume::new(spec, incarnation, VolumeState::Attached);
        self.volumes[usize::from(index)] = Some(volume);
        self.store.holdings[usize::from(index)] =
            Holding { incarnation, alive: true, ..Holding::default() };
        self.join_group(index);
        Ok(Answer::Attached { volume: VolumeId(index), warmth })
    }

    /// The lowest index that no volume has and no cached block mentions.
    fn new_index(&mut self) -> Option<u16> {
        let free = |index: &usize| {
            let used = self.volumes.get(*index).is_some_and(Option::is_some);
            let cached = self.store.holdings.get(*index).is_some_and(|h| h.cached_blocks > 0);
            !used && !cached
        };
        let index = (0..usize::from(VOLUMES_MAX)).find(free)?;
        if self.volumes.len() <= index {
            self.volumes.resize_with(index + 1, || None);
        }
        if self.store.holdings.len() <= index {
            self.store.holdings.resize(index + 1, Holding::default());
        }
        Some(index as u16)
    }

    fn new_incarnation(&mut self) -> Option<u32> {
        let used = self.incarnations_used;
        self.incarnations_used += 1;
        (used < INCARNATIONS_A_LIFE)
            .then(|| self.superblock.next_incarnation - INCARNATIONS_A_LIFE + used)
    }

    pub(super) fn join_group(&mut self, index: u16) {
        let volume = self.volumes[usize::from(index)].as_mut().expect("just attached");
        let (min, max) = (volume.spec.share_min_blocks, volume.spec.share_max_blocks);
        let group = self.store.log.join(index, volume.group, min, max);
        volume.group = Some(group);
        self.store.holdings[usize::from(index)].group = group;
    }

    /// A volume's incarnation ends: its blocks are never believed again, and go as they are met.
    fn bury(&mut self, index: u16) {
        let volume = self.volumes[usize::from(index)].take().expect("a known volume");
        self.store.holdings[usize::from(index)].alive = false;
        if let Some(group) = volume.group {
            self.store.log.leave(group);
        }
    }

    fn detach(&mut self, id: RequestId, volume: VolumeId) {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        match known.filter(|v| v.state == VolumeState::Attached) {
            None => self.outbox.reply(id, Err(Failure::NoVolume)),
            Some(state) => {
                state.state = VolumeState::Detaching(id);
                self.detach_if_quiet(volume.0);
            }
        }
    }

    /// Once a volume being detached has no more requests, its backend is flushed.
    pub(super) fn detach_if_quiet(&mut self, index: u16) {
        let volume = self.volume(index);
        let VolumeState::Detaching(id) = volume.state else { return };
        if volume.requests > 0 {
            return;
        }
        if volume.spec.read_only {
            volume.state = VolumeState::Detached;
            return self.outbox.reply(id, Ok(Answer::Done));
        }
        volume.counters.backend_flushes += 1;
        let target = Target::Backend(VolumeId(index));
        self.outbox.io(target, IoOp::Flush, Pending::Detach { volume: index });
    }

    /// The last flush of a volume has ended. If it failed, its blocks prove nothing any more.
    pub(super) fn detach_flushed(&mut self, index: u16, result: Result<(), IoError>) {
        let volume = self.volume(index);
        let VolumeState::Detaching(id) = volume.state else { unreachable!("it was detaching") };
        volume.state = VolumeState::Detached;
        match result {
            Ok(()) => self.outbox.reply(id, Ok(Answer::Done)),
            Err(error) => {
                self.outbox.reply(id, Err(Failure::Io(error)));
                self.bury(index);
            }
        }
    }

    fn seal(&mut self, volume: VolumeId, epoch: Option<Epoch>) -> Result<Answer<P>, Failure> {
        let known = self.volumes.get_mut(usize::from(volume.0)).and_then(Option::as_mut);
        let state = known.filter(|v| v.state == VolumeState::Detached).ok_or(Failure::NoVolume)?;
        if epoch.is_none() && !state.spec.exclusive {
            self.bury(volume.0);
            return Ok(Answer::Done);
        }
        state.spec.epoch = epoch;
        state.state = VolumeState::Sealed;
        // What it was guaranteed is for those who are there.
        state.spec.share_min_blocks = 0;
        self.join_group_sealed(volume.0);
        Ok(Answer::Done)
    }

    /// A sealed volume keeps its group, so that its blocks keep their place, but no minimum.
    fn join_group_sealed(&mut self, index: u16) {
        let Some(group) = self.volume(index).group else { return };
        if group != 0 {
            self.store.log.groups[usize::from(group)].segments_wanted = 0;
            self.store.log.share_out();
        }
    }

    fn close(&mut self, id: RequestId) {
        let gone = |v: &Option<Volume>| v.as_ref().is_none_or(|v| v.state == VolumeState::Sealed);
        if !self.lifecycle.is_serving() || !self.volumes.iter().all(gone) {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        self.lifecycle = Lifecycle::Closing(id, Closing::Probation(0));
        self.advance_lifecycle();
    }

    /// Goes on with a clean stop as far as it can without waiting.
    pub(super) fn advance_lifecycle(&mut self) {
        let Lifecycle::Closing(_, step) = &mut self.lifecycle else { return };
        if let Closing::Probation(done) = step {
            let further = self.store.flush_probation(*done, self.now, &mut self.outbox);
            if let Some(further) = further {
                *done = further;
                return self.wake_at(self.now);
            }
            self.store.submit_all_chunks(&mut self.outbox);
            *step = Closing::Log;
        }
        if let Lifecycle::Closing(_, step @ Closing::Log) = &mut self.lifecycle
            && self.store.abandon_cleaning()
        {
            // What was carried last may have opened a chunk again.
            self.store.submit_all_chunks(&mut self.outbox);
            if self.store.is_written() {
                *step = Closing::FlushLog;
                self.outbox.io(Target::Cache, IoOp::Flush, Pending::Control);
            }
        }
    }
}

/// Whether blocks of `old` may be served for `new`.
fn believe(old: &VolumeSpec, new: &VolumeSpec) -> Result<(), DropReason> {
    if old.size_bytes != new.size_bytes {
        return Err(DropReason::EpochChanged);
    }
    match new.belief {
        Belief::Unchanged => Ok(()),
        Belief::Changed => Err(DropReason::EpochChanged),
        Belief::Unknown if new.exclusive => Ok(()),
        Belief::Unknown => Err(DropReason::NoProof),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::metadata::superblock::{Geometry, Superblock};
    use crate::seam::{Action, Event, IoDone};
    use crate::units::Instant;

    #[derive(Clone)]
    struct Nothing;
    impl Payload for Nothing {
        fn alloc(_: u32) -> Self {
            Self
        }
        fn copy_from(&self, _: u64, _: &Self, _: u64, _: u64) {}
        fn zero(&self, _: u64, _: u64) {}
        fn checksum(&self, _: u64, _: u64) -> u32 {
            0
        }
    }

    /// If only one copy said so, rot in it would bring back the older one, and with it a checkpoint
    /// of a life that is over.
    #[test]
    fn both_superblock_copies_say_in_use_before_anything_is_served() {
        let mut superblock = Superblock::format([1; 16], Geometry::for_capacity(1020, 1));
        superblock.state = DeviceState::InUse;
        let mut engine = Engine::<Nothing>::new(Config::default(), superblock);
        let mut events = vec![Event::Control(RequestId(1), Command::Open)];
        let (mut actions, mut written) = (Vec::new(), Vec::new());
        while written.len() < 3 {
            engine.apply(Instant(0), &mut events, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) => {
                        let IoOp::WriteMeta { offset, fua: true, .. } = io.op else {
                            panic!("only durable superblock writes: {:?}", io.target)
                        };
                        written.push(offset);
                        let done =
                            IoDone { id: io.id, result: Ok(()), pages: Vec::new(), epoch: None };
                        events.push(Event::IoDone(done));
                    }
                    Action::Reply(_) => {
                        written.sort_unstable();
                        return assert_eq!(written, [0, 4096]);
                    }
                    _ => {}
                }
            }
        }
        panic!("never opened: {written:?}");
    }
}
