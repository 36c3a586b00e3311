//! What a check found on a device, or in the region of one shard: the contract of `cache check
//! --json`. Keys are only ever added.
//!
//! Made by `check`, summed up by `sum`, shown by the command line.

use serde::Serialize;
use std::collections::BTreeMap;

/// Findings told in words; the rest is counted.
pub const FINDINGS_MAX: usize = 50;

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Path of the device.
    pub device: String,
    /// Whose region this is about, where the device has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Size of the device, or of the region, in bytes.
    pub size_bytes: u64,
    /// Something is not as it should be; what a crash leaves behind is not damage.
    pub damaged: bool,
    /// What is damaged, a line each, at most [`FINDINGS_MAX`] of them.
    pub findings: Vec<String>,
    /// Findings beyond those.
    pub more_findings: u64,
    /// What the next start will do.
    pub next_start: StartReport,
    /// The superblock's copies, in the order of their pages.
    pub superblocks: Vec<CopyReport>,
    /// What the superblock that counts says; absent if there is none.
    pub state: Option<StateReport>,
    /// The checkpoint slots.
    pub checkpoints: Vec<CheckpointReport>,
    pub journal: Option<JournalReport>,
    pub log: Option<LogReport>,
    /// Volumes that the checkpoint and the journal know.
    pub volumes: Vec<VolumeReport>,
}

/// What the next start will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StartReport {
    /// What, for programs.
    pub kind: StartKind,
    /// The same for people: one sentence.
    pub text: String,
}

/// What a start does with what is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// It takes in the checkpoint of a clean stop.
    Warm,
    /// It puts together what a crash left.
    Recover,
    /// It finds nothing, and nothing was there.
    Cold,
    /// It drops everything, because the metadata leave doubt.
    Drop,
    /// It does not use the device: volumes pass through.
    Refuse,
}

/// A copy of the superblock.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    /// `good`, `blank`, `damaged`, `unreadable`, or `stray`: another device's or shard's.
    pub status: &'static str,
    /// Why it is not good, or empty.
    pub reason: String,
    /// Its number; the higher one counts.
    pub sequence: Option<u64>,
}

/// What the superblock says.
#[derive(Clone, Debug, Serialize)]
pub struct StateReport {
    /// `cold`, `in_use` or `clean`.
    pub state: &'static str,
    /// Number of the checkpoint to believe, after a clean stop.
    pub checkpoint: Option<u64>,
    /// Identity of the device, or of the region.
    pub uuid: String,
    /// Logical shards of the device.
    pub shards: u32,
    /// Session at which everything before was given up.
    pub era: u32,
    /// Number of the next session.
    pub next_incarnation: u32,
    /// Bytes of the device, or of the region, that are used.
    pub used_bytes: u64,
    /// Blocks of data that fit.
    pub capacity_blocks: u64,
    /// Segments of the log.
    pub segments: u32,
    pub segment_bytes: u64,
}

/// A checkpoint slot.
#[derive(Clone, Debug, Serialize)]
pub struct CheckpointReport {
    /// 0 or 1.
    pub slot: usize,
    /// `good`, `blank` or `damaged`: its head.
    pub head: &'static str,
    /// Number of the checkpoint.
    pub sequence: Option<u64>,
    /// Whether the next start takes this one.
    pub counts: bool,
    /// Pages behind the head that are what they should be.
    pub pages_good: u64,
    /// Pages that are not.
    pub pages_bad: u64,
    pub volumes: u64,
    pub segments: u64,
    pub blocks: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct JournalReport {
    /// Pages of the ring.
    pub pages: u64,
    /// Pages of the present era, whole.
    pub whole: u64,
    /// Pages never written, or of earlier eras.
    pub old: u64,
    /// Pages that are new in some sectors and old in others.
    pub torn: u64,
    /// Pages with a sector that is neither, or that can't be read.
    pub damaged: u64,
    /// Whether recovery finds it complete.
    pub complete: bool,
    /// First page whose records count, and the one behind the last.
    pub first_page: u64,
    /// See `first_page`.
    pub next_page: u64,
    /// Records that count, by kind.
    pub records: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct LogReport {
    /// Segments that may hold chunks: those in use, and those that still have room.
    pub segments: u64,
    /// Segments looked at.
    pub segments_checked: u64,
    /// Of those, segments that hold chunks.
    pub segments_used: u64,
    /// Chunks found.
    pub chunks: u64,
    /// Blocks with data in them, valid or long since overtaken.
    pub blocks: u64,
    /// Segments where a chunk that the checkpoint knows was not found.
    pub damaged_segments: u64,
    /// Whether the data of every block were read.
    pub data_checked: bool,
    /// Blocks whose data don't have their checksum: a read of them goes to the back end.
    pub wrong_blocks: u64,
    /// The same in chunks written since the checkpoint, which a crash may have torn.
    pub torn_blocks: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct VolumeReport {
    pub name: String,
    /// Which session of it.
    pub incarnation: u32,
    pub size_bytes: u64,
    /// Its generation, as the host's state file has it too.
    pub generation: u64,
    /// It may have been written since the proof was taken.
    pub written: bool,
    /// Written copies in chunks up to this one are covered by a flush of the back end.
    pub flushed: u64,
    /// The back end's proof, in hexadecimal.
    pub proof: Option<String>,
    /// Its blocks in the checkpoint that counts.
    pub checkpoint_blocks: u64,
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ok = write!(text, "{byte:02x}");
    }
    text
}
