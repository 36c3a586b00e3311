//! The log's format.
//!
//! The first sector is the superblock: magic, version and number of entries (8 bytes each), bytes of
//! a sector (4). Then come entries, each a sector that begins with 32 bytes: first sector, number of
//! sectors, flags, length of a mark; behind it, unless it is a discard, the sectors' data. All
//! numbers are little endian. Source: `Documentation/admin-guide/device-mapper/log-writes.rst` of
//! Linux, `block/blklogwrites.c` of QEMU.
//!
//! An entry is written when its operation has ended, and before it is answered. So what was answered
//! before a flush arrived stands before the flush in the log.

use super::SECTOR;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const SUPERBLOCK_LEN: usize = 28;
const ENTRY_LEN: usize = 32;
/// Largest unit of the log in bytes.
const UNIT_MAX: u64 = 4096;
/// Entries of a log that is read: their index takes 56 bytes each.
const ENTRIES_MAX: u64 = 1 << 22;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// The kernel's hint that a write is metadata: of no meaning here.
const METADATA: u64 = 16;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// It makes durable what stands before it. Its own change comes after that.
    pub flushes: bool,
    /// Its change is durable once it is answered.
    pub durable: bool,
    /// What it changes, if anything.
    pub change: Option<Change>,
}

/// A range of the disk that gets other contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Bytes of the disk.
    pub range: Range<u64>,
    /// Where the log has the data; zeros if nowhere.
    pub data_at: Option<u64>,
}

impl Change {
    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        (self.range.end - self.range.start) / SECTOR
    }
}

/// A log that is complete: its disk is no longer written.
#[derive(Debug)]
pub struct DiskLog {
    file: File,
    entries: Vec<Entry>,
}

/// Entries that a log has by now, as its superblock says. It says so of a flush before the flush is
/// answered, of other entries later.
pub fn entries_so_far(path: &Path) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(superblock(&file)?.0)
}

impl DiskLog {
    /// Reads the entries of the log of a disk of `disk` bytes, and not yet their data.
    ///
    /// # Errors
    /// When the file can't be read, is no log, is cut short, or names sectors that the disk does not
    /// have.
    pub fn open(path: &Path, disk: u64) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let (count, unit) = superblock(&file)?;
        ensure!(count <= ENTRIES_MAX, "{count} entries, more than {ENTRIES_MAX}");
        let end = file.metadata()?.len();
        let mut entries = Vec::new();
        let mut at = unit;
        for number in 0..count {
            let read = read_entry(&file, at, end, unit, disk);
            let (entry, next) = read.with_context(|| format!("entry {number} of {count}"))?;
            entries.push(entry);
            at = next;
        }
        Ok(Self { file, entries })
    }

    /// What was done, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where a power cut is worth a look: each number is of entries that are durable, and behind them
    /// the log begins or a flush was answered.
    pub fn points(&self) -> Vec<usize> {
        let flushes = self.entries.iter().enumerate().filter(|(_, entry)| entry.flushes);
        let mut points = vec![0];
        points.extend(flushes.map(|(number, _)| number));
        points.dedup();
        points
    }

    /// Entries behind a point, up to the next flush: a power cut may take any part of them.
    pub fn window(&self, point: usize) -> Range<usize> {
        let behind = self.entries.iter().enumerate().skip(point + 1);
        let next = behind.into_iter().find(|(_, entry)| entry.flushes);
        point..next.map_or(self.entries.len(), |(number, _)| number)
    }

    /// Fills `buffer` with a change's data, from `skip` bytes behind its begin on.
    pub(super) fn read(&self, data_at: u64, skip: u64, buffer: &mut [u8]) -> Result<()> {
        Ok(self.file.read_exact_at(buffer, data_at + skip)?)
    }
}

/// Number of entries and bytes of a unit.
fn superblock(file: &File) -> Result<(u64, u64)> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    file.read_exact_at(&mut bytes, 0).context("no superblock")?;
    let (magic, version, count) = (word(&bytes, 0), word(&bytes, 1), word(&bytes, 2));
    ensure!(magic == MAGIC, "no log of writes: it begins with {magic:#x}");
    ensure!(version == VERSION, "a log of version {version}, not {VERSION}");
    let mut unit = [0; 4];
    unit.copy_from_slice(&bytes[24..]);
    let unit = u64::from(u32::from_le_bytes(unit));
    ensure!(
        unit.is_power_of_two() && (SECTOR..=UNIT_MAX).contains(&unit),
        "a log in sectors of {unit} bytes"
    );
    Ok((count, unit))
}

/// The entry at byte `at` of a log of `end` bytes, and where the next one begins.
fn read_entry(file: &File, at: u64, end: u64, unit: u64, disk: u64) -> Result<(Entry, u64)> {
    ensure!(at + unit <= end, "the log ends at byte {end}, before it");
    let mut bytes = [0; ENTRY_LEN];
    file.read_exact_at(&mut bytes, at)?;
    let (first, count, flags, mark_len) =
        (word(&bytes, 0), word(&bytes, 1), word(&bytes, 2), word(&bytes, 3));
    let known = FLUSH | FUA | DISCARD | MARK | METADATA;
    ensure!(flags & !known == 0, "unknown flags {flags:#x}");
    let data = at + unit;
    let (flushes, durable) = (flags & FLUSH != 0, flags & FUA != 0);
    if flags & MARK != 0 {
        ensure!(count == 0 && mark_len <= unit - ENTRY_LEN as u64, "a mark of {mark_len} bytes");
        return Ok((Entry { flushes, durable, change: None }, data));
    }
    if count == 0 {
        return Ok((Entry { flushes, durable, change: None }, data));
    }
    let Some(range) = bytes_of(first, count, unit).filter(|range| range.end <= disk) else {
        bail!("sectors {first} and {count} on, of a disk of {disk} bytes");
    };
    let (data_at, next) = if flags & DISCARD != 0 {
        (None, data)
    } else {
        (Some(data), data + (range.end - range.start))
    };
    ensure!(next <= end, "the log ends at byte {end}, amid its data");
    Ok((Entry { flushes, durable, change: Some(Change { range, data_at }) }, next))
}

fn bytes_of(first: u64, count: u64, unit: u64) -> Option<Range<u64>> {
    let end = first.checked_add(count)?.checked_mul(unit)?;
    Some(first * unit..end)
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[index * 8..][..8]);
    u64::from_le_bytes(word)
}
