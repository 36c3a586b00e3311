//! The SSD: what was written is visible once it has ended, and durable after a flush.

use super::memory::Mem;
use super::rng::Rng;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::{IoDone, IoId, IoOp, Slices};
use cinnabar_writeback::recover::Media;
use rand::RngExt;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

type Page = Vec<u8>;

/// A write, by pages.
#[derive(Clone, Debug)]
struct Write {
    pages: Vec<(u64, Page)>,
}

#[derive(Debug)]
enum Io {
    /// Durable when it ends, or not; with pages that come back.
    Write(Write, bool, Vec<MetaPage>),
    Read(u64, Slices<Mem>),
    ReadMeta(u64, Vec<MetaPage>),
    /// Makes so many writes durable.
    Flush(usize),
}

#[derive(Debug, Default)]
struct State {
    durable: BTreeMap<u64, Page>,
    /// Ended, not durable; in the order in which they ended.
    volatile: Vec<Write>,
    under_way: Vec<(IoId, Io)>,
    /// Pages of which a read has failed: the next one does not.
    failed: BTreeSet<u64>,
    /// Pages that can't be read before they are written.
    unreadable: BTreeSet<u64>,
    flushes: u64,
    fua_writes: u64,
    writes: u64,
}

/// The daemon is killed while it opens the log.
#[derive(Debug, Default)]
struct Kill {
    /// So many pages are written before.
    left: Cell<Option<u32>>,
    dead: Cell<bool>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ssd {
    state: RefCell<State>,
    kill: Rc<Kill>,
    /// So many I/Os while the log is opened; then it fails.
    fails: Cell<Option<u32>>,
    /// What it fails with then: it does not answer.
    silent: Cell<bool>,
    /// It was asked, and did not answer.
    asked: Cell<bool>,
    /// Which superblock, and which page of the mark, never rots.
    spared: Cell<u64>,
}

impl State {
    fn page(&self, page: u64) -> Page {
        let newest = self.volatile.iter().rev().find_map(|write| {
            write.pages.iter().find(|(at, _)| *at == page).map(|(_, bytes)| bytes.clone())
        });
        newest.or_else(|| self.durable.get(&page).cloned()).unwrap_or_else(|| vec![0; 4096])
    }

    /// What is written can be read again.
    fn heal(&mut self, write: &Write) {
        for (page, _) in &write.pages {
            self.unreadable.remove(page);
        }
    }

    fn make_durable(&mut self, count: usize) {
        for write in self.volatile.drain(..count) {
            self.durable.extend(write.pages);
        }
    }
}

impl Ssd {
    pub(crate) fn submit(&self, id: IoId, op: IoOp<Mem>) {
        let mut state = self.state.borrow_mut();
        let io = match op {
            IoOp::WriteMeta { .. } | IoOp::Write { .. } => {
                let (offset, pages, data, fua) = match op {
                    IoOp::WriteMeta { offset, pages, data, fua } => (offset, pages, data, fua),
                    IoOp::Write { offset, data, fua } => (offset, Vec::new(), data, fua),
                    _ => unreachable!("just looked at"),
                };
                let mut all: Vec<(u64, Page)> = Vec::new();
                let metas = pages.iter().map(|page| page.0.to_vec());
                let blocks = data.iter().flat_map(|slice| {
                    assert_eq!(slice.len % 4096, 0, "whole pages");
                    let page = |n| slice.data.bytes(slice.at + n * 4096, 4096);
                    (0..slice.len / 4096).map(page)
                });
                all.extend((offset / 4096..).zip(metas.chain(blocks)));
                for (_, other) in &state.under_way {
                    if let Io::Write(write, ..) = other {
                        let same = write.pages.iter().any(|(at, _)| all.iter().any(|a| a.0 == *at));
                        assert!(!same, "two writes of a page under way");
                    }
                }
                state.writes += 1;
                state.fua_writes += u64::from(fua);
                Io::Write(Write { pages: all }, fua, pages)
            }
            IoOp::Read { offset, data } => Io::Read(offset / 4096, data),
            IoOp::ReadMeta { offset, pages } => Io::ReadMeta(offset / 4096, pages),
            IoOp::Flush => {
                state.flushes += 1;
                Io::Flush(state.volatile.len())
            }
            op => panic!("not for this device: {op:?}"),
        };
        state.under_way.push((id, io));
    }

