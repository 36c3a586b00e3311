//! A guest whose writes follow one another in a way that shows which of them a disk has.
//!
//! Version by version it writes the slots of a volume in turn, and flushes after every few of them. A
//! disk that lost power after flush N has everything before it, and any of what came after: so of a
//! legal image there is an N such that each slot holds the newest version up to flush N, or a later
//! one up to flush N + 1.

use anyhow::{Context, Result, ensure};
use e2e::nbd::Client;
use e2e::stamps;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slots of 4 KiB that are written in turn.
const SLOTS: u64 = 61;
pub(super) const SLOT: u64 = 4096;
const SECTORS: u64 = SLOT / stamps::SECTOR as u64;
/// Bytes of a volume for it.
pub(super) const DISK: u64 = SLOTS * SLOT;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    volume: u64,
    /// Writes between two flushes.
    stride: u64,
    /// The newest version that was begun; versions begin with 1.
    begun: u64,
    /// The newest one that was answered, and the newest one that a flush covers.
    answered: u64,
    flushed: u64,
}

impl Chain {
    pub(super) const fn new(volume: u64, stride: u64) -> Self {
        Self { volume, stride, begun: 0, answered: 0, flushed: 0 }
    }

    pub(super) const fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Writes until it is told to stop, or gets an error, which is handed back.
    pub(super) fn run(&mut self, client: &mut Client, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.write(client)?;
        }
        Ok(())
    }

    fn write(&mut self, client: &mut Client) -> Result<()> {
        let version = self.answered + 1;
        self.begun = version;
        let (offset, data) = self.data(version);
        client.write(offset, &data)?;
        self.answered = version;
        if version.is_multiple_of(self.stride) {
            client.flush()?;
            self.flushed = version;
        }
        Ok(())
    }

    fn data(&self, version: u64) -> (u64, Vec<u8>) {
        let slot = version % SLOTS;
        (slot * SLOT, stamps::made(self.volume, slot * SECTORS, SECTORS, version))
    }

    /// The versions in an image, by slot; 0: none yet.
    fn versions(&self, image: &[u8]) -> Result<Vec<u64>> {
        let slot = |slot: u64| {
            let bytes = &image[(slot * SLOT) as usize..][..SLOT as usize];
            let mut all = (0..).zip(bytes.chunks(stamps::SECTOR)).map(|(sector, bytes)| {
                stamps::version(bytes, self.volume, slot * SECTORS + sector)
            });
            let first = all.next().context("a slot has sectors")??;
            for other in all {
                ensure!(other? == first, "slot {slot} holds parts of two versions");
            }
            Ok(first)
        };
        (0..SLOTS).map(slot).collect()
    }

    /// Whether a disk that lost power could hold this. Gives the flush that it has.
    pub(super) fn check_image(&self, image: &[u8]) -> Result<u64> {
        let versions = self.versions(image)?;
        let legal = |upto: &u64| {
            let later = |version: u64| version > *upto && version <= *upto + self.stride;
            (0..SLOTS).zip(&versions).all(|(slot, version)| {
                *version == newest(slot, *upto) || *version <= self.begun && later(*version)
            })
        };
        let flushes = (0..=self.begun / self.stride).rev().map(|flush| flush * self.stride);
        flushes.into_iter().find(legal).with_context(|| {
            format!("no disk could hold this: {versions:?}, stride {}", self.stride)
        })
    }

    /// What a client finds: everything that was answered, and perhaps what was on its way; it stays
    /// so.
    pub(super) fn check_found(&mut self, client: &mut Client) -> Result<()> {
        self.check_whole(&client.read(0, DISK as usize)?)
    }

    /// The same of what a disk holds.
    pub(super) fn check_whole(&mut self, image: &[u8]) -> Result<()> {
        let versions = self.versions(image)?;
        let found = versions.iter().copied().max().unwrap_or(0);
        ensure!(found >= self.answered, "{found} is the newest, {} was answered", self.answered);
        ensure!(found <= self.begun, "{found} was never written");
        for (slot, version) in (0..SLOTS).zip(&versions) {
            let newest = newest(slot, found);
            ensure!(*version == newest, "slot {slot} holds {version}, not {newest}");
        }
        (self.begun, self.answered) = (found, found);
        Ok(())
    }
}

/// The newest version up to `upto` that was written to a slot; 0: none.
const fn newest(slot: u64, upto: u64) -> u64 {
    upto.saturating_sub((upto + SLOTS - slot) % SLOTS)
}
