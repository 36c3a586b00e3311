//! What opening reads of a device that was in use: both checkpoint heads, then the journal and the
//! checkpoint's volumes.
//!
//! A guest's first request waits for this, so reads don't wait for each other, nor for the flush that
//! makes durable what the dead session left. The device is locked: nothing of that session is under
//! way any more, so what is read beside the flush was written before the flush began and is durable
//! once it has ended. Nothing is concluded, and so nothing written, before all of it has ended.
//!
//! A clean stop leaves a checkpoint that covers the whole journal. Then only the page is read that a
//! later session would have written first: it is durable before any other page of that session. If it
//! is not as the clean stop left it, the whole ring is read, as after a crash.

use super::Engine;
use super::lifecycle::Lifecycle;
use super::open::{Found, Opening};
use crate::bounds::Bound;
use crate::journal::scan::{Read, Scan};
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::{Head, OpenRegion, Page, VOLUMES_A_PAGE, VolumeRecord};
use crate::metadata::chunk::device_of;
use crate::metadata::superblock::DeviceState;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{IoError, IoOp, Payload, RequestId, Target};
use crate::store::is_sound;
use crate::units::BLOCK_BYTES;

/// An I/O of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenRead {
    /// The flush.
    Settle,
    /// The head of the checkpoint in this slot.
    Head(usize),
    /// Pages of the journal's ring, from this place on.
    Ring(u64),
    /// The checkpoint's volumes.
    Volumes,
}

/// How far it has got.
#[derive(Debug, Default)]
pub(super) struct Reading {
    under_way: u32,
    heads_read: usize,
    heads: Vec<(u64, Head, Vec<OpenRegion>)>,
    /// Once both heads have been read.
    rest: Option<Rest>,
    /// The device can't be made durable.
    failed: Option<IoError>,
    /// Something that has to be there could not be read.
    doubtful: bool,
    /// Buffers to be read into again.
    spare: Vec<Vec<MetaPage>>,
}

/// What is read of the newest checkpoint and of the journal.
#[derive(Debug)]
struct Rest {
    sequence: u64,
    head: Head,
    regions: Vec<OpenRegion>,
    /// Page of the journal before which it is known to have been durable.
    durable: u64,
    scan: Scan,
    /// The next place of the ring to be read, of all places.
    next: u64,
    /// A clean stop has left nothing in the journal, it seems: one place tells.
    clean: bool,
    volumes: Vec<VolumeRecord>,
    damaged_pages: u64,
}

impl<P: Payload> Engine<P> {
    /// Begins to read.
    pub(super) fn begin_reading(&mut self, id: RequestId) {
        let mut reading = Reading::default();
        if !self.config.mutants.is(Mutant::OpenedUnsettled) {
            self.outbox.io(Target::Cache, IoOp::Flush, Pending::Open(OpenRead::Settle));
            reading.under_way += 1;
        }
        for (slot, first) in self.superblock.geometry.checkpoints.0.into_iter().enumerate() {
            self.read_for_open(&mut reading, OpenRead::Head(slot), first, 1);
        }
        self.lifecycle = Lifecycle::Opening(id, Opening::Reads(Box::new(reading)));
    }

    fn read_for_open(&mut self, reading: &mut Reading, what: OpenRead, block: u64, pages: u64) {
        let spare = reading.spare.pop().filter(|spare| spare.len() as u64 == pages);
        let pages = spare.unwrap_or_else(|| vec![MetaPage::zeroed(); pages as usize]);
        let op = IoOp::ReadMeta { offset: block * BLOCK_BYTES, pages };
        self.outbox.io(Target::Cache, op, Pending::Open(what));
        reading.under_way += 1;
    }

    /// An I/O of it has ended.
    pub(super) fn open_read_done(
        &mut self,
        what: OpenRead,
        result: Result<(), IoError>,
        buffer: Vec<MetaPage>,
    ) {
        // Opening may have been given up meanwhile.
        let Lifecycle::Opening(id, Opening::Reads(reading)) = &mut self.lifecycle else { return };
        let (id, mut reading) = (*id, std::mem::take(reading));
        reading.under_way -= 1;
        let pages = if result.is_ok() { &buffer[..] } else { &[] };
        match what {
            OpenRead::Settle => reading.failed = result.err(),
            OpenRead::Head(slot) => self.head_read(&mut reading, slot, pages.first()),
            OpenRead::Ring(first) => {
                reading.doubtful |= pages.is_empty();
                if let Some(rest) = &mut reading.rest {
                    rest.scan.take_at(first, pages);
                }
            }
            OpenRead::Volumes => reading.rest.iter_mut().for_each(|rest| rest.take_volumes(pages)),
        }
        reading.spare.push(buffer);
        self.read_ring(&mut reading);
        if reading.under_way > 0 {
            self.lifecycle = Lifecycle::Opening(id, Opening::Reads(reading));
        } else {
            self.all_read(id, *reading);
        }
    }

