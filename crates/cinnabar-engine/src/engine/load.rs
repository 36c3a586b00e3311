//! Loading the index while volumes are served already.
//!
//! Until it is done the store finds nothing: reads pass through and fill nothing, writes append
//! invalidation records whatever they hit. The copies that they invalidated are taken out at the end.

use super::Engine;
use super::open::Found;
use super::passed::Passed;
use super::phases::Phase;
use crate::bounds::Bound;
use crate::descriptors::Key;
use crate::health::{LoadReport, Start};
use crate::metadata::MetaPage;
use crate::metadata::checkpoint::{DESCRIPTORS_A_PAGE, VOLUMES_A_PAGE, VolumeRecord};
use crate::metadata::journal::Record;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, IoError, IoOp, Payload, Target};
use crate::store::{Chain, Doubt, Index, Known, Replay};
use crate::units::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

const NO_HEADER: MetaPage = MetaPage::zeroed();

/// What loading does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Segments, which descriptors need.
    Segments,
    /// Descriptors, and beside them the headers of newer chunks.
    Descriptors,
    /// All descriptors are in; the last of them are on their way into the address map.
    Filling,
    Headers,
    Replay,
    /// The index is in place; what was written before it was is being taken out of it.
    Passed,
}

/// The index being loaded.
#[derive(Debug)]
pub(super) struct Loader {
    known: Known,
    replay: Option<Replay>,
    records: Vec<Record>,
    stage: Stage,
    /// Next page of the checkpoint to be read, where segments and descriptors end, reads under way.
    next: u32,
    ends: (u32, u32),
    reading: u32,
    pages: u64,
    /// Blocks written before the index is in place.
    passed: Passed,
    /// Those of them that are looked up one by one, and how far that has got: ranges, blocks.
    short: Vec<(u16, u64, u64)>,
    looked_up: (usize, u64),
    /// How far the pass over all slots has got, which finds the others.
    slot: u32,
    start: Start,
    /// Buffers to be read into again.
    spare: Vec<Vec<MetaPage>>,
}

impl Loader {
    /// Metadata pages read, and those to be read as far as is known.
    pub(super) fn progress(&self) -> (u64, u64) {
        let headers = self.replay.as_ref().map_or(0, |replay| replay.headers);
        (self.pages + headers, u64::from(self.ends.1) + headers)
    }

    /// What it does at the moment.
    pub(super) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Segments | Stage::Descriptors | Stage::Filling => Phase::LoadPages,
            Stage::Headers => Phase::LoadHeaders,
            Stage::Replay => Phase::LoadReplay,
            Stage::Passed => Phase::LoadPassed,
        }
    }

    /// Blocks go to the backend, or are taken out, meanwhile. Says whether that is noted: once the
    /// index is in place it is not, and the caller takes out what it finds there. Otherwise a run
    /// that grows while it is being taken out could grow into what has been looked at already, which
    /// is what it does if `grows`, a deliberate bug.
    pub(super) fn pass(&mut self, volume: u16, first: u64, end: u64, grows: bool) -> bool {
        let notes = self.stage != Stage::Passed || grows;
        if notes {
            self.passed.add(volume, first, end);
        }
        notes
    }
}

