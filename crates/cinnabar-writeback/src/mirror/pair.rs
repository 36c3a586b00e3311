//! The devices of a log while it is opened: which of them count, and reads and writes of those that do.

use super::Mirror;
use super::level::{Levelled, level};
use super::mark::{self, Mark, MarkState};
use super::plan::{Found, HalfState, plan};
use crate::format::superblock::{Superblock, SuperblockError};
use crate::format::{MARK_PAGE, SEGMENT_PAGES, bytes_of, offset_of};
use crate::log::WriteLog;
use crate::mutant::Mutants;
use crate::recover::{Media, OpenError};
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use std::cell::Cell;
use std::io::{Error, Result};

/// One of the devices that were given.
#[derive(Debug)]
pub struct Half<'a, M> {
    /// It.
    pub media: &'a M,
    /// Its size.
    pub bytes: u64,
}

/// The halves of a log that is being opened. As a device it is what its members have together: a half
/// that can't be written is dropped, and what was written counts once the other one says so.
#[derive(Debug)]
pub struct Pair<'a, M> {
    halves: [Option<Half<'a, M>>; 2],
    log: Superblock,
    states: Cell<[HalfState; 2]>,
    marks: Cell<[Mark; 2]>,
    /// There was nothing on it.
    blank: [bool; 2],
    /// What a half that is filled now has in common with the other one.
    nonce: u64,
    levelled: Levelled,
    mutants: Mutants,
}

/// Finds out which of the devices given count; `None`: one is not there. Members are levelled, durably.
/// A device without a write log must hold nothing that counts. `pair` is drawn at random.
///
/// # Errors
/// If none of them is known to hold everything, if they don't belong together, or fail.
pub fn start<P: Payload, M: Media<P>>(
    halves: [Option<Half<'_, M>>; 2],
    pair: u64,
    mutants: Mutants,
) -> std::result::Result<Pair<'_, M>, OpenError> {
    let (mut found, mut logs) = ([Found::Absent; 2], [None; 2]);
    let mut damaged = None;
    for (n, half) in halves.iter().enumerate() {
        let Some(Half { media, bytes }) = half else { continue };
        let Ok(superblock) = superblock_of(*media)? else { continue };
        let Some(log) = superblock else {
            found[n] = Found::Blank;
            continue;
        };
        let (have, need) = (*bytes, bytes_of(log.segments));
        if have < need {
            damaged = Some(OpenError::Smaller { have, need });
            continue;
        }
        match mark::read(*media, log.uuid) {
            Ok(mark) => (found[n], logs[n]) = (Found::Log(mark.unwrap_or(Mark::NEVER)), Some(log)),
            Err(error) => damaged = Some(error),
        }
    }
    if let [Some(a), Some(b)] = logs
        && a != b
    {
        return Err(OpenError::OtherLog);
    }
    let states = match plan(found, mutants) {
        Ok(states) => states,
        Err(error) => return Err(damaged.unwrap_or(error)),
    };
    let Some(log) = logs[0].or(logs[1]) else { return Err(OpenError::HalfMissing) };
    let marks = found.map(|found| if let Found::Log(mark) = found { mark } else { Mark::NEVER });
    let blank = found.map(|found| found == Found::Blank);
    let need = bytes_of(log.segments);
    for (half, _) in halves.iter().zip(states).filter(|(_, state)| *state != HalfState::Gone) {
        let have = half.as_ref().map_or(0, |half| half.bytes);
        if have < need {
            return Err(OpenError::MirrorSmaller { have, need });
        }
    }
    let levelled = Levelled::default();
    let (states, marks) = (Cell::new(states), Cell::new(marks));
    let nonce = pair;
    let mut all = Pair { halves, log, states, marks, blank, nonce, levelled, mutants };
    all.settle::<P>()?;
    Ok(all)
}

