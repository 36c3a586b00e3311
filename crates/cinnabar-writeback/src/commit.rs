//! A volume's chunks on their way to the device, and who waits for them.
//!
//! Chunks have consecutive numbers. A write is acknowledged when its chunk and all lower ones have been
//! written; a flush when they are durable. While a chunk is being written the next one gathers what
//! comes: this is the group commit.

use crate::format::chunk::{ChunkHeader, Entry};
use crate::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Answer, IoOp, RequestId, Slice};
use std::collections::VecDeque;

/// A chunk in RAM.
#[derive(Debug)]
pub(crate) struct Chunk<P> {
    pub(crate) number: u64,
    /// The number before it; 0 if there is none that is not retired.
    pub(crate) before: u64,
    pub(crate) session: u32,
    pub(crate) epoch: u64,
    pub(crate) opening: u64,
    /// Slot of its header.
    pub(crate) first: u32,
    pub(crate) entries: Vec<Entry>,
    /// Its pages of data: memory and byte in it.
    pub(crate) data: Vec<(P, u64)>,
    /// If its writes are acknowledged from the write memory: the page of each entry there.
    pub(crate) kept: Option<Vec<u32>>,
    /// When it was begun.
    pub(crate) since: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is added any more.
    Sealed,
    InFlight {
        fua: bool,
    },
    Written {
        fua: bool,
    },
}

impl<P> Chunk<P> {
    /// Which of its entries has this page of data.
    pub(crate) fn entry_of(&self, page: usize) -> usize {
        if self.entries.len() == self.data.len() {
            return page;
        }
        let pages = (0..).zip(&self.entries).filter(|(_, e)| matches!(e, Entry::Data { .. }));
        pages.map(|(index, _)| index).nth(page).expect("a page of data has an entry")
    }
}

impl<P: Clone> Chunk<P> {
    /// The write of a chunk: header and data.
    fn write(&self, of: &Identity, durable: u64, fua: bool) -> IoOp<P> {
        let header = ChunkHeader {
            uuid: of.uuid,
            volume: of.place,
            incarnation: of.incarnation,
            session: self.session,
            opening: self.opening,
            number: self.number,
            epoch: self.epoch,
            durable,
            slot: self.first,
            entries: self.entries.clone(),
        };
        let page = |(data, at): &(P, u64)| Slice { data: data.clone(), at: *at, len: 4096 };
        IoOp::WriteMeta {
            offset: crate::format::offset_of(self.first),
            pages: vec![header.encode()],
            data: self.data.iter().map(page).collect(),
            fua,
        }
    }
}

/// Whose chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) uuid: [u8; 16],
    pub(crate) place: u16,
    pub(crate) incarnation: u64,
}

/// A write or flush that waits.
#[derive(Debug)]
pub(crate) struct Waiter<P> {
    /// Of the last chunk that it needs.
    number: u64,
    pub(crate) who: Who<P>,
    /// Not acknowledged before, so that writers are slowed down.
    not_before: Instant,
}

/// Who waits.
#[derive(Debug)]
pub(crate) enum Who<P> {
    /// A guest's request.
    Guest {
        id: RequestId,
        answer: Answer<P>,
        /// The next epoch begins with the answer.
        closes_epoch: bool,
    },
    /// The destage, for chunks to be durable.
    Destage,
    /// Nothing but the write itself.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Commits<P> {
    /// Being filled.
    pub(crate) open: Option<Chunk<P>>,
    /// Sealed, being written, or written with a lower one still being written; in order.
    chunks: VecDeque<Chunk<P>>,
    /// The newest number given out.
    pub(crate) last: u64,
    /// All chunks up to it are written.
    pub(crate) complete: u64,
    /// All chunks up to it are durable.
    pub(crate) durable: u64,
    /// Chunks behind this one are in the write memory: writes are acknowledged once it is complete.
    /// `None`: they are acknowledged when they have been written.
    kept_behind: Option<u64>,
    /// Of chunks in the write memory, those up to this one are to be written.
    released: u64,
    /// Pages of the write memory whose chunks have been written.
    pub(crate) written_pages: Vec<u32>,
    /// For chunks to be written.
    writes: VecDeque<Waiter<P>>,
    /// For chunks to be durable.
    flushes: VecDeque<Waiter<P>>,
    mutants: Mutants,
}

impl<P: Clone> Commits<P> {
    /// With chunks up to `last` durable.
    pub(crate) fn new(last: u64, mutants: Mutants) -> Self {
        Self {
            open: None,
            chunks: VecDeque::new(),
            last,
            complete: last,
            durable: last,
            kept_behind: None,
            released: last,
            written_pages: Vec::new(),
            writes: VecDeque::new(),
            flushes: VecDeque::new(),
            mutants,
        }
    }