    fn head_read(&mut self, reading: &mut Reading, slot: usize, page: Option<&MetaPage>) {
        let head = page.and_then(Page::decode_head).filter(|(sequence, head, _)| {
            *sequence % 2 == slot as u64
                && *sequence < u64::MAX / 2
                && head.era == self.superblock.era
                && is_sound(head, &self.superblock.geometry)
        });
        reading.heads.extend(head);
        reading.heads_read += 1;
        if reading.heads_read < self.superblock.geometry.checkpoints.0.len() {
            return;
        }
        let wanted = match self.superblock.state {
            DeviceState::Clean { checkpoint } => Some(checkpoint),
            _ => None,
        };
        let durable = reading.heads.iter().map(|(_, head, _)| head.journal_durable).max();
        let newest = reading
            .heads
            .iter()
            .filter(|(sequence, ..)| wanted.is_none_or(|wanted| *sequence == wanted))
            .max_by_key(|(sequence, ..)| *sequence);
        let Some((sequence, head, regions)) = newest.cloned() else {
            reading.doubtful = true;
            return;
        };
        let (first, len) = self.superblock.geometry.journal;
        let device = device_of(self.superblock.uuid);
        let scan = Scan::behind(device, self.superblock.era, head.journal_page);
        let durable = durable.unwrap_or(0);
        reading.rest = Some(Rest {
            sequence,
            head,
            regions,
            durable,
            scan,
            next: 0,
            clean: wanted.is_some() && durable <= head.journal_page,
            volumes: Vec::new(),
            damaged_pages: 0,
        });
        let pages = u64::from(head.volumes).div_ceil(VOLUMES_A_PAGE as u64);
        if pages > 0 {
            let slot = (sequence % 2) as usize;
            let block = self.superblock.geometry.checkpoints.0[slot] + 1;
            self.read_for_open(reading, OpenRead::Volumes, block, pages);
        }
        if wanted.is_some() {
            let place = head.journal_page % len;
            self.read_for_open(reading, OpenRead::Ring(place), first + place, 1);
        }
    }

    /// Reads the next places of the ring, as many at a time as is good, if all are to be read.
    fn read_ring(&mut self, reading: &mut Reading) {
        let (first, len) = self.superblock.geometry.journal;
        let reads_max = self.config.bounds.load_reads;
        while reading.under_way < reads_max && !reading.doubtful && reading.failed.is_none() {
            let Some(rest) = reading.rest.as_mut().filter(|rest| !rest.clean) else { return };
            let place = rest.next;
            let count = self.config.bounds.open_pages.min(len - place);
            if count == 0 {
                return;
            }
            rest.next += count;
            self.store.crossings.note_if(rest.next < len, Bound::OpenPages);
            self.read_for_open(reading, OpenRead::Ring(place), first + place, count);
        }
    }

    /// Nothing is under way any more: concludes.
    fn all_read(&mut self, id: RequestId, mut reading: Reading) {
        assert_eq!(reading.under_way, 0, "what is read now would be taken for the session's");
        if let Some(error) = reading.failed {
            return self.opening_failed(id, error);
        }
        let Some(mut rest) = reading.rest.take().filter(|_| !reading.doubtful) else {
            return self.doubt(id);
        };
        let (sequence, head) = (rest.sequence, rest.head);
        let trusting = self.config.mutants.is(Mutant::CleanJournalUnread);
        let read = if !rest.clean {
            rest.scan.read(head.journal_page, rest.durable, self.config.mutants)
        } else if trusting
            || rest.scan.is_unwritten(head.journal_page, self.superblock.geometry.journal.1)
        {
            Some(Read { start: head.journal_page, next: head.journal_page, ..Read::default() })
        } else {
            rest.clean = false;
            reading.rest = Some(rest);
            self.read_ring(&mut reading);
            self.lifecycle = Lifecycle::Opening(id, Opening::Reads(Box::new(reading)));
            return;
        };
        let Some(read) = read.filter(|read| read.checkpoint <= sequence) else {
            return self.doubt(id);
        };
        let Rest { regions, volumes, damaged_pages, .. } = rest;
        self.recover(id, Found { sequence, head, regions, read, volumes, damaged_pages });
    }
}

