//! The write memory in use: which of its pages are free, and what is stored when.

use super::format::{MemoryEntry, data_at, entry_at};
use super::{ENTRY_BYTES, MemoryOp};
use crate::bounds::Bound;
use crate::commit::{Chunk, Identity};
use crate::format::chunk::Entry;
use crate::log::WriteLog;
use crate::mutant::{Mutant, Mutants};
use crate::seam::Action;
use cinnabar_engine::Payload;
use cinnabar_engine::units::{BLOCK_BYTES, Instant};
use std::collections::VecDeque;

/// Where an entry of a chunk is in the write memory, or is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Which of the chunk's entries.
    pub(crate) index: usize,
    /// The page that holds its older version.
    pub(crate) replaces: Option<u32>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Kept {
    nonce: u64,
    pages: u32,
    /// The one that was freed first is used first.
    free: VecDeque<u32>,
    stamp: u64,
    mutants: Mutants,
}

/// What the write memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStatus {
    /// Bytes that it can hold.
    pub size_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Since when its oldest write is there, in ns.
    pub age_ns: u64,
}

impl Kept {
    pub(super) fn new(nonce: u64, pages: u32, mutants: Mutants) -> Self {
        Self { nonce, pages, free: (0..pages).collect(), stamp: 0, mutants }
    }

    pub(crate) fn status(&self, age_ns: u64) -> MemoryStatus {
        let used = u64::from(self.pages) - self.free.len() as u64;
        let size_bytes = u64::from(self.pages) * BLOCK_BYTES;
        MemoryStatus { size_bytes, used_bytes: used * BLOCK_BYTES, age_ns }
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Whether so many pages are used that chunks should go to the device.
    pub(crate) fn is_short(&self) -> bool {
        self.free.len() * 2 < self.pages as usize
    }

    /// Stores an entry of a chunk, and its data; says where. Room was checked before.
    pub(crate) fn publish<P: Clone>(
        &mut self,
        of: &Identity,
        chunk: &Chunk<P>,
        spot: Spot,
        data: Option<(P, u64)>,
        actions: &mut Vec<Action<P>>,
    ) -> u32 {
        let in_place = self.mutants.is(Mutant::ReplacedInPlace).then_some(spot.replaces).flatten();
        let page = in_place.unwrap_or_else(|| self.free.pop_front().expect("room was checked"));
        self.stamp += 1;
        if let Some((data, at)) = data {
            let to = data_at(self.pages, page);
            actions.push(Action::Memory(MemoryOp::Data { to, data, at }));
        }
        let bytes = self.entry(of, chunk, spot.index, chunk.entries[spot.index]);
        actions.push(Action::Memory(MemoryOp::Entry { to: entry_at(page), bytes }));
        if let Some(older) = spot.replaces.filter(|older| *older != page) {
            self.clear(older, actions);
        }
        page
    }

    fn entry<P>(
        &self,
        of: &Identity,
        chunk: &Chunk<P>,
        index: usize,
        entry: Entry,
    ) -> [u8; ENTRY_BYTES] {
        MemoryEntry {
            nonce: self.nonce,
            stamp: self.stamp,
            place: of.place,
            incarnation: of.incarnation,
            session: chunk.session,
            opening: chunk.opening,
            number: chunk.number,
            epoch: chunk.epoch,
            slot: chunk.first,
            index: index as u16,
            entry,
        }
        .encode()
    }

    /// A page is not needed any more.
    pub(crate) fn clear<P>(&mut self, page: u32, actions: &mut Vec<Action<P>>) {
        if !self.mutants.is(Mutant::MemoryNotCleared) {
            actions.push(Action::Memory(MemoryOp::Clear { to: entry_at(page) }));
        }
        self.free.push_back(page);
    }
}

impl<P: Payload> WriteLog<P> {
    /// Chunks in the write memory go to the device with age, and when it is short.
    pub(crate) fn release_chunks(&mut self, place: u16) {
        let Some(memory) = &self.memory else { return };
        let (short, age, now) = (memory.is_short(), self.config.memory_age_ns, self.now);
        let commits = &mut self.volume(place).commits;
        if short {
            commits.release_full();
        }
        if let Some(since) = commits.release_old(Instant(now.0.saturating_sub(age))) {
            self.wake_at(since.plus_ns(age));
        }
    }

    /// Whether so many entries of a volume have room in the write memory. If not, all chunks that are
    /// only there are sent.
    pub(crate) fn has_memory(&mut self, place: u16, entries: u64) -> bool {
        let Some(memory) = &self.memory else { return true };
        assert!(entries <= u64::from(memory.pages()), "a memory holds each request");
        if !self.volumes[usize::from(place)].as_ref().is_some_and(|v| v.commits.keeps())
            || entries <= memory.free_count().into()
        {
            return true;
        }
        self.crossings.note_if(true, Bound::Memory);
        let held = self.volumes.iter_mut().flatten().filter(|volume| volume.commits.holds_back());
        let mut found = false;
        for volume in held {
            volume.commits.release();
            found = true;
        }
        if found {
            self.touch_all();
        }
        false
    }

    /// Chunks have been written: what is in memory of them is not needed any more.
    pub(crate) fn clear_written(&mut self, place: u16) {
        let Self { volumes, memory, actions, segments, .. } = self;
        let volume = volumes[usize::from(place)].as_mut().expect("a volume at this place");
        for page in volume.commits.written_pages.drain(..) {
            let memory = memory.as_mut().expect("it has held them");
            memory.clear(page, actions);
            segments.made_room = true;
        }
    }
}
