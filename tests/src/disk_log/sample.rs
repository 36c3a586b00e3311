//! Logs for the tests of their reader.

use super::SECTOR;
use super::format::Entry;
use crate::rng::Rng;

/// A log as bytes, with `unit` bytes a sector.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) bytes: Vec<u8>,
    count: u64,
    unit: usize,
}

/// Flags of an entry.
pub(super) const FLUSH: u64 = 1;
pub(super) const FUA: u64 = 2;
pub(super) const DISCARD: u64 = 4;
pub(super) const MARK: u64 = 8;

impl Sample {
    pub(super) fn new(unit: usize) -> Self {
        let mut sample = Self { bytes: vec![0; unit], count: 0, unit };
        sample.set(0, 0x006a_7366_7773_6872);
        sample.set(1, 1);
        sample.bytes[24..28].copy_from_slice(&u32::try_from(unit).expect("small").to_le_bytes());
        sample
    }

    /// Overwrites a word of the superblock.
    pub(super) fn set(&mut self, index: usize, word: u64) {
        self.bytes[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Adds an entry without data.
    pub(super) fn entry(&mut self, first: u64, count: u64, flags: u64, len: u64) {
        let at = self.bytes.len();
        for word in [first, count, flags, len] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.resize(at + self.unit, 0);
        self.count += 1;
        self.set(2, self.count);
    }

    /// Adds a write of sectors that are all `fill`.
    pub(super) fn write(&mut self, first: u64, count: u64, flags: u64, fill: u8) {
        self.entry(first, count, flags, 0);
        self.bytes.resize(self.bytes.len() + self.unit * count as usize, fill);
    }
}

/// A disk of so many sectors under random operations.
pub(super) fn random(disk: u64, operations: u64, seed: u64) -> Sample {
    let mut rng = Rng::new(seed);
    let mut sample = Sample::new(SECTOR as usize);
    for number in 0..operations {
        let first = rng.below(disk - 8);
        let count = 1 + rng.below(8);
        let fill = number as u8 + 1;
        match rng.below(10) {
            0 | 1 => sample.entry(0, 0, FLUSH, 0),
            2 => sample.write(first, count, FUA, fill),
            3 => sample.write(first, count, FLUSH, fill),
            4 => sample.entry(first, count, DISCARD, 0),
            5 => sample.entry(0, 0, MARK, 5),
            _ => sample.write(first, count, 0, fill),
        }
    }
    sample
}

/// The disk after these entries of a log whose sectors are all of one byte each.
pub(super) fn model(disk: u64, sample: &Sample, entries: &[Entry]) -> Vec<u8> {
    let mut sectors = vec![0; disk as usize];
    for change in entries.iter().filter_map(|entry| entry.change.as_ref()) {
        let fill = change.data_at.map_or(0, |at| sample.bytes[at as usize]);
        let range = change.range.start / SECTOR..change.range.end / SECTOR;
        sectors[range.start as usize..range.end as usize].fill(fill);
    }
    sectors
}