impl Rest {
    /// Takes in the checkpoint's volumes, or that they could not be read.
    fn take_volumes(&mut self, pages: &[MetaPage]) {
        self.damaged_pages += u64::from(pages.is_empty());
        for (position, page) in (1..).zip(pages) {
            match Page::decode(page, self.sequence, position) {
                Some(Page::Volumes(records)) => self.volumes.extend(records),
                _ => self.damaged_pages += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Nothing, Rig, volume};
    use super::*;
    use crate::config::Config;
    use crate::mutant::Mutants;
    use crate::seam::{Action, Command, Event};
    use crate::units::{Instant, VolumeId};

    /// Opens a device that a session has left as a crash does, and ends everything but flushes of the
    /// device; the I/O that is under way then, and how much was written.
    fn opened_without_flushes(mutants: Mutants) -> (Vec<OpenRead>, usize) {
        let mut rig = Rig::open(1020);
        let superblock = rig.engine.superblock().clone();
        let mut engine =
            Engine::<Nothing>::new(Config { mutants, ..Config::default() }, superblock);
        let mut events = vec![Event::Control(RequestId(1), Command::Open)];
        let (mut actions, mut written) = (Vec::new(), 0);
        while !events.is_empty() {
            engine.apply(Instant(0), &mut events, &mut actions);
            for action in actions.drain(..) {
                let Action::Io(io) = action else { continue };
                written += usize::from(matches!(io.op, IoOp::WriteMeta { .. }));
                if !matches!(io.op, IoOp::Flush) {
                    events.push(Event::IoDone(rig.carry_out(io)));
                }
            }
        }
        let left = engine.outbox.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Open(what) => Some(*what),
            _ => None,
        });
        (left.collect(), written)
    }

    #[test]
    fn reads_do_not_wait_for_the_flush_and_writes_do() {
        assert_eq!(opened_without_flushes(Mutants::default()), (vec![OpenRead::Settle], 0));
        let (_, written) = opened_without_flushes(Mutants::only(Mutant::OpenedUnsettled));
        assert!(written > 0, "the mutant is found");
    }

    #[test]
    fn as_many_pages_of_the_ring_are_read_at_a_time_as_is_good() {
        let mut rig = Rig::open(1020);
        rig = rig.crash();
        let len = rig.engine.superblock().geometry.journal.1;
        let config = Config::default();
        let bounds = crate::bounds::Bounds { open_pages: 5, load_reads: 3, ..config.bounds };
        let superblock = rig.engine.superblock().clone();
        let mut engine = Engine::<Nothing>::new(Config { bounds, ..config }, superblock);
        let mut events = vec![Event::Control(RequestId(1), Command::Open)];
        let (mut actions, mut most, mut places) = (Vec::new(), 0, Vec::new());
        let mut under_way = Vec::new();
        loop {
            engine.apply(Instant(0), &mut events, &mut actions);
            for action in actions.drain(..) {
                let Action::Io(io) = action else { continue };
                match &engine.outbox.pending[io.id.0 as usize] {
                    Pending::Open(OpenRead::Ring(place)) => places.push(*place),
                    Pending::Open(_) => {}
                    _ => {
                        places.sort_unstable();
                        assert_eq!(places, (0..len).step_by(5).collect::<Vec<_>>(), "each once");
                        assert_eq!(most, 3);
                        return;
                    }
                }
                under_way.push(io);
            }
            most = most.max(under_way.len());
            // The newest ends first.
            let io = under_way.pop().expect("opening waits for something");
            events.push(Event::IoDone(rig.carry_out(io)));
        }
    }

    /// Whether a volume is known that a session has recorded which began after a clean stop, if both
    /// copies of its superblock are lost, and what the stop has left comes back.
    fn knows_of_a_later_session(mutants: Mutants) -> bool {
        let mut rig = Rig::open(1020);
        rig.ask(vec![Command::Attach(volume("before"))]);
        rig.ask(vec![Command::Detach(VolumeId(0))]);
        rig.ask(vec![Command::Seal(VolumeId(0), None)]);
        let mut rig = rig.next_session(Config { mutants, ..Config::default() });
        let clean = [0, 1].map(|copy| rig.pages[&copy].clone());
        let superblock = rig.engine.superblock().clone();
        rig.begin();
        rig.ask(vec![Command::Attach(volume("later"))]);
        let pages = std::mem::take(&mut rig.pages);
        let config = Config { mutants, ..Config::default() };
        let mut rig = Rig::new(Engine::new(config, superblock));
        rig.pages = pages;
        rig.pages.extend((0..).zip(clean));
        rig.begin();
        rig.engine.recorded("later").is_some()
    }

    #[test]
    fn a_journal_that_was_written_after_a_clean_stop_is_read() {
        assert!(knows_of_a_later_session(Mutants::default()));
        let mutant = Mutants::only(Mutant::CleanJournalUnread);
        assert!(!knows_of_a_later_session(mutant), "the mutant is found");
    }
}