/// The superblock of a half, from whichever of its pages; `Ok(None)`: it has none, `Err`: it can't be
/// read.
fn superblock_of<P>(
    media: &impl Media<P>,
) -> std::result::Result<Result<Option<Superblock>>, OpenError> {
    let mut unreadable = None;
    for page in 0..2 {
        let mut bytes = [MetaPage::zeroed()];
        if let Err(error) = media.read_pages(page * BLOCK_BYTES, &mut bytes) {
            unreadable = Some(error);
            continue;
        }
        match Superblock::decode(&bytes[0]) {
            Ok(superblock) => return Ok(Ok(Some(superblock))),
            Err(SuperblockError::Foreign) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(unreadable.map_or(Ok(None), Err))
}

impl<M> Pair<'_, M> {
    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.log.segments)
    }

    /// What each half is.
    pub fn states(&self) -> [HalfState; 2] {
        self.states.get()
    }

    /// What was written to either half because the other one had it.
    pub const fn levelled(&self) -> Levelled {
        self.levelled
    }

    fn media(&self, half: usize) -> &M {
        self.halves[half].as_ref().expect("a half that counts is there").media
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        let states = self.states.get();
        (0..2).filter(move |half| states[*half] == HalfState::Member)
    }

    /// Members are made durable and alike.
    fn settle<P: Payload>(&mut self) -> std::result::Result<(), OpenError>
    where
        M: Media<P>,
    {
        // What an earlier session has written without a flush is not built on.
        self.flush()?;
        if self.states.get() == [HalfState::Member; 2] {
            let halves = [self.media(0), self.media(1)];
            self.levelled = level(halves, self.log, self.mutants)?;
            for half in (0..2).filter(|half| self.levelled.failed[*half]) {
                self.lose(half)?;
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
        let mark = Mark { state: MarkState::Alone, generation, pair: self.nonce };
        self.mark(half, mark)
    }

    /// A half can't be written: the other one goes on alone, once it says so.
    fn lose<P>(&self, half: usize) -> Result<()>
    where
        M: Media<P>,
    {
        self.set(half, HalfState::Gone);
        let other = 1 - half;
        if self.states.get()[other] != HalfState::Member {
            return Err(none_left());
        }
        let marked = self.mark_alone(other);
        if marked.is_err() {
            self.set(other, HalfState::Gone);
        }
        marked
    }

    fn each<P>(&self, write: impl Fn(&M) -> Result<()>) -> Result<()>
    where
        M: Media<P>,
    {
        for half in self.members() {
            if write(self.media(half)).is_err() {
                self.lose(half)?;
            }
        }
        self.members().next().map(drop).ok_or_else(none_left)
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
            // Later uses of segments are told apart from all that a stale half may hold.
            log.segments.skip(self.nonce >> 32);
            if self.fill(half, self.media(source)).is_err() {
                self.set(half, HalfState::Gone);
            }
        }
        let (states, marks) = (self.states.get(), self.marks.get());
        let old = if states.contains(&HalfState::Filling) { log.unretired() } else { Vec::new() };
        let uuid = self.log.uuid;
        Ok(Mirror::new((uuid, self.nonce), states, marks, old, self.mutants))
    }

    /// A half becomes one that is filled: nothing that it holds is believed any more.
    fn fill<P>(&self, half: usize, source: &M) -> Result<()>
    where
        M: Media<P>,
    {
        let target = self.media(half);
        let generation = self.marks.get()[1 - half].generation;
        self.mark(half, Mark { state: MarkState::Filling, generation, pair: self.nonce })?;
        if self.blank[half] {
            // With this it is known as a half of the log; without a mark it would be known as all of it.
            for page in 0..2 {
                target.write_page(page * BLOCK_BYTES, &self.log.encode())?;
            }
            target.flush()?;
        }
        if !self.blank[half] {
            for segment in 0..self.log.segments {
                target.write_page(offset_of(segment * SEGMENT_PAGES), &MetaPage::zeroed())?;
            }
        }
        let mut pages = vec![MetaPage::zeroed(); MARK_PAGE as usize];
        source.read_pages(0, &mut pages)?;
        target.write_pages(0, &pages)?;
        target.flush()
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

    fn flush(&self) -> Result<()> {
        self.each(Media::flush)
    }
}
