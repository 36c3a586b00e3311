//! The destage of one volume: its epochs go to the back end one after the other.
//!
//! An epoch is read from the log in windows, written through the engine, and flushed there; then a
//! record says that the back end has it (*retired*), durably, before the next epoch begins. So at each
//! moment the back end holds all epochs up to N, and some writes of N + 1: what a disk may hold that
//! lost power. A crash, a failed request or a server that restarted repeats the epoch from its begin.

use crate::format::SEGMENT_PAGES;
use crate::mutant::{Mutant, Mutants};
use crate::pace::Ready;
use crate::ranges::RangeRecord;
use crate::slots::{ALL_SECTORS, Held, Slots};
use crate::volume::Volume;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, Payload};
use std::collections::{BTreeMap, VecDeque};

/// What the destage of a volume is doing.
#[derive(Debug)]
pub(crate) enum Destage<P> {
    /// Nothing is under way; not before this instant, after a failure.
    Idle(Instant),
    /// Waiting for an epoch's chunks to be durable on the log's device.
    Durable,
    /// An epoch is on its way.
    Running(Run<P>),
    /// The back end has an epoch, and this is being recorded. Up to this chunk.
    Recording {
        upto: u64,
        end: Cursor,
        /// So many writes of the record must have ended.
        needs: u64,
    },
    /// It is recorded; its slots are being retired.
    Retiring { upto: u64, end: Cursor },
}

impl<P> Default for Destage<P> {
    fn default() -> Self {
        Self::Idle(Instant::default())
    }
}

/// A place in the log of a volume: an index into its segments, and a page within that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    pub(crate) segment: usize,
    pub(crate) page: u32,
}

impl Cursor {
    pub(crate) const START: Self = Self { segment: 0, page: 0 };
}

/// An epoch on its way.
#[derive(Debug)]
pub(crate) struct Run<P> {
    pub(crate) epoch: u64,
    /// Number of its last chunk.
    pub(crate) last: u64,
    /// What comes next.
    pub(crate) cursor: Cursor,
    /// Data pages of the chunk at the cursor that were passed.
    behind: u32,
    /// Low bits of the number of the chunk at the cursor.
    number: u32,
    /// Ranges passed.
    ranges: usize,
    /// Nothing comes behind the window.
    pub(crate) at_end: bool,
    /// Pages being read, or read and not written yet, in the order of the log.
    pub(crate) window: Vec<Page<P>>,
    /// Reads of the log under way.
    pub(crate) reading: u32,
    /// Requests for the engine that wait for their turn, in order.
    pub(crate) ready: VecDeque<Ready<P>>,
    /// Requests of the engine under way.
    pub(crate) writing: u32,
    /// Requests that the engine was given.
    pub(crate) writes: u64,
    /// The only request of the epoch was durable when it ended.
    pub(crate) durable: bool,
    /// The engine is flushing.
    pub(crate) flushing: bool,
    /// The epoch must be repeated.
    pub(crate) repeat: bool,
    pub(crate) failed: Option<Failure>,
}

/// A page of the log on its way to the back end.
#[derive(Debug)]
pub(crate) struct Page<P> {
    pub(crate) slot: u32,
    pub(crate) held: Held,
    /// Once it was read: memory, and byte in it.
    pub(crate) data: Option<(P, u64)>,
}

/// What comes next of an epoch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A window has been gathered.
    Window,
    /// A range, with nothing of the epoch before it left.
    Range(RangeRecord),
    /// That was all.
    End,
}

impl<P: Payload> Run<P> {
    pub(crate) fn new(epoch: u64, last: u64) -> Self {
        Self {
            epoch,
            last,
            cursor: Cursor::START,
            behind: 0,
            number: 0,
            ranges: 0,
            at_end: false,
            window: Vec::new(),
            reading: 0,
            ready: VecDeque::new(),
            writing: 0,
            writes: 0,
            durable: false,
            flushing: false,
            repeat: false,
            failed: None,
        }
    }

    /// Whether nothing of it is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.reading == 0 && self.writing == 0 && self.ready.is_empty() && !self.flushing
    }
}

/// The epoch of the oldest chunk that is not retired. RAM keeps the low 40 bits of an epoch, and no
/// log holds so many.
pub(crate) fn first_epoch<P: Payload>(
    volume: &Volume<P>,
    slots: &Slots,
    used: &dyn Fn(u32) -> u32,
) -> Option<u64> {
    let next = volume.record.after(volume.record.retired).0;
    let mut skip = volume.retired_pages;
    for segment in &volume.segments {
        for page in std::mem::take(&mut skip)..used(*segment) {
            let slot = segment * SEGMENT_PAGES + page;
            if slots.data(slot).is_none() {
                let (_, epoch, low) = slots.chunk_of(slot);
                if low == next as u32 {
                    return Some(whole(volume, epoch));
                }
            }
        }
    }
    None
}

/// The epoch of which the low bits are given: not newer than the one that is written now.
fn whole<P>(volume: &Volume<P>, low: u64) -> u64 {
    volume.epoch - (volume.epoch.wrapping_sub(low) & EPOCH_BITS)
}

/// The bits of an epoch that RAM keeps.
const EPOCH_BITS: u64 = (1 << 40) - 1;