    /// Begins a chunk. The one before must be sealed.
    pub(crate) fn begin(
        &mut self,
        (number, session): (u64, u32),
        (epoch, since): (u64, Instant),
        (first, opening): (u32, u64),
    ) {
        assert!(self.open.is_none() && number > self.last, "chunks are numbered in order");
        let before = std::mem::replace(&mut self.last, number);
        let (entries, data) = (Vec::new(), Vec::new());
        let (kept, state) = (self.kept_behind.map(|_| Vec::new()), State::Sealed);
        self.open = Some(Chunk {
            number,
            before,
            session,
            epoch,
            opening,
            first,
            entries,
            data,
            kept,
            since,
            state,
        });
    }

    /// Whether chunks begun from now on are acknowledged from the write memory.
    pub(crate) fn keeps(&self) -> bool {
        self.kept_behind.is_some()
    }

    /// Chunks begun from now on are acknowledged from the write memory, or not.
    pub(crate) fn keep(&mut self, keeps: bool) {
        if keeps != self.keeps() {
            self.release();
            let early = self.mutants.is(Mutant::AckWithoutMemory);
            self.kept_behind = keeps.then_some(if early { 0 } else { self.last });
        }
    }

    /// Whether chunks are to stay in the write memory.
    pub(crate) fn holds_back(&self) -> bool {
        self.released != self.last && self.keeps()
    }

    /// All chunks so far are to be written.
    pub(crate) fn release(&mut self) {
        self.seal();
        self.released = self.last;
    }

    /// Chunks up to the newest one that is full are to be written.
    pub(crate) fn release_full(&mut self) {
        let newest = self.chunks.back().map_or(0, |chunk| chunk.number);
        self.released = self.released.max(newest);
    }

    /// Chunks that were begun before this instant are to be written. Says when the oldest of the others
    /// was begun.
    pub(crate) fn release_old(&mut self, before: Instant) -> Option<Instant> {
        if self.released == self.last {
            return None;
        }
        let held = self.chunks.iter().chain(&self.open).filter(|c| c.number > self.released);
        let old = held.clone().take_while(|chunk| chunk.since <= before).last();
        let next = held.clone().find(|chunk| chunk.since > before).map(|chunk| chunk.since);
        self.released = old.map_or(self.released, |chunk| chunk.number);
        next
    }

    /// When the oldest chunk was begun that is in the write memory.
    pub(crate) fn kept_since(&self) -> Option<Instant> {
        let mut all = self.chunks.iter().chain(&self.open);
        all.find(|chunk| chunk.kept.is_some()).map(|chunk| chunk.since)
    }

    /// The chunk of a slot, if a write may still take the place of what is there: it is in the write
    /// memory, of this epoch, and was not sent.
    pub(crate) fn replaceable(&mut self, slot: u32, epoch: u64) -> Option<&mut Chunk<P>> {
        let any_epoch = self.mutants.is(Mutant::ReplacedAcrossEpochs);
        let of = |chunk: &&mut Chunk<P>| {
            let end = chunk.first + chunk.data.len() as u32;
            (chunk.first + 1..=end).contains(&slot)
        };
        let chunk = self.chunks.iter_mut().chain(&mut self.open).find(of)?;
        let fits = chunk.epoch == epoch || any_epoch;
        (fits && chunk.kept.is_some() && chunk.state == State::Sealed).then_some(chunk)
    }

    /// Nothing is added to the open chunk any more.
    pub(crate) fn seal(&mut self) {
        if let Some(chunk) = self.open.take() {
            assert!(!chunk.entries.is_empty(), "a chunk is begun for an entry");
            self.chunks.push_back(chunk);
        }
    }

    /// A write waits for the newest chunk.
    pub(crate) fn await_written(&mut self, who: Who<P>, not_before: Instant) {
        self.writes.push_back(Waiter { number: self.last, who, not_before });
    }

    /// A flush waits for the newest chunk, which is sealed.
    pub(crate) fn await_durable(&mut self, who: Who<P>, not_before: Instant) {
        self.release();
        self.flushes.push_back(Waiter { number: self.last, who, not_before });
    }

