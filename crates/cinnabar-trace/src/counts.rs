//! What was asked for, counted: by operation, in requests and bytes.

use crate::record::{Op, Record};
use serde::Serialize;

/// Counts of requests: a part of several reports. Keys are only ever added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All of them.
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Discards: trims.
    pub discards: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, record: &Record) {
        self.requests += 1;
        match record.op {
            // A hostile trace can ask for more than a number holds.
            Op::Read => {
                self.reads += 1;
                self.read_bytes = self.read_bytes.saturating_add(record.length_bytes);
            }
            Op::Write => {
                self.writes += 1;
                self.write_bytes = self.write_bytes.saturating_add(record.length_bytes);
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => self.discards += 1,
        }
    }

    /// Reads and writes.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }
}
