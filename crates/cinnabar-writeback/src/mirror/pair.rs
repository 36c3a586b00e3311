//! The devices of a log while it is opened: which of them count, and reads and writes of those that do.

use super::Mirror;
use super::half::{Asked, Half, overdue};
use super::level::{Levelled, level};
use super::mark::{self, Mark, MarkState};
use super::plan::{Found, HalfState, plan};
use crate::format::chunk::ChunkHeader;
use crate::format::superblock::{Superblock, SuperblockError};
use crate::format::{DIRECTORY_PAGE, MARK_PAGE, SEGMENT_PAGES, bytes_of, offset_of, start_of};
use crate::log::WriteLog;
use crate::mutant::Mutants;
use crate::recover::{Media, OpenError, directory, read_each};
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use std::cell::{Cell, RefCell};
use std::io::{Error, Result};

/// A fill leaves out up to 4,096 starts, drawn by the pair's number: 2^30 are enough for half a million
/// fills.
const STARTS_SKIPPED_SHIFT: u32 = 52;

/// Why a half that was given is not used.
pub(super) type Missing = [Option<OpenError>; 2];

/// The halves of a log that is being opened. As a device it is what its members have together: a half
/// that can't be written is dropped, and what was written counts once the other one says so.
#[derive(Debug)]
pub struct Pair<'a, M> {
    halves: [Option<Asked<'a, M>>; 2],
    log: Superblock,
    states: Cell<[HalfState; 2]>,
    marks: Cell<[Mark; 2]>,
    missing: RefCell<Missing>,
    /// There was nothing on it.
    blank: [bool; 2],
    /// What a half that is filled now has in common with the other one.
    nonce: u64,
    levelled: Cell<Levelled>,
    mutants: Mutants,
}

/// Finds out which of the devices given count; `None`: one is not there. Members are levelled, durably.
/// A device without a write log must hold nothing that counts. `pair` is drawn at random.
///
/// A device that fails, is overdue, or can't be believed counts as one that is not there;
/// [`Mirror::missing`] says why.
///
/// # Errors
/// If none of them is known to hold everything, or they don't belong together. If none of them is known
/// as a write log, what is wrong with the first one that fails.
pub fn start<P: Payload, M: Media<P>>(
    halves: [Option<Half<'_, M>>; 2],
    pair: u64,
    mutants: Mutants,
) -> std::result::Result<Pair<'_, M>, OpenError> {
    let halves = halves.map(|half| half.as_ref().map(Asked::new));
    let (mut found, mut logs, mut missing) = ([Found::Absent; 2], [None; 2], Missing::default());
    for (n, half) in halves.iter().enumerate() {
        let Some(half) = half else { continue };
        match look_at(half) {
            Ok((is, log)) => (found[n], logs[n]) = (is, log),
            Err(error) => missing[n] = Some(error),
        }
    }
    if let [Some(a), Some(b)] = logs
        && a != b
    {
        return Err(OpenError::OtherLog);
    }
    let (Ok(mut states), Some(log)) = (plan(found, mutants), logs[0].or(logs[1])) else {
        return Err(refusal(found, missing, mutants));
    };
    let marks = found.map(|found| if let Found::Log(mark) = found { mark } else { Mark::NEVER });
    let blank = found.map(|found| found == Found::Blank);
    for (n, half) in halves.iter().enumerate() {
        let (have, need) = (half.as_ref().map_or(0, |half| half.bytes), bytes_of(log.segments));
        if states[n] == HalfState::Filling && have < need {
            states[n] = HalfState::Gone;
            missing[n] = Some(OpenError::MirrorSmaller { have, need });
        }
    }
    let levelled = Cell::default();
    let (states, marks) = (Cell::new(states), Cell::new(marks));
    let (nonce, missing) = (pair, RefCell::new(missing));
    let all = Pair { halves, log, states, marks, missing, blank, nonce, levelled, mutants };
    all.settle::<P>()?;
    Ok(all)
}

