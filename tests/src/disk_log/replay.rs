//! Images of a disk at points of its history.
//!
//! One file, the base, advances through the history; an image is a sparse copy of it with a few
//! changes more. So an image costs what the disk holds, not what was ever written.

use super::{Change, DiskLog, Piece, SECTOR};
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are copied at a time.
const STEP: u64 = 1 << 20;

/// A disk on its way through its history.
#[derive(Debug)]
pub struct Replay {
    log: DiskLog,
    base: File,
    applied: usize,
}

impl Replay {
    /// `base` is the disk as it was before the log's first entry, open for writing. It is changed.
    pub fn new(log: DiskLog, base: File) -> Self {
        Self { log, base, applied: 0 }
    }

    /// The history.
    pub fn log(&self) -> &DiskLog {
        &self.log
    }

    /// Brings the base to where the first `entries` are applied.
    ///
    /// # Panics
    /// When it is there already or the log has no so many: there is no way back.
    pub fn advance(&mut self, entries: usize) -> Result<()> {
        assert!(self.applied <= entries && entries <= self.log.entries().len(), "the way is ahead");
        for entry in self.applied..entries {
            self.apply(&self.base, &Piece::whole(entry))?;
        }
        self.applied = entries;
        Ok(())
    }

    /// Writes the base and these changes on top, in the order given, to a new file.
    pub fn image(&self, path: &Path, pieces: &[Piece]) -> Result<()> {
        let image = copy_sparse(&self.base, path)?;
        pieces.iter().try_for_each(|piece| self.apply(&image, piece))
    }

    /// Where the base and another file differ first, in bytes.
    pub fn first_difference(&self, other: &Path) -> Result<Option<u64>> {
        let other = File::open(other).with_context(|| format!("opening {}", other.display()))?;
        let size = self.base.metadata()?.len();
        if other.metadata()?.len() != size {
            return Ok(Some(size.min(other.metadata()?.len())));
        }
        let mut pair = [vec![0; STEP as usize], vec![0; STEP as usize]];
        for at in (0..size).step_by(STEP as usize) {
            let len = STEP.min(size - at) as usize;
            let [ours, its] = &mut pair;
            self.base.read_exact_at(&mut ours[..len], at)?;
            other.read_exact_at(&mut its[..len], at)?;
            let differs = ours[..len].iter().zip(&its[..len]).position(|(a, b)| a != b);
            if let Some(byte) = differs {
                return Ok(Some(at + byte as u64));
            }
        }
        Ok(None)
    }

    fn apply(&self, file: &File, piece: &Piece) -> Result<()> {
        let Some(change) = &self.log.entries()[piece.entry].change else { return Ok(()) };
        let Some(sectors) = &piece.sectors else { return self.write(file, change, 0..u64::MAX) };
        ensure!(sectors.len() as u64 == change.sectors(), "a piece of another change");
        for (sector, _) in (0..).zip(sectors).filter(|(_, survives)| **survives) {
            self.write(file, change, sector * SECTOR..(sector + 1) * SECTOR)?;
        }
        Ok(())
    }

    /// Writes those bytes of a change that lie in `part`, counted from its begin.
    fn write(&self, file: &File, change: &Change, part: Range<u64>) -> Result<()> {
        let end = part.end.min(change.range.end - change.range.start);
        let to = change.range.start;
        let Some(data_at) = change.data_at else {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return Ok(fallocate(file, how, to + part.start, end - part.start)?);
        };
        let mut buffer = vec![0; STEP.min(end - part.start) as usize];
        let mut skip = part.start;
        while skip < end {
            let buffer = &mut buffer[..STEP.min(end - skip) as usize];
            self.log.read(data_at, skip, buffer)?;
            file.write_all_at(buffer, to + skip)?;
            skip += buffer.len() as u64;
        }
        Ok(())
    }
}

/// Copies a file, and leaves its holes holes. The copy is open for writing.
pub fn copy_sparse(from: &File, path: &Path) -> Result<File> {
    let to = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; STEP as usize];
    let mut at = 0;
    while at < size {
        let begin = match seek(from, SeekFrom::Data(at)) {
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        at = seek(from, SeekFrom::Hole(begin))?;
        for begin in (begin..at).step_by(STEP as usize) {
            let buffer = &mut buffer[..STEP.min(at - begin) as usize];
            from.read_exact_at(buffer, begin)?;
            to.write_all_at(buffer, begin)?;
        }
    }
    Ok(to)
}
