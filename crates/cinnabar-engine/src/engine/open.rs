//! Opening a device: what the last session left, and the durable record that a new one has begun.
//!
//! Order after a crash: a flush, the two checkpoint heads, the journal, the checkpoint's volumes (see
//! `reading`); the device
//! is marked as in use; then volumes can be attached, and the rest is loaded beside (see `load`). A
//! device that is new, or leaves doubt, is first marked as cold, then its journal is formatted and
//! the checkpoints' heads are blanked, then an empty checkpoint is written: only after that can it
//! be in use. Nothing that an older session left, of this format or of an earlier one, is believed
//! then: see `docs/design/durability.md`.

use super::Engine;
use super::lifecycle::{Copies, Lifecycle};
use super::load::Loader;
use super::reading::Reading;
use crate::bounds::Bound;
use crate::health::{PassThroughReason, Start};
use crate::journal::{Journal, scan};
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::{Head, OpenRegion, VolumeRecord};
use crate::metadata::superblock::{DeviceState, SUPERBLOCK_BYTES};
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, Failure, IoError, IoOp, Payload, RequestId, Target};
use crate::store::{CheckpointWriter, Index};
use crate::units::BLOCK_BYTES;

/// How far opening has got; one I/O is under way, several while it reads.
#[derive(Debug)]
pub(super) enum Opening {
    /// Making durable whatever the last session left, and reading it.
    Reads(Box<Reading>),
    /// Marking the device as cold.
    Cold(Copies, Start),
    /// Formatting the journal, from this page on.
    Blank(u64, Start),
    /// Blanking the checkpoints' heads, from this one on.
    BlankHeads(usize, Start),
    Empty(Box<CheckpointWriter>, Start),
    /// Marking the device as in use.
    Mark(Copies, Option<Box<Loader>>, Start),
    /// Waiting for new generations of volumes that came while a replacement was being opened.
    BumpGenerations(Start),
}

/// A checkpoint and a journal that go together.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) sequence: u64,
    pub(super) head: Head,
    pub(super) regions: Vec<OpenRegion>,
    pub(super) read: scan::Read,
    pub(super) volumes: Vec<VolumeRecord>,
    pub(super) damaged_pages: u64,
}

impl<P: Payload> Engine<P> {
    pub(super) fn open(&mut self, id: RequestId) {
        match self.lifecycle {
            Lifecycle::Fresh => {}
            Lifecycle::PassThrough(_) => return self.outbox.reply(id, Ok(Answer::Done)),
            _ => return self.outbox.reply(id, Err(Failure::Invalid)),
        }
        self.begin_open(id);
    }

    /// Begins to open the device of `superblock`, on which nothing of this engine is under way.
    pub(super) fn begin_open(&mut self, id: RequestId) {
        debug_assert!(
            !self.cache_io_under_way(),
            "what ends late would be taken for this session's"
        );
        assert!(self.loader.is_none() && self.checkpoint.is_none(), "nothing of an earlier device");
        if self.superblock.state == DeviceState::Cold {
            return self.blank(id, 0, Start::New);
        }
        self.begin_reading(id);
    }

