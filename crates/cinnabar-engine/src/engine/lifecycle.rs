//! The engine's session: commands, checkpoints now and then, a clean stop.
//!
//! A device is durably *in use* before anything depends on it.

use super::Engine;
use super::open::Opening;
use super::resize::Resize;
use crate::health::{Health, PassThroughReason};
use crate::metadata::checkpoint::VolumeRecord;
use crate::metadata::superblock::DeviceState;
use crate::outbox::Pending;
use crate::seam::{Answer, Command, Failure, IoError, IoOp, Payload, RequestId, Target};
use crate::store::CheckpointWriter;
use crate::volume::VolumeState;

/// Checkpoints in a row that may fail before the device counts as lost.
const FAILURES_MAX: u32 = 3;

/// Where the engine is in its life.
#[derive(Debug)]
pub(super) enum Lifecycle {
    /// Not opened yet.
    Fresh,
    /// Finding out what is on the device.
    Opening(RequestId, Opening),
    Serving,
    /// Serving without a cache device.
    PassThrough(PassThroughReason),
    Closing(RequestId, Closing),
    /// Closed, or failed to open.
    Ended,
}

/// Copies of the superblock still to be written, the one under way included: rot in the newer one
/// must not bring back what the older says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    Both,
    Last,
}

/// Steps of a clean stop.
#[derive(Debug)]
pub(super) enum Closing {
    /// Waiting for the index to be loaded, and for what is under way in the background.
    Quiet,
    /// Writing probation out, from this RAM slot on.
    Probation(usize),
    /// Waiting for the log.
    Log,
    Checkpoint,
    /// Marking the device as clean.
    Marking(Copies),
}

impl Lifecycle {
    pub(super) fn is_serving(&self) -> bool {
        matches!(self, Self::Serving)
    }

    /// Whether the journal may be written.
    pub(super) fn journals(&self) -> bool {
        use Closing::{Log, Probation, Quiet};
        matches!(self, Self::Serving | Self::Closing(_, Quiet | Probation(_) | Log))
    }

    pub(super) fn takes_volumes(&self) -> bool {
        matches!(self, Self::Serving | Self::PassThrough(_))
    }
}

impl<P: Payload> Engine<P> {
    pub(super) fn control(&mut self, id: RequestId, command: Command) {
        match command {
            Command::Open => self.open(id),
            Command::AwaitLoad if self.loader.is_some() => self.awaiting_load.push(id),
            Command::AwaitLoad => self.outbox.reply(id, Ok(Answer::Loaded(self.report))),
            Command::Attach(spec) => self.attach(id, spec),
            Command::Detach(volume) => self.detach(id, volume),
            Command::Seal(volume, proof) => self.seal(id, volume, proof),
            Command::Discard(volume) => self.discard(id, volume),
            Command::Grow(volume, size_bytes, proof) => self.grow(id, volume, size_bytes, proof),
            Command::Forget(name) => self.forget(id, &name),
            Command::Resize { segments, otherwise } => {
                self.resize(id, segments, segments == otherwise);
            }
            Command::Abandon => self.abandon(id),
            Command::Replace(superblock) => self.replace(id, *superblock),
            Command::Close => self.close(id),
        }
    }

    /// Whether the cache device is in use.
    pub fn health(&self) -> Health {
        match (&self.lifecycle, &self.loader) {
            (Lifecycle::Serving, Some(loader)) => {
                let (pages, of) = loader.progress();
                Health::Loading { pages, of }
            }
            (Lifecycle::Serving | Lifecycle::Closing(..), _) => Health::Serving,
            (Lifecycle::PassThrough(reason), _) => Health::PassThrough(*reason),
            (Lifecycle::Ended, _) => Health::Closed,
            (Lifecycle::Fresh | Lifecycle::Opening(..), _) => Health::Opening,
        }
    }

    /// A superblock write, or another write of opening, has ended.
    pub(super) fn control_done(&mut self, result: Result<(), IoError>) {
        match std::mem::replace(&mut self.lifecycle, Lifecycle::Ended) {
            Lifecycle::Opening(id, stage) => self.opening_done(id, stage, result),
            Lifecycle::Closing(id, Closing::Marking(copies)) => match (result, copies) {
                (Err(error), _) => self.outbox.reply(id, Err(Failure::Io(error))),
                (Ok(()), Copies::Both) => {
                    self.write_superblock();
                    self.lifecycle = Lifecycle::Closing(id, Closing::Marking(Copies::Last));
                }
                (Ok(()), Copies::Last) => self.outbox.reply(id, Ok(Answer::Done)),
            },
            _ => unreachable!("control I/O outside of opening and closing"),
        }
    }