/// What is on a device, and of which log it is.
fn look_at<P, M: Media<P>>(
    half: &Asked<'_, M>,
) -> std::result::Result<(Found, Option<Superblock>), OpenError> {
    let Some(log) = superblock_of(half)? else { return Ok((Found::Blank, None)) };
    let (have, need) = (half.bytes, bytes_of(log.segments));
    if have < need {
        return Err(OpenError::Smaller { have, need });
    }
    let mark = mark::read(half, log.uuid)?;
    Ok((Found::Log(mark.unwrap_or(Mark::NEVER)), Some(log)))
}

/// Why devices are no log that can be opened.
fn refusal(found: [Found; 2], missing: Missing, mutants: Mutants) -> OpenError {
    let error = plan(found, mutants).err().unwrap_or(OpenError::HalfMissing);
    let is_log = found.iter().any(|found| matches!(found, Found::Log(_)));
    // Beside a half that is there, one that fails is one that is not there.
    let says = |error: &OpenError| !is_log || !matches!(error, OpenError::Io(_));
    missing.into_iter().flatten().find(says).unwrap_or(error)
}

/// The superblock of a half, from whichever of its pages; `None`: it has none.
fn superblock_of<P>(media: &impl Media<P>) -> std::result::Result<Option<Superblock>, OpenError> {
    let mut unreadable = None;
    for page in 0..2 {
        let mut bytes = [MetaPage::zeroed()];
        if let Err(error) = media.read_pages(page * BLOCK_BYTES, &mut bytes) {
            unreadable = Some(error);
            continue;
        }
        match Superblock::decode(&bytes[0]) {
            Ok(superblock) => return Ok(Some(superblock)),
            Err(SuperblockError::Foreign) => {}
            Err(error) => return Err(error.into()),
        }
    }
    unreadable.map_or(Ok(None), |error| Err(error.into()))
}