    /// A page changes by itself, if it was ever written.
    pub(crate) fn rot_page(&self, page: u64) {
        let mut state = self.state.borrow_mut();
        let count = state.volatile.len();
        state.make_durable(count);
        if let Some(bytes) = state.durable.get_mut(&page) {
            bytes[2000] ^= 0x40;
        }
    }

    /// Nothing is on these pages.
    pub(crate) fn wipe(&self, pages: std::ops::Range<u64>) {
        let mut state = self.state.borrow_mut();
        let count = state.volatile.len();
        state.make_durable(count);
        state.durable.retain(|page, _| !pages.contains(page));
    }

    /// A page can't be read before it is written.
    pub(crate) fn spoil(&self, page: u64) {
        self.state.borrow_mut().unreadable.insert(page);
    }

    /// The daemon is killed once it has written so many pages while it opens the log.
    pub(crate) fn kill_at(&self, writes: Option<u32>) {
        self.kill.left.set(writes);
        self.kill.dead.set(false);
    }

    /// It fails after so many I/Os while the log is opened; after an odd number of them it does not
    /// answer, and must not be asked again.
    pub(crate) fn fail_after(&self, ios: Option<u32>) {
        self.fails.set(ios);
        self.silent.set(ios.is_some_and(|ios| ios % 2 == 1));
        self.asked.set(false);
    }

    /// Of superblock and mark this page never rots, 0 or 1.
    pub(crate) fn spare(&self, page: u64) {
        self.spared.set(page);
    }

    /// An empty one in the same host.
    pub(crate) fn beside(&self) -> Self {
        let spared = self.spared.clone();
        Self { kill: Rc::clone(&self.kill), spared, ..Self::default() }
    }

    /// One that holds the same, durably.
    pub(crate) fn copy(&self) -> Self {
        let mut other = self.beside();
        let state = self.state.borrow();
        let pages = state.volatile.iter().flat_map(|write| write.pages.iter().cloned());
        other.state.get_mut().durable = state.durable.clone();
        other.state.get_mut().durable.extend(pages);
        other
    }

    /// One of its pages changes by itself, or can't be read any more; none of these.
    pub(crate) fn rot_any(&self, rng: &mut Rng, but: &BTreeSet<u64>) -> u64 {
        let mut state = self.state.borrow_mut();
        // One superblock and one mark are left.
        let spared = self.spared.get();
        let mark = cinnabar_writeback::format::MARK_PAGE;
        let may = |page: &u64| ![spared, mark + spared].contains(page) && !but.contains(page);
        let pages: Vec<u64> = state.durable.keys().copied().filter(may).collect();
        // As many of the directory as of chunks.
        let (first, rest) = pages.split_at(pages.partition_point(|page| *page < 768));
        let some = if rng.random_bool(0.5) || rest.is_empty() { first } else { rest };
        let page = some[rng.random_range(0..some.len())];
        if rng.random_bool(0.5) {
            state.unreadable.insert(page);
        } else if let Some(bytes) = state.durable.get_mut(&page) {
            bytes[rng.random_range(0..4096)] ^= 0x40;
        }
        page
    }