    /// Begins a checkpoint if it is time for one.
    pub(super) fn checkpoint_if_due(&mut self) {
        let wanted = self.doubtful || self.store.wants_checkpoint();
        if wanted && self.checkpoint.is_none() && self.loader.is_none() {
            self.begin_checkpoint();
        }
    }

    pub(super) fn begin_checkpoint(&mut self) {
        assert!(
            self.checkpoint.is_none() && self.loader.is_none(),
            "one at a time, of all there is"
        );
        assert!(!self.store.dead, "a device that is lost is not written");
        let volumes = self.volume_records();
        let sequence = self.checkpoint_sequence + 1;
        let mut writer = self.store.begin_checkpoint(sequence, self.superblock.era, volumes);
        self.store.advance_checkpoint(&mut writer, &mut self.outbox);
        self.checkpoint = Some(writer);
    }

    /// A chunk has been written: a checkpoint that waits for it goes on.
    pub(super) fn resume_checkpoint(&mut self) {
        if let Some(writer) = &mut self.checkpoint
            && writer.waits_for_chunks()
        {
            self.store.advance_checkpoint(writer, &mut self.outbox);
        }
    }

    /// Pages of a checkpoint have been written, or a flush or its head.
    pub(super) fn checkpoint_done(&mut self, result: Result<(), IoError>) {
        if let Lifecycle::Opening(..) = self.lifecycle {
            return self.control_done(result);
        }
        // Given up, with the device.
        let Some(mut writer) = self.checkpoint.take() else { return };
        if let Err(error) = result {
            return self.checkpoint_failed(error);
        }
        self.store.advance_checkpoint(&mut writer, &mut self.outbox);
        if !writer.is_done() {
            self.checkpoint = Some(writer);
            return;
        }
        self.checkpoint_ends(&writer);
        self.continue_attaches();
        self.advance_lifecycle();
    }

    fn checkpoint_ends(&mut self, writer: &CheckpointWriter) {
        assert!(writer.is_done(), "its head is durable");
        // The slots alternate: until this moment the one before was whole.
        assert_eq!(writer.sequence, self.checkpoint_sequence + 1, "checkpoints are in order");
        self.checkpoint_sequence = writer.sequence;
        self.store.journal.checkpoint_ends(Some((writer.sequence, writer.journal_page)));
        self.checkpoint_failures = 0;
        self.checkpoints += 1;
        // It speaks of all that is known, so nothing unknown can come back.
        self.doubtful = false;
        if let Lifecycle::Closing(_, step @ Closing::Checkpoint) = &mut self.lifecycle {
            assert!(self.store.is_written(), "a clean stop leaves nothing in RAM");
            assert!(self.store.journal.is_idle(), "and nothing to be recorded");
            assert!(self.store.regions.is_empty(), "every volume has left");
            *step = Closing::Marking(Copies::Both);
            let checkpoint = writer.sequence;
            self.superblock.state = DeviceState::Clean { checkpoint };
            self.write_superblock();
        }
    }

    fn checkpoint_failed(&mut self, error: IoError) {
        self.store.journal.checkpoint_ends(None);
        self.store.count_device_error();
        self.checkpoint_failures += 1;
        if let Lifecycle::Closing(id, Closing::Checkpoint) = self.lifecycle {
            self.lifecycle = Lifecycle::Ended;
            return self.outbox.reply(id, Err(Failure::Io(error)));
        }
        if self.checkpoint_failures >= FAILURES_MAX {
            return self.lose_device(PassThroughReason::Failed(error));
        }
        self.continue_attaches();
        // A clean stop may have waited for it.
        self.advance_lifecycle();
    }

    fn volume_records(&mut self) -> Vec<VolumeRecord> {
        let stamp = self.store.journal.next_stamp();
        self.volumes_known().map(|index| self.volume_record(index, stamp)).collect()
    }

    /// Volumes that the device is to know of: not those whose end is only being recorded.
    pub(super) fn volumes_known(&self) -> impl Iterator<Item = u16> {
        let known =
            |index: &usize| self.volumes[*index].is_some() && self.store.holdings[*index].alive;
        (0..self.volumes.len()).filter(known).map(|index| index as u16)
    }