impl<P: Payload> Engine<P> {
    /// Makes the volumes known that checkpoint and journal speak of; gives what loads the rest.
    pub(super) fn prepare_load(&mut self, found: Found, start: Start) -> Loader {
        let Found { sequence, head, regions, read, volumes, damaged_pages } = found;
        let kept = volumes_left(&volumes, &read.records);
        let mut flushed = BTreeMap::new();
        for record in &volumes {
            flushed.insert((record.incarnation, head.session), record.flushed);
        }
        for record in &read.records {
            if let Record::Flushed { incarnation, session, sequence } = *record {
                let newest = flushed.entry((incarnation, session)).or_default();
                *newest = sequence.max(*newest);
            }
        }
        let indices = volumes.iter().map(|v| usize::from(v.index) + 1).max().unwrap_or(0);
        let mut current = vec![false; indices];
        for record in &volumes {
            // The index, too: the journal may say anything that its checksums pass, and only what
            // is kept has a holding.
            let same =
                |v: &VolumeRecord| (v.incarnation, v.index) == (record.incarnation, record.index);
            current[usize::from(record.index)] = kept.iter().any(same);
        }
        for record in &kept {
            self.store.adopt(record);
        }
        let known = Known {
            sequence,
            head,
            volumes: kept.iter().map(|v| (v.incarnation, v.index)).collect(),
            indices: current,
            flushed,
            chains: Vec::new(),
            emptied: emptied(&read.records, head.chunk_sequence),
            doubt: Doubt::new(&regions, head.openings, &read.records, self.config.mutants),
            damaged_pages,
            unflushed_blocks: 0,
            doubtful_blocks: 0,
        };
        self.adopt_volumes(kept);
        let records = read.records.clone();
        let keep = !self.config.mutants.is(Mutant::RecordsLostInSecondCrash);
        self.store.journal.go_on(read, sequence, keep);
        let volume_pages = head.volumes.div_ceil(VOLUMES_A_PAGE as u32);
        let total = 1 + head.pages() as u32;
        let descriptor_pages = head.slots.div_ceil(DESCRIPTORS_A_PAGE as u32);
        Loader {
            known,
            replay: None,
            records,
            stage: Stage::Segments,
            next: 1 + volume_pages,
            ends: (total - descriptor_pages, total),
            reading: 0,
            pages: 0,
            passed: Passed::new(self.config.bounds.passed_ranges),
            short: Vec::new(),
            looked_up: (0, 0),
            slot: 0,
            start,
            spare: Vec::new(),
        }
    }

    /// Does what can be done now: starts reads, or a step of work.
    pub(super) fn continue_load(&mut self) {
        let Some(mut loader) = self.loader.take() else { return };
        let done = self.step_load(&mut loader);
        if done {
            self.finish_load(*loader);
        } else {
            self.loader = Some(loader);
        }
    }

    fn step_load(&mut self, loader: &mut Loader) -> bool {
        if loader.stage == Stage::Segments && self.read_pages(loader, loader.ends.0) {
            let chains = std::mem::take(&mut loader.known.chains);
            let records = std::mem::take(&mut loader.records);
            let sequence = loader.known.head.chunk_sequence;
            loader.replay = Some(Replay::new(&records, chains, sequence));
            self.store.begin_filling();
            loader.stage = Stage::Descriptors;
        }
        if let Some(replay) = &mut loader.replay {
            self.store.read_headers(replay, &mut self.outbox);
        }
        if loader.stage == Stage::Descriptors && self.read_pages(loader, loader.ends.1) {
            loader.stage = Stage::Filling;
        }
        if loader.stage == Stage::Filling {
            if !self.store.finish_filling() {
                self.wake_at(self.now);
                return false;
            }
            loader.stage = Stage::Headers;
        }
        if loader.stage == Stage::Headers {
            let replay = loader.replay.as_mut().expect("made above");
            if !replay.is_read() {
                return false;
            }
            replay.order();
            loader.stage = Stage::Replay;
        }
        if loader.stage == Stage::Replay {
            let replay = loader.replay.as_mut().expect("made above");
            if !self.store.replay(&mut loader.known, replay) {
                self.wake_at(self.now);
                return false;
            }
            loader.stage = Stage::Passed;
            loader.short = loader.passed.take_short(self.config.bounds.invalidate_lookups);
            self.store.index = Index::InPlace;
        }
        loader.stage == Stage::Passed && self.invalidate_passed(loader)
    }

    /// Starts reads up to page `end`; true once all up to there are in.
    fn read_pages(&mut self, loader: &mut Loader, end: u32) -> bool {
        assert!(u64::from(end) <= self.store.log.geometry.checkpoints.1, "pages of its own slot");
        let slot = (loader.known.sequence % 2) as usize;
        let base = self.store.log.geometry.checkpoints.0[slot];
        while loader.next < end && loader.reading < self.config.bounds.load_reads {
            let count = self.config.bounds.load_pages.min(end - loader.next);
            self.store.crossings.note_if(count < end - loader.next, Bound::LoadPages);
            let position = loader.next;
            let offset = (base + u64::from(position)) * BLOCK_BYTES;
            let spare = loader.spare.pop().filter(|pages| pages.len() == count as usize);
            let pages = spare.unwrap_or_else(|| vec![MetaPage::zeroed(); count as usize]);
            let op = IoOp::ReadMeta { offset, pages };
            self.outbox.io(Target::Cache, op, Pending::Load { position, count });
            loader.next += count;
            loader.reading += 1;
        }
        self.store.crossings.note_if(loader.next < end, Bound::LoadReads);
        loader.next >= end && loader.reading == 0
    }

