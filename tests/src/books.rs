//! What each sector of a volume may read as: the memory of a test that outlives the daemon.
//!
//! Several connections keep their books here at a time: each holds the sectors of its request until
//! it is answered, so that "newest" has one meaning, while requests beside one another in one block
//! still run together.
//!
//! A sector is *settled* when one version is right, *open* when several may be: a write under way or
//! never answered may have happened or not. Whatever an open sector is then read as, that it stays
//! (promise 2), so reading settles it.

use crate::stamps::{self, SECTOR, ZEROS};
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The books of one volume.
#[derive(Debug)]
pub struct Books {
    volume: u64,
    pages: Mutex<Pages>,
    released: Condvar,
}

#[derive(Debug)]
struct Pages {
    settled: Vec<u64>,
    /// Sectors with several right versions.
    open: HashMap<u64, Vec<u64>>,
    held: Vec<Range<u64>>,
}

impl Books {
    /// A volume of `sectors` sectors, all of `version`.
    pub fn new(volume: u64, sectors: u64, version: u64) -> Self {
        let pages = Pages {
            settled: vec![version; sectors as usize],
            open: HashMap::new(),
            held: Vec::new(),
        };
        Self { volume, pages: Mutex::new(pages), released: Condvar::new() }
    }

    /// Its number, part of each stamp.
    pub fn volume(&self) -> u64 {
        self.volume
    }

    /// Sectors it has.
    pub fn sectors(&self) -> u64 {
        self.pages().settled.len() as u64
    }

    /// Sectors of which several versions are right.
    pub fn open(&self) -> usize {
        self.pages().open.len()
    }

    /// Waits until no other thread holds any of these sectors, and holds them.
    pub fn hold(&self, sectors: Range<u64>) -> Hold<'_> {
        let overlaps = |held: &Range<u64>| held.start < sectors.end && sectors.start < held.end;
        let mut pages = self.pages();
        while pages.held.iter().any(overlaps) {
            pages = self.released.wait(pages).unwrap_or_else(PoisonError::into_inner);
        }
        pages.held.push(sectors.clone());
        Hold { books: self, sectors }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        // A panic elsewhere is a failure of its own; the books are whole at every step.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sectors that no other thread touches until this is dropped.
#[derive(Debug)]
pub struct Hold<'a> {
    books: &'a Books,
    sectors: Range<u64>,
}

impl Hold<'_> {
    /// First byte.
    pub fn offset(&self) -> u64 {
        self.sectors.start * SECTOR as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        (self.sectors.end - self.sectors.start) * SECTOR as u64
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// What to send to make them `version`.
    pub fn data(&self, version: u64) -> Vec<u8> {
        let sectors = self.sectors.end - self.sectors.start;
        stamps::made(self.books.volume, self.sectors.start, sectors, version)
    }

    /// They may become `version` from now on: before it is sent.
    pub fn begin(&self, version: u64) {
        let mut pages = self.books.pages();
        let Pages { settled, open, .. } = &mut *pages;
        for sector in self.sectors.clone() {
            let right = open.entry(sector).or_insert_with(|| vec![settled[sector as usize]]);
            if !right.contains(&version) {
                right.push(version);
            }
        }
    }

    /// They are `version`: it was acknowledged.
    pub fn acknowledged(&self, version: u64) {
        let mut pages = self.books.pages();
        for sector in self.sectors.clone() {
            pages.settled[sector as usize] = version;
            pages.open.remove(&sector);
        }
    }

    /// They may be zeros from now on: trimmed, or about to be. An answer settles nothing, for what
    /// a trimmed sector reads as is the disk's choice.
    pub fn trimmed(&self) {
        self.begin(ZEROS);
    }

    /// Compares what was read; settles what was open.
    ///
    /// # Errors
    /// At the first sector that is wrong.
    pub fn check(&self, data: &[u8]) -> Result<()> {
        ensure!(data.len() as u64 == self.len(), "{} bytes, not {}", data.len(), self.len());
        let mut pages = self.books.pages();
        let Pages { settled, open, .. } = &mut *pages;
        for (sector, bytes) in self.sectors.clone().zip(data.chunks_exact(SECTOR)) {
            let place = || format!("volume {}, sector {sector}", self.books.volume);
            let version = stamps::version(bytes, self.books.volume, sector).with_context(place)?;
            let right = settled[sector as usize];
            match open.remove(&sector) {
                Some(several) => {
                    ensure!(several.contains(&version), "{}: {version} of {several:?}", place());
                    settled[sector as usize] = version;
                }
                None => ensure!(version == right, "{}: {version}, not {right}", place()),
            }
        }
        Ok(())
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut pages = self.books.pages();
        if let Some(index) = pages.held.iter().position(|held| *held == self.sectors) {
            pages.held.swap_remove(index);
        }
        drop(pages);
        self.books.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        Books::new(4, 64, 1)
    }

    fn read(books: &Books, sectors: Range<u64>, version: u64) -> Result<()> {
        let hold = books.hold(sectors);
        hold.check(&hold.data(version))
    }

    #[test]
    fn stale_data_are_noticed() {
        let books = books();
        let hold = books.hold(8..10);
        hold.begin(2);
        hold.acknowledged(2);
        drop(hold);
        assert!(read(&books, 8..10, 1).is_err());
        assert!(read(&books, 8..10, 2).is_ok());
        assert!(read(&books, 10..11, 1).is_ok());
    }

    #[test]
    fn what_was_never_answered_is_stable_once_read() {
        for first in [1, 2, 3] {
            let books = books();
            books.hold(8..9).begin(2);
            books.hold(8..9).begin(3);
            assert_eq!(books.open(), 1);
            assert!(read(&books, 8..9, first).is_ok());
            for later in [1, 2, 3] {
                assert_eq!(read(&books, 8..9, later).is_ok(), later == first);
            }
        }
        let books = books();
        books.hold(8..9).begin(2);
        assert!(read(&books, 8..9, 4).is_err(), "never written");
    }

    #[test]
    fn trimmed_sectors_are_old_or_zeros() {
        for (version, right) in [(1, true), (ZEROS, true), (2, false)] {
            let books = books();
            books.hold(0..1).trimmed();
            assert_eq!(read(&books, 0..1, version).is_ok(), right);
        }
    }

    #[test]
    fn holds_keep_others_out() {
        let books = books();
        let hold = books.hold(0..4);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(books.hold(3..5)));
            drop(books.hold(4..8));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished(), "the other thread did not wait");
            drop(hold);
        });
    }
}