    /// An I/O while the log is opened.
    fn may_go_on(&self) -> std::io::Result<()> {
        if self.fails.get() == Some(0) && self.silent.get() && !self.kill.dead.get() {
            assert!(!self.asked.replace(true), "one that does not answer is asked again");
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut));
        }
        if self.kill.dead.get() || self.fails.get() == Some(0) {
            return Err(std::io::Error::other("it fails"));
        }
        self.fails.set(self.fails.get().map(|left| left - 1));
        Ok(())
    }

    fn read(&self, pages: std::ops::Range<u64>) -> std::io::Result<()> {
        self.may_go_on()?;
        match self.state.borrow().unreadable.range(pages).next() {
            Some(_) => Err(std::io::Error::other("a bad sector")),
            None => Ok(()),
        }
    }

    /// Whether a page is the header of a chunk of the volume at this place.
    pub(crate) fn is_chunk_of(&self, page: u64, place: u16) -> bool {
        let bytes = self.state.borrow().page(page);
        let page = MetaPage(bytes[..].try_into().expect("a page"));
        let header = cinnabar_writeback::format::chunk::ChunkHeader::decode(&page);
        header.is_some_and(|header| header.volume == place)
    }

    /// Whether one of the I/Os under way is a read.
    pub(crate) fn is_read(&self, which: usize) -> bool {
        matches!(self.state.borrow().under_way[which].1, Io::Read(..))
    }

    /// Writes under way.
    pub(crate) fn writes_under_way(&self) -> usize {
        let state = self.state.borrow();
        state.under_way.iter().filter(|(_, io)| matches!(io, Io::Write(..))).count()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state.borrow().under_way.len()
    }

    /// Ends one of the I/Os under way.
    pub(crate) fn end(&self, which: usize) -> IoDone {
        let mut state = self.state.borrow_mut();
        let (id, io) = state.under_way.swap_remove(which);
        let mut done = IoDone::new(id, Ok(()));
        match io {
            Io::Write(write, fua, pages) => {
                done.pages = pages;
                state.heal(&write);
                state.volatile.push(write.clone());
                if fua {
                    // Its own pages, whatever else is volatile.
                    state.volatile.pop();
                    let same = |at: &u64| write.pages.iter().any(|(page, _)| page == at);
                    for other in &mut state.volatile {
                        other.pages.retain(|(at, _)| !same(at));
                    }
                    state.durable.extend(write.pages);
                }
            }
            Io::Read(mut page, slices) => {
                let end = page + slices.iter().map(|slice| slice.len / 4096).sum::<u64>();
                if state.unreadable.range(page..end).next().is_some() {
                    done.result = Err(cinnabar_engine::IoError::Io);
                    return done;
                }
                for slice in slices {
                    for at in (slice.at..slice.at + slice.len).step_by(4096) {
                        let bytes = state.page(page);
                        slice.data.0.borrow_mut()[at as usize..at as usize + 4096]
                            .copy_from_slice(&bytes);
                        page += 1;
                    }
                }
            }
            Io::ReadMeta(first, mut pages) => {
                for (at, page) in (first..).zip(&mut pages) {
                    page.0.copy_from_slice(&state.page(at));
                }
                done.pages = pages;
            }
            Io::Flush(count) => {
                state.make_durable(count);
                for (_, io) in &mut state.under_way {
                    if let Io::Flush(other) = io {
                        *other = other.saturating_sub(count);
                    }
                }
            }
        }
        done
    }

    /// Fails one of the I/Os under way: a write may have happened, page by page. True: it was a read.
    /// Nothing is read in vain twice.
    pub(crate) fn fail(&self, which: usize, rng: &mut Rng) -> Option<(IoId, bool)> {
        let mut state = self.state.borrow_mut();
        if let Io::Read(page, _) = state.under_way[which].1
            && !state.failed.insert(page)
        {
            return None;
        }
        let (id, io) = state.under_way.swap_remove(which);
        if let Io::Write(mut write, ..) = io {
            write.pages.retain(|_| rng.random_bool(0.5));
            state.volatile.push(write);
            return Some((id, false));
        }
        Some((id, matches!(io, Io::Read(..))))
    }

    /// Fails one of the I/Os under way, of whatever kind.
    pub(crate) fn give_up(&self, which: usize, rng: &mut Rng) -> IoId {
        let mut state = self.state.borrow_mut();
        let (id, io) = state.under_way.swap_remove(which);
        if let Io::Write(mut write, ..) = io {
            write.pages.retain(|_| rng.random_bool(0.5));
            state.volatile.push(write);
        }
        id
    }

    /// Nothing happens of one of the I/Os under way.
    pub(crate) fn drop_one(&self, which: usize) -> IoId {
        self.state.borrow_mut().under_way.remove(which).0
    }

    /// Of two I/Os under way the second one is first.
    pub(crate) fn swap_first(&self) {
        self.state.borrow_mut().under_way.swap(0, 1);
    }

    /// Nothing that is under way happens.
    pub(crate) fn forget(&self) {
        self.state.borrow_mut().under_way.clear();
    }

    /// The daemon is killed: what was under way has happened, or not, page by page.
    pub(crate) fn kill(&self, rng: &mut Rng) {
        let mut state = self.state.borrow_mut();
        for (_, io) in std::mem::take(&mut state.under_way) {
            if let Io::Write(mut write, ..) = io {
                write.pages.retain(|_| rng.random_bool(0.5));
                state.volatile.push(write);
            }
        }
    }

    /// Power fails: of what is not durable any page may be as before, or torn if it was under way.
    pub(crate) fn power_cut(&self, rng: &mut Rng) {
        let mut state = self.state.borrow_mut();
        let keep = [0.1, 0.5, 0.9][rng.random_range(0..3)];
        let mut survivors = std::mem::take(&mut state.volatile);
        // Not drawn: a draw more would move every seed.
        let writes = state.writes;
        let is_begun =
            |page: u64| page.wrapping_add(writes).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0;
        for (_, io) in std::mem::take(&mut state.under_way) {
            if let Io::Write(mut write, ..) = io {
                for (page, bytes) in &mut write.pages {
                    // The drive had begun with it: it can't be read before it is written again.
                    if *page >= cinnabar_writeback::format::SEGMENTS_PAGE && is_begun(*page) {
                        state.unreadable.insert(*page);
                    }
                    if rng.random_bool(0.2) {
                        let old = state.durable.get(page).cloned().unwrap_or_else(|| vec![0; 4096]);
                        let cut = rng.random_range(0..8) * 512;
                        bytes[cut..].copy_from_slice(&old[cut..]);
                    }
                }
                survivors.push(write);
            }
        }
        for write in survivors {
            for (page, bytes) in write.pages {
                if rng.random_bool(keep) {
                    state.durable.insert(page, bytes);
                }
            }
        }
    }

    /// A byte of one of the pages of data changes by itself. False if there is none.
    pub(crate) fn rot(&self, rng: &mut Rng) -> bool {
        let mut state = self.state.borrow_mut();
        let first = cinnabar_writeback::format::SEGMENTS_PAGE;
        let is_header = |bytes: &Page| {
            let page = MetaPage(bytes[..].try_into().expect("a page"));
            cinnabar_writeback::format::chunk::ChunkHeader::decode(&page).is_some()
        };
        let pages = state.durable.iter_mut().filter(|(page, _)| **page >= first);
        let mut pages: Vec<&mut Page> =
            pages.map(|(_, bytes)| bytes).filter(|bytes| !is_header(bytes)).collect();
        if pages.is_empty() {
            return false;
        }
        let which = rng.random_range(0..pages.len());
        let at = rng.random_range(0..512) * 8;
        for byte in &mut pages[which][at..at + 8] {
            *byte ^= 0x40;
        }
        true
    }

    /// A byte of one of these pages changes by itself. False if none of them was written.
    pub(crate) fn rot_in(&self, pages: std::ops::Range<u64>, rng: &mut Rng) -> bool {
        let mut state = self.state.borrow_mut();
        let mut all: Vec<&mut Page> =
            state.durable.range_mut(pages).map(|(_, page)| page).collect();
        if all.is_empty() {
            return false;
        }
        let which = rng.random_range(0..all.len());
        all[which][rng.random_range(0..4096)] ^= 0x40;
        true
    }

    /// Flushes, FUA writes and writes so far.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.borrow();
        (state.flushes, state.fua_writes, state.writes)
    }
}