    /// Pages of the checkpoint have been read, or could not be.
    pub(super) fn pages_loaded(
        &mut self,
        position: u32,
        count: u32,
        result: Result<(), IoError>,
        pages: Vec<MetaPage>,
    ) {
        let Some(loader) = &mut self.loader else { return };
        assert!(loader.reading > 0, "pages that come were asked for");
        loader.reading -= 1;
        loader.pages += u64::from(count);
        for i in 0..count {
            let page = pages.get(i as usize).filter(|_| result.is_ok());
            self.store.load(&mut loader.known, position + i, page);
        }
        loader.spare.push(pages);
        self.continue_load();
    }

    /// A header has been read, or could not be.
    pub(super) fn header_loaded(
        &mut self,
        chain: Chain,
        result: Result<(), IoError>,
        pages: &[MetaPage],
    ) {
        let Some(loader) = &mut self.loader else { return };
        let replay = loader.replay.as_mut().expect("headers are read for it");
        let page = pages.first().filter(|_| result.is_ok());
        let early = loader.stage == Stage::Descriptors;
        let forgets = early && self.config.mutants.is(Mutant::EarlyHeaderForgotten);
        let page = if forgets { Some(&NO_HEADER) } else { page };
        self.store.header_read(replay, chain, page);
        self.continue_load();
    }

    /// Takes out some of what was written while the index was not there to tell: short ranges by
    /// lookups, the long ones together by one pass over all slots. True when nothing is left.
    fn invalidate_passed(&mut self, loader: &mut Loader) -> bool {
        let mut budget = self.config.bounds.replay_blocks;
        while budget > 0 {
            let (range, within) = &mut loader.looked_up;
            let Some(&(volume, first, end)) = loader.short.get(*range) else { break };
            let stop = end.min(first + *within + budget);
            self.store.invalidate_blocks(volume, first + *within..stop);
            budget -= stop - first - *within;
            (*range, *within) = if stop == end { (*range + 1, 0) } else { (*range, stop - first) };
        }
        let short = loader.looked_up.0 < loader.short.len();
        let slots = self.store.log.geometry.slots();
        if !short && !loader.passed.is_empty() {
            let stop = slots.min(loader.slot + u32::try_from(budget * 8).unwrap_or(u32::MAX));
            let passed = &loader.passed;
            let written = |key: Key| passed.contains(key.volume, key.block);
            self.store.invalidate_slots(loader.slot..stop, written);
            loader.slot = stop;
        }
        let done = !short && (loader.passed.is_empty() || loader.slot == slots);
        if !done {
            self.wake_at(self.now);
        }
        done
    }

    fn finish_load(&mut self, loader: Loader) {
        assert!(loader.stage == Stage::Passed && loader.reading == 0, "all of it has been read");
        let replay = loader.replay.expect("it was replayed");
        assert!(replay.is_read(), "and all that is newer");
        self.store.finish_load();
        self.store.index = Index::InUse;
        // Whatever could not be read now may be readable next time, and copies that were taken out
        // although their blocks were not written are invalid nowhere else. Until a checkpoint says what is
        // known now, every write has to append an invalidation record.
        self.doubtful = loader.start == Start::Crashed
            || loader.known.damaged_pages > 0
            || loader.passed.is_coarse();
        self.store.crossings.note_if(loader.passed.is_coarse(), Bound::PassedRanges);
        self.report = LoadReport {
            start: loader.start,
            blocks: self.store.counters().cached_blocks,
            replayed_blocks: replay.replayed_blocks,
            unflushed_blocks: loader.known.unflushed_blocks,
            doubtful_blocks: loader.known.doubtful_blocks,
            overwritten_blocks: replay.overwritten_blocks,
            pages: loader.pages + replay.headers,
            damaged_pages: loader.known.damaged_pages + replay.failed_reads,
        };
        for volume in self.volumes.iter_mut().flatten() {
            if let Some(dropped) = volume.replaces.take() {
                let passed_by = self.store.holdings[usize::from(dropped)].passed_by;
                volume.counters.dropped_blocks += passed_by;
            }
        }
        for index in 0..self.volumes.len() {
            if self.volumes[index].as_ref().is_some_and(|volume| volume.group.is_some()) {
                self.join_group(index as u16);
            }
        }
        for id in std::mem::take(&mut self.awaiting_load) {
            self.outbox.reply(id, Ok(Answer::Loaded(self.report)));
        }
        self.continue_attaches();
        self.continue_old_resize();
        self.advance_lifecycle();
    }
}

