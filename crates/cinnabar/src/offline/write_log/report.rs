//! What a check found on a write log: the contract of `cache check --json`. Keys are only ever added.

use crate::offline::report::{CopyReport, StartReport};
use serde::Serialize;

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct WriteLogReport {
    /// Path of the device.
    pub device: String,
    /// `write_log`: the report of a cache device has no such key.
    pub kind: &'static str,
    /// Size of the device in bytes.
    pub size_bytes: u64,
    /// Something is not as it should be; what a crash leaves behind is not damage.
    pub damaged: bool,
    /// What is damaged, a line each, at most [`FINDINGS_MAX`](crate::offline::report::FINDINGS_MAX) of them.
    pub findings: Vec<String>,
    /// Findings beyond those.
    pub more_findings: u64,
    /// What the next start will do: `recover` what is dirty, start `cold` with nothing dirty, or
    /// `refuse` the log.
    pub next_start: StartReport,
    /// The superblock's copies, in the order of their pages.
    pub superblocks: Vec<CopyReport>,
    /// Identity of the log.
    pub uuid: String,
    /// Segments of the log.
    pub segments: u32,
    pub segment_bytes: u64,
    /// Segments with chunks that a back end does not have.
    pub segments_used: u32,
    /// The data of all chunks that count have been read and verified.
    pub data_checked: bool,
    /// Volumes that have a place, dirty or not.
    pub volumes: Vec<LogVolumeReport>,
    /// The memory that holds newer writes, unless it is that of another boot of a host.
    pub memory: Option<MemoryReport>,
    /// The devices of a mirrored log, as far as they were given; of a log without a mirror nothing.
    pub halves: Vec<HalfReport>,
}

/// A device of a mirrored log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HalfReport {
    /// Its path.
    pub device: String,
    /// What its mark says: `both`, `alone`, `filling`, or `none`; `damaged`: it can't be read.
    pub mark: &'static str,
    /// Of two halves the higher one is newer.
    pub generation: u64,
    /// Drawn when one half began to be filled, the same on both: 16 hexadecimal digits.
    pub pair: String,
    /// What the next start with what was given will make of it: a `member`, which holds everything, one
    /// that is `filled`, or `not_used`.
    pub next_start: &'static str,
    /// Why it can't be used, or nothing.
    pub reason: String,
    /// Pages that it lacks and has from the other one at the next start.
    pub pages_lacking: u64,
}

/// Acknowledged writes are in memory: a daemon was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// Path of the file.
    pub path: String,
    /// It is there, and of this log.
    pub found: bool,
}

/// A volume of a write log.
#[derive(Clone, Debug, Serialize)]
pub struct LogVolumeReport {
    /// Its place in the directory.
    pub place: u16,
    pub name: String,
    /// Which use of the place this is: 16 hexadecimal digits.
    pub incarnation: String,
    pub size_bytes: u64,
    /// Bytes of the log that its back end does not have, chunk headers included.
    pub dirty_bytes: u64,
    /// Chunks that its back end does not have.
    pub dirty_chunks: u64,
    /// Chunks that do not count: torn by a crash, or behind one that is.
    pub void_chunks: u64,
    /// Number of the last chunk that the back end has.
    pub retired_chunk: u64,
    /// Number of the last chunk that counts.
    pub last_chunk: u64,
    /// The newest epoch that the back end has.
    pub retired_epoch: u64,
    /// Its write group, empty for none.
    pub group: String,
    /// The newest epoch that counts; the same if nothing is dirty.
    pub epoch: u64,
    /// Epochs that the back end does not have.
    pub dirty_epochs: u64,
    /// Its dirty data are damaged: the daemon does not serve it.
    pub damaged: bool,
    /// Why, or nothing.
    pub damage: Option<String>,
}