impl Media<Mem> for Ssd {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> std::io::Result<()> {
        self.read(offset / 4096..offset / 4096 + pages.len() as u64)?;
        for (n, page) in pages.iter_mut().enumerate() {
            page.0.copy_from_slice(&self.state.borrow().page(offset / 4096 + n as u64));
        }
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> std::io::Result<Mem> {
        self.read(offset / 4096..offset / 4096 + u64::from(blocks))?;
        let mem = <Mem as cinnabar_engine::Payload>::alloc(blocks);
        for n in 0..u64::from(blocks) {
            let bytes = self.state.borrow().page(offset / 4096 + n);
            let at = n as usize * 4096;
            mem.0.borrow_mut()[at..at + 4096].copy_from_slice(&bytes);
        }
        Ok(mem)
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> std::io::Result<()> {
        self.may_go_on()?;
        let mut state = self.state.borrow_mut();
        let at = offset / 4096;
        match self.kill.left.get() {
            Some(0) => {
                self.kill.dead.set(true);
                // Nothing of it got there, some bytes, or half.
                let mut torn = state.page(at);
                let cut = [0, 16, 2048][(state.writes % 3) as usize];
                torn[..cut].copy_from_slice(&page.0[..cut]);
                state.durable.insert(at, torn);
                return Err(std::io::Error::other("killed"));
            }
            Some(left) => self.kill.left.set(Some(left - 1)),
            None => {}
        }
        state.unreadable.remove(&at);
        state.volatile.push(Write { pages: vec![(at, page.0.to_vec())] });
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        self.may_go_on()?;
        let mut state = self.state.borrow_mut();
        let count = state.volatile.len();
        state.make_durable(count);
        Ok(())
    }
}