    fn close(&mut self, id: RequestId) {
        let all = |gone: fn(VolumeState) -> bool| {
            self.volumes.iter().flatten().all(|volume| gone(volume.state))
        };
        let gone = all(|state| state == VolumeState::Sealed);
        // The last checkpoint waits for the journal, and so for the records of those that leave.
        let quiet = all(|state| matches!(state, VolumeState::Sealed | VolumeState::Sealing(..)));
        match self.lifecycle {
            Lifecycle::PassThrough(_) if gone => {
                self.lifecycle = Lifecycle::Ended;
                self.abandoning.push((id, Ok(Answer::Done)));
            }
            Lifecycle::Serving if quiet => {
                self.lifecycle = Lifecycle::Closing(id, Closing::Quiet);
                self.continue_attaches();
                self.advance_lifecycle();
            }
            _ => self.outbox.reply(id, Err(Failure::Invalid)),
        }
    }

    /// Goes on with a clean stop as far as it can without waiting.
    pub(super) fn advance_lifecycle(&mut self) {
        let Lifecycle::Closing(_, step) = &mut self.lifecycle else { return };
        if let Closing::Quiet = step {
            let reserving = self.identities.is_reserving();
            if self.loader.is_some()
                || self.checkpoint.is_some()
                || self.log_flush.1
                || reserving
                || self.resize.as_ref().is_some_and(Resize::has_io)
            {
                return;
            }
            *step = Closing::Probation(0);
            // The next session goes on with it.
            self.end_resize(Failure::Interrupted);
        }
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
        if let Closing::Log = step
            && self.store.abandon_cleaning()
        {
            // What was reinserted last may have opened a chunk again.
            self.store.submit_all_chunks(&mut self.outbox);
            let quiet = self.store.is_written() && self.store.journal.is_idle();
            let making_room = self.checkpoint.is_some();
            if !making_room && self.store.is_journal_cramped() {
                // What the journal still has to take in has no room in it.
                self.begin_checkpoint();
            } else if quiet && !self.log_flush.1 && !making_room {
                *step = Closing::Checkpoint;
                self.begin_checkpoint();
            }
        }
    }

    /// Asks the SSD to make durable what it was given.
    pub(super) fn flush_cache(&mut self) {
        assert!(!self.log_flush.1, "one flush of the device at a time");
        self.log_flush = (self.now, true);
        self.store.unflushed_log = false;
        self.outbox.io(Target::Cache, IoOp::Flush, Pending::CacheFlush);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Nothing, Rig, superblock, volume};
    use super::*;
    use crate::config::Config;
    use crate::metadata::MetaPage;
    use crate::metadata::superblock::Superblock;
    use crate::seam::{Action, Event, IoDone};
    use crate::units::{Instant, VolumeId};

    /// The ring has 64 pages, of which 48 are for this; 16 volumes fill one.
    #[test]
    fn a_clean_stop_makes_room_for_what_the_journal_still_has_to_take_in() {
        let mut rig = Rig::open(1020);
        let ids = 0..1500;
        let attach = ids.clone().map(|i| Command::Attach(volume(&format!("v{i}"))));
        for id in rig.ask(attach.collect()) {
            rig.answer(id).expect("attached");
        }
        let detach = ids.clone().map(|i| Command::Detach(VolumeId(i)));
        for id in rig.ask(detach.collect()) {
            rig.answer(id).expect("detached");
        }
        let seal = ids.map(|i| Command::Seal(VolumeId(i), None));
        let last = *rig.ask(seal.chain([Command::Close]).collect()).last().expect("the close");
        assert!(matches!(rig.answer(last), Ok(Answer::Done)));
    }

    /// If only one copy said so, rot in it would bring back the older one, and with it the belief
    /// that nothing had been written since.
    #[test]
    fn both_superblock_copies_say_in_use_before_anything_is_served() {
        let mut engine = Engine::<Nothing>::new(Config::default(), superblock(1020));
        let mut events = vec![Event::Control(RequestId(1), Command::Open)];
        let (mut actions, mut copies) = (Vec::new(), [MetaPage::zeroed(), MetaPage::zeroed()]);
        for _ in 0..100 {
            engine.apply(Instant(0), &mut events, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) => {
                        if let IoOp::WriteMeta { offset: 0 | 4096, pages, fua, .. } = &io.op {
                            assert!(fua, "a superblock is written durably");
                            let IoOp::WriteMeta { offset, .. } = io.op else { unreachable!() };
                            copies[offset as usize / 4096] = pages[0].clone();
                        }
                        events.push(Event::IoDone(IoDone::new(io.id, Ok(()))));
                    }
                    Action::Reply(_) => {
                        for copy in &copies {
                            let pages = [copy.clone(), MetaPage::zeroed()];
                            let superblock = Superblock::decode(&pages).expect("a copy");
                            assert!(matches!(superblock.state, DeviceState::InUse { .. }));
                        }
                        return;
                    }
                    Action::WakeAt(_) => {}
                }
            }
        }
        panic!("never opened");
    }
}