/// Segments emptied since the checkpoint; records of what came before may come again.
fn emptied(records: &[Record], since: u64) -> BTreeMap<u32, u64> {
    let mut emptied = BTreeMap::new();
    for record in records {
        if let Record::SegmentInvalidation { segment, version } = *record
            && version >= since
        {
            let newest = emptied.entry(segment).or_default();
            *newest = version.max(*newest);
        }
    }
    emptied
}

/// The volumes whose blocks may still be believed: of each name, and of each index, the newest.
fn volumes_left(checkpoint: &[VolumeRecord], records: &[Record]) -> Vec<VolumeRecord> {
    let journal = records.iter().filter_map(|record| match record {
        Record::Volume(volume) => Some(&**volume),
        _ => None,
    });
    let dropped: BTreeSet<u32> = records
        .iter()
        .filter_map(|record| match *record {
            Record::Dropped { incarnation } => Some(incarnation),
            _ => None,
        })
        .collect();
    let mut all: Vec<&VolumeRecord> = checkpoint.iter().chain(journal).collect();
    all.sort_by_key(|volume| std::cmp::Reverse(volume.stamp));
    let (mut names, mut indices) = (BTreeSet::new(), BTreeSet::new());
    all.retain(|volume| names.insert(&volume.name) & indices.insert(volume.index));
    all.retain(|volume| !dropped.contains(&volume.incarnation));
    all.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Nothing, Rig, superblock, volume};
    use super::*;
    use crate::bounds::Bounds;
    use crate::config::{Config, Eviction};
    use crate::descriptors::DESCRIPTOR_BYTES;
    use crate::journal::scan::Read;
    use crate::metadata::checkpoint::{Head, Page, SegmentRecord};
    use crate::mutant::Mutants;
    use crate::seam::{Command, Op};
    use crate::units::{ByteSpan, VolumeId};

    /// A checkpoint of one volume, `loaded` as index 5 and `kept` under the index that the journal
    /// says, about to be read: its segments are page 2, its descriptors begin with page 3.
    fn loading(kept: u16) -> (Engine<Nothing>, Loader) {
        let superblock = superblock(1020);
        let slots = superblock.geometry.slots();
        let mut engine = Engine::<Nothing>::new(Config::default(), superblock);
        let record = |index, stamp| VolumeRecord {
            index,
            incarnation: 9,
            size_bytes: 1 << 20,
            generation: 0,
            stamp,
            flushed: 0,
            written: false,
            name: "volume".into(),
            proof: None,
        };
        let head = Head {
            volumes: 1,
            segments: 1,
            slots,
            chunk_sequence: 5,
            journal_page: 1,
            session: 1,
            era: 1,
            journal_durable: 1,
            openings: 0,
        };
        let records = vec![Record::Volume(Box::new(record(kept, 2)))];
        let read = Read { start: 1, next: 2, checkpoint: 0, records };
        let volumes = vec![record(5, 1)];
        let regions = Vec::new();
        let found = Found { sequence: 2, head, regions, read, volumes, damaged_pages: 0 };
        let loader = engine.prepare_load(found, Start::Crashed);
        engine.store.index = Index::Partial;
        engine.store.begin_filling();
        (engine, loader)
    }

    /// A page at `position` that says that `used` slots of segment 0 are used.
    fn segments_page(position: u32, used: u32) -> MetaPage {
        let segment =
            SegmentRecord { segment: 0, sequence: 1, last: 2, used, open: false, owner: u32::MAX };
        Page::Segments(vec![segment]).encode(2, position)
    }

    /// Page 3: the last of `slots` slots holds block 0 of the volume with index 5.
    fn descriptors_page(slots: usize) -> MetaPage {
        let mut raw = vec![0; slots * DESCRIPTOR_BYTES];
        raw[(slots - 1) * DESCRIPTOR_BYTES + 4..].copy_from_slice(&(6u64 << 36).to_le_bytes()[..7]);
        Page::Descriptors(raw).encode(2, 3)
    }

    /// Checksums keep out rot, not malice.
    #[test]
    fn a_volume_that_the_journal_gives_another_index_is_not_taken_for_the_checkpoints() {
        let (mut engine, mut loader) = loading(0);
        engine.store.load(&mut loader.known, 2, Some(&segments_page(2, 2)));
        engine.store.load(&mut loader.known, 3, Some(&descriptors_page(2)));
        assert_eq!(loader.known.damaged_pages, 0);
        assert_eq!(engine.store.counters().cached_blocks, 0);
    }

    /// The cleaner would give the segment back with a block in it.
    #[test]
    fn segments_that_come_among_the_descriptors_do_not_shrink_a_segment_with_blocks() {
        let (mut engine, mut loader) = loading(5);
        engine.store.load(&mut loader.known, 2, Some(&segments_page(2, 10)));
        engine.store.load(&mut loader.known, 3, Some(&descriptors_page(10)));
        assert_eq!(engine.store.counters().cached_blocks, 1);
        engine.store.load(&mut loader.known, 4, Some(&segments_page(4, 2)));
        assert_eq!(engine.store.log.segments[0].used, 10);
        assert_eq!(loader.known.damaged_pages, 1);
        // Nor does a chunk behind the checkpoint at the begin of a segment that was not emptied.
        engine.store.occupy(0, 0, 6, 6, 2);
        assert_eq!(engine.store.log.segments[0].used, 10);
    }

    /// A clean start whose index has been read and is on its way into the address map, but for one
    /// block, and the number of blocks in it.
    fn filling(mutants: Mutants) -> (Rig, u64) {
        let bounds = Bounds { replay_blocks: 1, fill_buckets: 1, ..Bounds::default() };
        let config = Config { eviction: Eviction::Clock, bounds, mutants, ..Config::default() };
        let mut rig = Rig::open_with(config, 1020);
        rig.ask(vec![Command::Attach(volume("v"))]);
        let span = ByteSpan::new(0, 64 * BLOCK_BYTES);
        rig.submit(VolumeId(0), Op::Read { span, data: Nothing::alloc(64) });
        let blocks = rig.engine.cache_counters().cached_blocks;
        rig.ask(vec![Command::Detach(VolumeId(0))]);
        rig.ask(vec![Command::Seal(VolumeId(0), None)]);
        let mut rig = rig.next_session(config);
        rig.holds_wakes = true;
        rig.begin();
        (rig, blocks)
    }

    #[test]
    fn an_index_fills_the_address_map_step_by_step() {
        let (mut rig, blocks) = filling(Mutants::default());
        assert!(blocks >= 60, "{blocks} are cached");
        let mut steps = 0;
        while rig.engine.store.index != Index::InUse {
            rig.engine.check_invariants();
            assert!(rig.wake(), "a step that is not the last asks for the next");
            steps += 1;
        }
        assert!(steps > 4, "{steps} steps of eight blocks or some more");
        rig.engine.check_invariants();
        assert_eq!(rig.engine.report.blocks, blocks);
    }

    #[test]
    fn of_an_index_half_loaded_nothing_is_left_when_the_device_is_lost() {
        // What is left would keep its volume's index, and a sweep would come across it.
        let keeps_some = |mutants| {
            let (mut rig, _) = filling(mutants);
            rig.ask(vec![Command::Abandon]);
            rig.engine.store.holds_dead()
        };
        assert!(!keeps_some(Mutants::default()));
        assert!(keeps_some(Mutants::only(Mutant::LostLoadKept)), "the mutant is found");
        let (mut rig, _) = filling(Mutants::default());
        rig.ask(vec![Command::Abandon]);
        rig.engine.check_invariants();
        assert!(!rig.wake() || rig.engine.store.dead, "nothing of it goes on");
    }
}