    /// A write of opening has ended.
    pub(super) fn opening_done(
        &mut self,
        id: RequestId,
        stage: Opening,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            return self.opening_failed(id, error);
        }
        match stage {
            Opening::Cold(Copies::Both, start) => {
                self.write_superblock();
                self.lifecycle = Lifecycle::Opening(id, Opening::Cold(Copies::Last, start));
            }
            Opening::Cold(Copies::Last, start) => self.blank(id, 0, start),
            Opening::Blank(next, start) => self.blank(id, next, start),
            Opening::BlankHeads(slot, start) => self.blank_heads(id, slot, start),
            Opening::Empty(mut writer, start) => {
                self.store.advance_checkpoint(&mut writer, &mut self.outbox);
                if writer.is_done() {
                    self.store
                        .journal
                        .checkpoint_ends(Some((writer.sequence, writer.journal_page)));
                    self.checkpoint_sequence = writer.sequence;
                    return self.mark_in_use(id, None, start);
                }
                self.lifecycle = Lifecycle::Opening(id, Opening::Empty(writer, start));
            }
            Opening::Mark(Copies::Both, loader, start) => {
                self.write_superblock();
                self.lifecycle = Lifecycle::Opening(id, Opening::Mark(Copies::Last, loader, start));
            }
            Opening::Mark(Copies::Last, loader, start) => self.begin_serving(id, loader, start),
            Opening::Reads(_) => unreachable!("reads are told apart"),
            Opening::BumpGenerations(_) => unreachable!("no I/O on the device is under way"),
        }
    }

    /// A replacement that fails leaves its volumes as they were: without a device.
    pub(super) fn opening_failed(&mut self, id: RequestId, error: IoError) {
        let reopening = std::mem::take(&mut self.reopening);
        let reason = PassThroughReason::Failed(error);
        self.lifecycle = if reopening { Lifecycle::PassThrough(reason) } else { Lifecycle::Ended };
        self.outbox.reply(id, Err(Failure::Io(error)));
    }

    /// What was read goes together: make volumes known, and begin a session on top of it.
    pub(super) fn recover(&mut self, id: RequestId, found: Found) {
        let start = match self.superblock.state {
            DeviceState::Clean { .. } => Start::Clean,
            _ => Start::Crashed,
        };
        self.checkpoint_sequence = found.sequence;
        let loader = self.prepare_load(found, start);
        self.mark_in_use(id, Some(Box::new(loader)), start);
    }

    /// The metadata may hide something: nothing is believed.
    pub(super) fn doubt(&mut self, id: RequestId) {
        self.superblock.state = DeviceState::Cold;
        self.write_superblock();
        self.lifecycle = Lifecycle::Opening(id, Opening::Cold(Copies::Both, Start::Damaged));
    }

    /// Formats the journal from page `next` on, for a new era: nothing written before it is taken
    /// for a part of it.
    fn blank(&mut self, id: RequestId, next: u64, start: Start) {
        assert_eq!(self.superblock.state, DeviceState::Cold, "nothing on it is believed any more");
        self.superblock.era = self.superblock.next_incarnation;
        let (first, len) = self.superblock.geometry.journal;
        assert!(next <= len, "no page behind the ring is blanked");
        let count = self.config.bounds.open_pages.min(len - next);
        self.store.crossings.note_if(count < len - next, Bound::OpenPages);
        if count == 0 {
            return self.blank_heads(id, 0, start);
        }
        let pages = Journal::formatted(&self.superblock, next, count);
        self.write_control((first + next) * BLOCK_BYTES, pages);
        self.lifecycle = Lifecycle::Opening(id, Opening::Blank(next + count, start));
    }

    /// Blanks the checkpoints' heads from `slot` on, then writes an empty checkpoint, which is
    /// durable after them. An earlier format of the device may have numbered its own higher.
    fn blank_heads(&mut self, id: RequestId, slot: usize, start: Start) {
        let heads = self.superblock.geometry.checkpoints.0;
        if let Some(head) = heads.get(slot).filter(|_| !self.config.mutants.is(Mutant::HeadsKept)) {
            self.write_control(head * BLOCK_BYTES, vec![MetaPage::zeroed()]);
            self.lifecycle = Lifecycle::Opening(id, Opening::BlankHeads(slot + 1, start));
            return;
        }
        self.store.begin_era(&self.superblock, &self.config);
        let sequence = self.checkpoint_sequence.max(self.superblock.sequence) + 1;
        let mut writer = self.store.empty_checkpoint(sequence, self.superblock.era);
        self.store.advance_checkpoint(&mut writer, &mut self.outbox);
        self.lifecycle = Lifecycle::Opening(id, Opening::Empty(Box::new(writer), start));
    }

    /// A step of opening writes these pages; a flush comes later.
    fn write_control(&mut self, offset: u64, pages: Vec<MetaPage>) {
        let data = smallvec::SmallVec::new();
        let op = IoOp::WriteMeta { offset, pages, data, fua: false };
        self.outbox.io(Target::Cache, op, Pending::Control);
    }

    fn mark_in_use(&mut self, id: RequestId, loader: Option<Box<Loader>>, start: Start) {
        self.reserve_for_session();
        self.write_superblock();
        self.lifecycle = Lifecycle::Opening(id, Opening::Mark(Copies::Both, loader, start));
    }

    pub(super) fn write_superblock(&mut self) {
        self.write_superblock_for(Pending::Control);
    }

    pub(super) fn write_superblock_for(&mut self, pending: Pending) {
        self.superblock.sequence += 1;
        let (offset, page) = self.superblock.encode();
        assert!(offset + BLOCK_BYTES <= SUPERBLOCK_BYTES, "one of its two places");
        let data = smallvec::SmallVec::new();
        let op = IoOp::WriteMeta { offset, pages: vec![page], data, fua: true };
        self.outbox.io(Target::Cache, op, pending);
    }

    pub(super) fn begin_serving(
        &mut self,
        id: RequestId,
        loader: Option<Box<Loader>>,
        start: Start,
    ) {
        if self.reopening && !self.all_generations_bumped() {
            // A volume has come while the new device was being opened.
            self.lifecycle = Lifecycle::Opening(id, Opening::BumpGenerations(start));
            return;
        }
        let in_use = matches!(self.superblock.state, DeviceState::InUse { .. });
        assert!(in_use || !self.config.crash_safe, "a device is in use, durably, before it serves");
        assert!(
            self.loader.is_none() && self.checkpoint.is_none(),
            "a session begins with neither"
        );
        self.reopening = false;
        self.lifecycle = Lifecycle::Serving;
        self.store.dead = false;
        self.report.start = start;
        self.resume_volumes();
        if let Some(loader) = loader {
            self.loader = Some(loader);
            self.store.index = Index::Partial;
            self.continue_load();
        } else {
            self.continue_old_resize();
        }
        self.outbox.reply(id, Ok(Answer::Done));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, superblock, volume};
    use super::*;
    use crate::config::Config;
    use crate::health::LoadReport;
    use crate::metadata::checkpoint::Page;
    use crate::mutant::Mutants;
    use crate::seam::Command;
    use crate::units::VolumeId;
    use crate::volume::VolumeSpec;

    #[test]
    fn volumes_that_come_and_go_without_a_device_use_up_none_of_the_next_ones_incarnations() {
        let mut rig = Rig::new(Engine::without_device(Config::default()));
        let stays = rig.ask(vec![Command::Attach(volume("stays"))])[0];
        assert!(rig.answer(stays).is_ok());
        rig.holds = true;
        let replaced = rig.ask(vec![Command::Replace(Box::new(superblock(1020)))])[0];
        for _ in 0..=Config::default().bounds.incarnations {
            let comes = rig.ask(vec![Command::Attach(volume("comes"))])[0];
            assert!(rig.answer(comes).is_ok());
            rig.ask(vec![Command::Detach(VolumeId(1))]);
            rig.ask(vec![Command::Seal(VolumeId(1), None)]);
        }
        rig.release();
        assert!(matches!(rig.answer(replaced), Ok(Answer::Done)));
        let comes = rig.ask(vec![Command::Attach(volume("comes"))])[0];
        assert!(rig.answer(comes).is_ok());
    }

    /// Twice a member, and its share would outlive it.
    #[test]
    fn a_volume_that_comes_while_a_device_is_opened_has_one_share_of_it() {
        let mut rig = Rig::new(Engine::without_device(Config::default()));
        let guaranteed =
            |name| Command::Attach(VolumeSpec { share_min_blocks: 100, ..volume(name) });
        rig.ask(vec![guaranteed("before")]);
        rig.holds = true;
        let replaced = rig.ask(vec![Command::Replace(Box::new(superblock(4080)))])[0];
        let meanwhile = rig.ask(vec![guaranteed("meanwhile")])[0];
        assert!(rig.answer(meanwhile).is_ok());
        rig.release();
        assert!(rig.answer(replaced).is_ok());
        let groups = &rig.engine.store.log.groups;
        assert_eq!(groups.iter().map(|group| group.members).sum::<u32>(), 2);
    }

    /// A device whose earlier format has left a checkpoint with a high number.
    fn formatted_before(mutants: Mutants) -> Rig {
        let superblock = superblock(1020);
        let head = Head {
            segments: 1,
            slots: superblock.geometry.slots(),
            journal_page: 900,
            session: 1,
            // Each format's first one.
            era: 1,
            ..Head::default()
        };
        let config = Config { mutants, ..Config::default() };
        let slot = superblock.geometry.checkpoints.0[1];
        let mut rig = Rig::new(Engine::new(config, superblock));
        rig.pages.insert(slot, Page::Head(head, Vec::new()).encode(35, 0));
        rig
    }

    fn report(rig: &mut Rig) -> LoadReport {
        let id = rig.ask(vec![Command::AwaitLoad])[0];
        match rig.answer(id) {
            Ok(Answer::Loaded(report)) => report,
            other => panic!("it was answered {other:?}"),
        }
    }

    #[test]
    fn a_new_format_leaves_no_checkpoint_of_an_older_one() {
        let mut rig = formatted_before(Mutants::default());
        rig.begin();
        let report = report(&mut rig.crash());
        assert_eq!((report.start, report.damaged_pages), (Start::Crashed, 0));
    }

    #[test]
    fn so_does_a_device_that_takes_another_ones_place() {
        let pages = formatted_before(Mutants::default()).pages;
        let mut rig = Rig::new(Engine::without_device(Config::default()));
        rig.pages = pages;
        let replaced = rig.ask(vec![Command::Replace(Box::new(superblock(1020)))])[0];
        assert!(rig.answer(replaced).is_ok());
        let report = report(&mut rig.crash());
        assert_eq!((report.start, report.damaged_pages), (Start::Crashed, 0));
    }

    #[test]
    fn the_mutant_that_keeps_older_checkpoints_is_found() {
        let mut rig = formatted_before(Mutants::only(Mutant::HeadsKept));
        rig.begin();
        let report = report(&mut rig.crash());
        assert!(report.start == Start::Damaged || report.damaged_pages > 0, "{report:?}");
    }

    /// A checkpoint that was completed since says how far the journal was durable.
    #[test]
    fn a_journal_that_ends_before_what_a_checkpoint_has_seen_leaves_doubt() {
        let mut rig = Rig::open(1020);
        rig.ask(vec![Command::Attach(volume("v"))]);
        let superblock = superblock(1020);
        let (ring, places) = superblock.geometry.journal;
        // The attach was recorded in the first page; a read brings what was there before.
        let first = ring + (places + 1) % places;
        let before = Journal::formatted(rig.engine.superblock(), 1, 1).swap_remove(0);
        assert_ne!(rig.pages.insert(first, before), None);
        let slot = rig.engine.checkpoint_sequence as usize % 2;
        let head = superblock.geometry.checkpoints.0[slot];
        let (sequence, seen, _) = Page::decode_head(&rig.pages[&head]).expect("it is there");
        assert_eq!(seen.journal_durable, places + 1, "nothing had been written");
        let seen = Head { journal_durable: places + 2, ..seen };
        let unseen = rig.pages.insert(head, Page::Head(seen, Vec::new()).encode(sequence, 0));
        let pages = rig.pages.clone();
        assert_eq!(report(&mut rig.crash()).start, Start::Damaged);
        let mut rig = Rig::open(1020);
        rig.pages = pages;
        rig.pages.insert(head, unseen.expect("it was there"));
        assert_eq!(report(&mut rig.crash()).start, Start::Crashed, "this can't be told");
    }
}
