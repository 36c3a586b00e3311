//! Records in order, and how many bytes of pages they will take.

use crate::metadata::journal::Record;
use std::collections::VecDeque;

/// Records, oldest first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    records: VecDeque<Record>,
    bytes: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, record: Record) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    /// Drops the `count` oldest.
    pub(super) fn drop_first(&mut self, count: usize) {
        assert!(count <= self.records.len(), "only what is there is dropped");
        self.bytes -= self.records.drain(..count).map(|record| record.bytes()).sum::<usize>();
        assert!(!self.records.is_empty() || self.bytes == 0, "no records take no bytes");
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes in pages, without what a sector may have to leave empty.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn range(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = &Record> {
        self.records.range(range)
    }

    pub(super) fn ram_bytes(&self) -> u64 {
        (self.records.capacity() * size_of::<Record>()) as u64
    }
}

impl FromIterator<Record> for Backlog {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let mut all = Self::default();
        records.into_iter().for_each(|record| all.push(record));
        all
    }
}