    /// Whether a chunk waits for others to be written.
    pub(crate) fn has_sealed(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.state == State::Sealed)
    }

    /// Whether everything is durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable == self.last
    }

    /// Whether nothing of this volume is in RAM only, and nobody waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.open.is_none()
            && self.chunks.is_empty()
            && self.writes.is_empty()
            && self.flushes.is_empty()
    }

    /// The next write to be sent, with its chunk's number. A chunk being filled goes when no other
    /// is under way.
    pub(crate) fn next_write(&mut self, of: &Identity, most: usize) -> Option<(u64, IoOp<P>)> {
        let under_way =
            self.chunks.iter().filter(|chunk| matches!(chunk.state, State::InFlight { .. }));
        let under_way = under_way.count();
        if under_way >= most {
            return None;
        }
        let released = self.released;
        let may = |chunk: &Chunk<P>| chunk.kept.is_none() || chunk.number <= released;
        let sealed = |chunk: &Chunk<P>| chunk.state == State::Sealed && may(chunk);
        let open = self.open.as_ref().is_some_and(may);
        if under_way == 0 && open && !self.chunks.iter().any(sealed) {
            self.seal();
        }
        let at = self.chunks.iter().position(sealed)?;
        let (durable, last) = (self.durable, self.last);
        let awaited = self.flushes.back().is_some_and(|waiter| waiter.number >= last);
        let chunk = &mut self.chunks[at];
        // One write for a commit: it is durable as soon as it has ended.
        let fua = awaited
            && chunk.number == last
            && (chunk.before == durable || self.mutants.is(Mutant::FuaAlone));
        chunk.state = State::InFlight { fua };
        if self.mutants.is(Mutant::MemoryClearedEarly) {
            self.written_pages.extend(chunk.kept.iter_mut().flat_map(std::mem::take));
        }
        Some((chunk.number, chunk.write(of, durable, fua)))
    }

    /// A chunk has been written.
    pub(crate) fn written(&mut self, number: u64) {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.number == number);
        let chunk = chunk.expect("a chunk under way is known");
        let State::InFlight { fua } = chunk.state else { panic!("a chunk is written once") };
        chunk.state = State::Written { fua };
        self.written_pages.extend(chunk.kept.take().into_iter().flatten());
        while let Some(chunk) = self.chunks.front()
            && let State::Written { fua } = chunk.state
        {
            self.complete = chunk.number;
            if fua && (self.durable == chunk.before || self.mutants.is(Mutant::FuaAlone)) {
                self.durable = chunk.number;
            }
            self.chunks.pop_front();
        }
    }

    /// Whether a flush of the device would make a waiter ready.
    pub(crate) fn wants_flush(&self) -> bool {
        let first = self.flushes.front();
        let early = self.mutants.is(Mutant::FlushBeforeCompletion);
        let written = |waiter: &Waiter<P>| waiter.number <= self.complete || early;
        first.is_some_and(|waiter| waiter.number > self.durable && written(waiter))
    }

    /// A flush of the device has ended that began when chunks up to `number` were written.
    pub(crate) fn flushed(&mut self, number: u64) {
        self.durable = self.durable.max(number);
    }

    /// Who need not wait any longer. `Err`: the next one only has to wait for this instant.
    pub(crate) fn ready(&mut self, now: Instant) -> Option<Result<Who<P>, Instant>> {
        let (written, durable) = self.reached();
        for (queue, reached) in [(&mut self.writes, written), (&mut self.flushes, durable)] {
            if let Some(waiter) = queue.front().filter(|waiter| waiter.number <= reached)
                && waiter.not_before <= now
            {
                return queue.pop_front().map(|waiter| Ok(waiter.who));
            }
        }
        let write = self.writes.front().filter(|waiter| waiter.number <= written);
        let flush = self.flushes.front().filter(|waiter| waiter.number <= durable);
        write.into_iter().chain(flush).map(|waiter| waiter.not_before).min().map(Err)
    }

    /// Up to which chunk all are written, and all are durable.
    fn reached(&self) -> (u64, u64) {
        let durable =
            if self.mutants.is(Mutant::FlushUndurable) { self.complete } else { self.durable };
        let highest = || {
            let written = |chunk: &&Chunk<P>| matches!(chunk.state, State::Written { .. });
            self.chunks.iter().filter(written).map(|chunk| chunk.number).max()
        };
        let written = if self.mutants.is(Mutant::AckBeforeChunk) {
            self.last
        } else if self.mutants.is(Mutant::AckOutOfOrder) {
            highest().unwrap_or(self.complete)
        } else if self.kept_behind.is_some_and(|behind| behind <= self.complete) {
            self.last
        } else {
            self.complete
        };
        (written, durable)
    }

    /// Everybody who waits, with what they get instead: the device has failed.
    pub(crate) fn give_up(&mut self) -> Vec<Who<P>> {
        self.open = None;
        self.chunks.clear();
        self.writes.drain(..).chain(self.flushes.drain(..)).map(|waiter| waiter.who).collect()
    }

    /// The data of a slot, if its chunk is still in RAM.
    pub(crate) fn data_of(&self, slot: u32) -> Option<&(P, u64)> {
        let chunks = self.chunks.iter().chain(self.open.as_ref());
        chunks
            .filter(|chunk| chunk.first < slot)
            .find_map(|chunk| chunk.data.get((slot - chunk.first - 1) as usize))
    }
}