/// The number of the last chunk of the epoch that is the oldest one not retired, and the epoch.
pub(crate) fn oldest_epoch<P: Payload>(
    volume: &Volume<P>,
    slots: &Slots,
    used: &dyn Fn(u32) -> u32,
) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    let mut number = volume.record.retired;
    let mut skip = volume.retired_pages;
    for segment in &volume.segments {
        for page in std::mem::take(&mut skip)..used(*segment) {
            let slot = segment * SEGMENT_PAGES + page;
            if slots.data(slot).is_some() {
                continue;
            }
            let (_, epoch, low) = slots.chunk_of(slot);
            let next = volume.record.after(number).0;
            // Chunks that were retired, in a segment that is not.
            if low != next as u32 {
                continue;
            }
            match found {
                Some((of, _)) if of & EPOCH_BITS != epoch => return found,
                _ => found = Some((whole(volume, epoch), next)),
            }
            number = next;
        }
    }
    found
}

/// Goes on from the cursor: gathers a window into `run`, or says what else comes.
pub(crate) fn gather<P: Payload>(
    volume: &Volume<P>,
    run: &mut Run<P>,
    slots: &Slots,
    used: &dyn Fn(u32) -> u32,
    (most, mutants): (usize, Mutants),
) -> Step {
    assert!(run.window.is_empty(), "one window at a time");
    let retired = volume.record.retired;
    loop {
        // Ranges that stand here.
        if let Some(range) = volume.records.get(run.ranges)
            && run.cursor != Cursor::START
            && (range.number as u32 == run.number && range.behind <= run.behind
                || mutants.is(Mutant::RangesFirst) && range.number <= run.last)
        {
            if !run.window.is_empty() {
                return Step::Window;
            }
            run.ranges += 1;
            return Step::Range(*range);
        }
        if run.window.len() >= most {
            return Step::Window;
        }
        let segment = volume.segments.get(run.cursor.segment).expect("an epoch has a segment");
        if run.cursor.page >= used(*segment) {
            // The last one may still be filled: what comes later is not of this epoch.
            if run.cursor.segment + 1 == volume.segments.len() {
                break;
            }
            run.cursor = Cursor { segment: run.cursor.segment + 1, page: 0 };
            continue;
        }
        let slot = segment * SEGMENT_PAGES + run.cursor.page;
        match slots.data(slot) {
            None => {
                let (_, epoch, number) = slots.chunk_of(slot);
                let is_retired = is_up_to(number, retired);
                let merges = mutants.is(Mutant::EpochsMerged);
                if !is_retired && epoch != run.epoch & EPOCH_BITS && !merges {
                    break;
                }
                (run.number, run.behind) = (number, 0);
            }
            Some(held) => {
                let is_retired = is_up_to(run.number, retired);
                run.behind += 1;
                let needed = is_needed(volume, slots, slot, held, run.epoch)
                    && !is_given_up(volume, held.block)
                    && !(mutants.is(Mutant::EpochsCoalesced)
                        && slots.find(volume.record.volume, held.block) != Some(slot));
                if !is_retired && needed {
                    run.window.push(Page { slot, held, data: None });
                }
            }
        }
        run.cursor.page += 1;
    }
    run.at_end = true;
    if run.window.is_empty() { Step::End } else { Step::Window }
}

/// Whether a chunk, of whose number the low 32 bits are given, is not newer than another one. Chunks in
/// the log at a time are fewer than 2^31.
fn is_up_to(number: u32, other: u64) -> bool {
    (other as u32).wrapping_sub(number) < 1 << 31
}

/// Whether no newer version of the same epoch holds all of a page's sectors.
fn is_needed<P: Payload>(
    volume: &Volume<P>,
    slots: &Slots,
    slot: u32,
    held: Held,
    epoch: u64,
) -> bool {
    let Some(newest) = slots.find(volume.record.volume, held.block) else {
        // A range came later. Of this epoch or not: the engine gets both, in order.
        return true;
    };
    if newest == slot {
        return true;
    }
    let newer = slots.data(newest).expect("a version has data");
    let (_, of, _) = slots.chunk_of(newest);
    of != epoch & EPOCH_BITS || held.sectors & !newer.sectors != 0
}

/// Whether a page that the back end has no room for is not written, because its block was trimmed or zeroed since,
/// durably. Without that the range that makes room would wait behind what needs it.
fn is_given_up<P: Payload>(volume: &Volume<P>, block: u64) -> bool {
    volume.has_no_room()
        && volume.zeros.number(block).is_some_and(|number| number <= volume.commits.durable)
}

/// A request to the engine: pages of the window whose blocks follow one another, or some sectors of
/// one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) block: u64,
    /// Indices into the window.
    pub(crate) pages: Vec<usize>,
    /// Which sectors, if it is one page.
    pub(crate) sectors: u8,
}

/// The requests that write a window, in the order in which they must be submitted. Of two pages with
/// the same block the later one goes alone if it has all that the earlier one has.
pub(crate) fn writes_of<P>(window: &[Page<P>], (most, mutants): (usize, Mutants)) -> Vec<Write> {
    let mut by_block: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, page) in window.iter().enumerate() {
        let versions = by_block.entry(page.held.block).or_default();
        versions.retain(|older| window[*older].held.sectors & !page.held.sectors != 0);
        let last = if mutants.is(Mutant::WindowUnordered) { 0 } else { versions.len() };
        versions.insert(last, index);
    }
    let mut writes: Vec<Write> = Vec::new();
    for (block, versions) in by_block {
        let whole = versions.len() == 1 && window[versions[0]].held.sectors == ALL_SECTORS;
        if whole
            && let Some(last) = writes.last_mut()
            && last.sectors == ALL_SECTORS
            && last.block + last.pages.len() as u64 == block
            && last.pages.len() < most
        {
            last.pages.push(versions[0]);
            continue;
        }
        writes.extend(versions.into_iter().map(|index| Write {
            block,
            pages: vec![index],
            sectors: window[index].held.sectors,
        }));
    }
    writes
}