impl<M> Pair<'_, M> {
    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.log.segments)
    }

    pub fn states(&self) -> [HalfState; 2] {
        self.states.get()
    }

    /// What was written to either half because the other one had it.
    pub fn levelled(&self) -> Levelled {
        self.levelled.get()
    }

    fn media(&self, half: usize) -> &Asked<'_, M> {
        self.halves[half].as_ref().expect("a half that counts is there")
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        let states = self.states.get();
        (0..2).filter(move |half| states[*half] == HalfState::Member)
    }

    /// Members are made durable and alike.
    fn settle<P: Payload>(&self) -> std::result::Result<(), OpenError>
    where
        M: Media<P>,
    {
        // What an earlier session has written without a flush is not built on.
        self.flush()?;
        // A mark of which one page is written is lost with that page.
        for half in self.members() {
            let mark = self.marks.get()[half];
            if mark != Mark::NEVER
                && let Err(error) = mark::complete(self.media(half), self.log.uuid, &mark)
            {
                self.lose(half, error)?;
            }
        }
        self.level_members()
    }

    fn level_members<P: Payload>(&self) -> std::result::Result<(), OpenError>
    where
        M: Media<P>,
    {
        if self.states.get() == [HalfState::Member; 2] {
            let levelled = level([self.media(0), self.media(1)], self.log, self.mutants)?;
            let before = self.levelled.get().pages;
            let pages = [0, 1].map(|half| before[half] + levelled.pages[half]);
            self.levelled.set(Levelled { pages, ..levelled });
            for half in (0..2).filter(|half| levelled.failed[*half]) {
                self.lose(half, Error::other("it could not be made like the other half"))?;
            }
        }
        self.lose_silent()?;
        Ok(())
    }

    /// A half that was overdue for whatever reason is dropped.
    fn lose_silent<P>(&self) -> Result<()>
    where
        M: Media<P>,
    {
        for half in self.members() {
            if self.media(half).is_silent() {
                self.lose(half, overdue())?;
            }
        }
        Ok(())
    }

    fn set(&self, half: usize, state: HalfState) {
        let mut states = self.states.get();
        states[half] = state;
        self.states.set(states);
    }

    fn mark<P>(&self, half: usize, mark: Mark) -> Result<()>
    where
        M: Media<P>,
    {
        mark::write(self.media(half), self.log.uuid, &mark)?;
        let mut marks = self.marks.get();
        marks[half] = mark;
        self.marks.set(marks);
        Ok(())
    }

    /// A half says that it is alone, with a new generation.
    fn mark_alone<P>(&self, half: usize) -> Result<()>
    where
        M: Media<P>,
    {
        let newest = self.marks.get().map(|mark| mark.generation).into_iter().max();
        let generation = newest.unwrap_or(0) + 1;
        let was = self.marks.get()[half].half;
        let is = if was == 0 { self.nonce } else { was };
        let mark = Mark { state: MarkState::Alone, generation, pair: self.nonce, half: is };
        self.mark(half, mark)
    }

    /// A half can't be written: the other one goes on alone, once it says so. Without another one this
    /// gives the error back.
    fn lose<P>(&self, half: usize, why: Error) -> Result<()>
    where
        M: Media<P>,
    {
        self.set(half, HalfState::Gone);
        let other = 1 - half;
        if self.states.get()[other] != HalfState::Member {
            return Err(why);
        }
        self.missing.borrow_mut()[half] = Some(why.into());
        let marked = self.mark_alone(other);
        if marked.is_err() {
            self.set(other, HalfState::Gone);
        }
        marked
    }

    fn each<P>(&self, write: impl Fn(&Asked<'_, M>) -> Result<()>) -> Result<()>
    where
        M: Media<P>,
    {
        for half in self.members() {
            if let Err(error) = write(self.media(half)) {
                self.lose(half, error)?;
            }
        }
        self.members().next().map(drop).ok_or_else(none_left)
    }

    /// A half that would be filled is left as it is, and not used: for a session that will not last.
    ///
    /// # Errors
    /// If the half that counts fails.
    pub fn without_filling<P>(self) -> std::result::Result<Self, OpenError>
    where
        M: Media<P>,
    {
        if let Some(half) = (0..2).find(|half| self.states.get()[*half] == HalfState::Filling) {
            self.set(half, HalfState::Gone);
            if self.marks.get()[1 - half].state != MarkState::Alone {
                self.mark_alone(1 - half)?;
            }
        }
        Ok(self)
    }

    /// The log has been opened: the other half begins to be filled, if there is one to fill.
    ///
    /// # Errors
    /// If the half that counts fails.
    ///
    /// # Panics
    /// If a half that counts was not given.
    pub fn finish<P: Payload>(
        self,
        log: &mut WriteLog<P>,
    ) -> std::result::Result<Mirror<P>, OpenError>
    where
        M: Media<P>,
    {
        if let Some(half) = (0..2).find(|half| self.states.get()[*half] == HalfState::Filling) {
            let source = 1 - half;
            let mark = self.marks.get()[source];
            if mark.state != MarkState::Alone || mark == Mark::NEVER {
                self.mark_alone(source)?;
            }
            if let Err(error) = self.fill(half, self.media(source)) {
                self.set(half, HalfState::Gone);
                self.missing.borrow_mut()[half] = Some(error.into());
            }
        }
        self.lose_silent()?;
        let (states, marks) = (self.states.get(), self.marks.get());
        let old = if states.contains(&HalfState::Filling) { log.unretired() } else { Vec::new() };
        let uuid = self.log.uuid;
        let missing = self.missing.into_inner();
        Ok(Mirror::new((uuid, self.nonce), states, marks, (old, missing), self.mutants))
    }

    /// A half becomes one that is filled: nothing that it holds is believed any more.
    fn fill<P>(&self, half: usize, source: &Asked<'_, M>) -> Result<()>
    where
        M: Media<P>,
    {
        let target = self.media(half);
        let generation = self.marks.get()[1 - half].generation;
        // Another one than the source's, which may be of this start.
        let (pair, is) = (self.nonce, !self.nonce);
        self.mark(half, Mark { state: MarkState::Filling, generation, pair, half: is })?;
        if self.blank[half] {
            // With this it is known as a half of the log; without a mark it would be known as all of it.
            for page in 0..2 {
                target.write_page(page * BLOCK_BYTES, &self.log.encode())?;
            }
            target.flush()?;
        }
        // A device that is empty at its begin may have been a half once.
        for segment in 0..self.log.segments {
            target.write_page(offset_of(segment * SEGMENT_PAGES), &MetaPage::zeroed())?;
        }
        target.write_pages(0, &self.front(source)?)?;
        target.flush()
    }

    /// The pages before the mark. There are two of each: for one that can't be read there is the other
    /// one.
    fn front<P>(&self, source: &Asked<'_, M>) -> Result<Vec<MetaPage>>
    where
        M: Media<P>,
    {
        let mut pages = vec![MetaPage::zeroed(); MARK_PAGE as usize];
        read_each(source, 0, &mut pages)?;
        let unreadable = ChunkHeader::unreadable();
        for both in pages.chunks_exact_mut(2) {
            for (page, other) in [(0, 1), (1, 0)] {
                if both[page] == unreadable {
                    both[page] = both[other].clone();
                }
            }
        }
        pages[..DIRECTORY_PAGE as usize].fill(self.log.encode());
        Ok(pages)
    }
}

fn none_left() -> Error {
    Error::other("no half of the write log is left")
}

impl<P: Payload, M: Media<P>> Media<P> for Pair<'_, M> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<()> {
        let mut failed = none_left();
        for half in self.members() {
            match self.media(half).read_pages(offset, pages) {
                Ok(()) => return Ok(()),
                Err(error) => failed = error,
            }
        }
        if pages.len() < 2 || self.members().count() < 2 {
            return Err(failed);
        }
        // Each half has pages that can't be read; the other one may have those.
        for (n, page) in (0..).zip(pages) {
            self.read_pages(offset + n * BLOCK_BYTES, std::slice::from_mut(page))?;
        }
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> Result<P> {
        let mut failed = none_left();
        for half in self.members() {
            match self.media(half).read_data(offset, blocks) {
                Ok(data) => return Ok(data),
                Err(error) => failed = error,
            }
        }
        if blocks < 2 || self.members().count() < 2 {
            return Err(failed);
        }
        let all = P::alloc(blocks);
        for n in 0..u64::from(blocks) {
            let at = n * BLOCK_BYTES;
            all.copy_from(at, &self.read_data(offset + at, 1)?, 0, BLOCK_BYTES);
        }
        Ok(all)
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> Result<()> {
        self.each(|half| half.write_page(offset, page))
    }

    fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> Result<()> {
        self.each(|half| half.write_pages(offset, pages))
    }

    fn level(&self) -> std::result::Result<(), OpenError> {
        self.level_members()
    }

    fn skips_starts(&self) -> u64 {
        let fills = (0..2).find(|half| self.states.get()[*half] == HalfState::Filling);
        let Some(half) = fills else { return 0 };
        // Without a directory it is told by chance: a given-up history that filled halves itself may be ahead.
        let newest = |half: usize| {
            let found = directory::<P>(self.media(half), self.log.uuid);
            found.ok().and_then(|found| found.stamps.into_iter().max()).map_or(0, start_of)
        };
        newest(half).saturating_sub(newest(1 - half)) + (self.nonce >> STARTS_SKIPPED_SHIFT)
    }

    fn flush(&self) -> Result<()> {
        self.each(|half| half.flush())
    }
}
