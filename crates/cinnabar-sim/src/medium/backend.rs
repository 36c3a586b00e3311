//! A simulated backend: where a volume really lives.
//!
//! Called through [`Media`](super::Media), and by drivers that play another writer.

use crate::medium::{initial, rules, transfer::Transfer};
use crate::stamp::{Stamp, mix};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::volume::Epoch;
use cinnabar_engine::{IoError, IoOp};
use std::ops::Range;

/// A write that a power cut could undo.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    /// The write, named by the tick it began at.
    by: u64,
    /// Tick of its completion: only a flush begun later covers it.
    completed: u64,
}

/// A backend.
#[derive(Debug)]
pub struct Backend {
    index: usize,
    /// Alignment of every I/O, in bytes.
    pub align_bytes: u64,
    /// Refuses writes.
    pub read_only: bool,
    /// Does trims and zeroes by itself.
    pub can_zero: bool,
    contents: Vec<Stamp>,
    dirty: Vec<Option<Dirty>>,
    /// Raised with each change: the change time of a file.
    changes: u64,
}

impl Backend {
    /// A backend of so many sectors, each holding its stamp of version 0.
    pub fn new(index: usize, sectors: u64, align_bytes: u64, read_only: bool) -> Self {
        let dirty = vec![None; sectors as usize];
        let contents = initial(index, sectors);
        Self { index, align_bytes, read_only, can_zero: true, contents, dirty, changes: 0 }
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        self.contents.len() as u64
    }

    /// What a sector holds.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn sector(&self, sector: u64) -> Stamp {
        self.contents[sector as usize]
    }

    /// What a sector holds, if a power cut could still take it back.
    pub fn not_durable(&self, sector: u64) -> Option<Stamp> {
        self.dirty[sector as usize].map(|_| self.contents[sector as usize])
    }

    /// A sector that a power cut could still take back, if there is one.
    pub fn first_not_durable(&self) -> Option<u64> {
        self.dirty.iter().position(Option::is_some).map(|sector| sector as u64)
    }

    /// The proof that nobody wrote: identity, size and change time.
    pub fn epoch(&self) -> Epoch {
        let mut bytes = [0; 64];
        let fields = [self.index as u64, self.sectors(), self.changes];
        for (at, field) in (0..).step_by(8).zip(fields) {
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        Epoch(bytes)
    }

    /// Somebody else writes here, durably.
    ///
    /// # Panics
    /// If it reaches beyond the end.
    pub fn write_behind(&mut self, first: u64, values: &[Stamp]) {
        let range = first as usize..first as usize + values.len();
        self.contents[range.clone()].copy_from_slice(values);
        self.dirty[range].fill(None);
        self.changes += 1;
    }

    pub(super) fn effect(&mut self, transfer: &mut Transfer, units: Range<usize>) {
        let first = (rules::offset_bytes(&transfer.request.op) / SECTOR_BYTES) as usize;
        let by = transfer.started;
        for unit in units {
            let sector = first + unit;
            match &transfer.request.op {
                // What lies behind the end of an odd-sized volume reads as zeros.
                IoOp::Read { .. } => {
                    transfer.data[unit] = *self.contents.get(sector).unwrap_or(&Stamp::ZERO);
                }
                IoOp::Write { .. } => self.put(sector, transfer.data[unit], by),
                IoOp::WriteZeroes { .. } => self.put(sector, Stamp::ZERO, by),
                // Which parts a trim zeroes is the device's business, in units of its own.
                IoOp::Trim { .. } if mix(by ^ (sector as u64 / 8) << 32) & 1 == 0 => {
                    self.put(sector, Stamp::ZERO, by);
                }
                IoOp::Trim { .. } | IoOp::Flush | IoOp::Prove | IoOp::Distrust => {}
                IoOp::ReadMeta { .. } | IoOp::WriteMeta { .. } => {
                    unreachable!("refused when it was started")
                }
            }
        }
    }

    fn put(&mut self, sector: usize, value: Stamp, by: u64) {
        self.changes += 1;
        // Writing what is there already can't make it less durable.
        if self.contents[sector] != value {
            self.contents[sector] = value;
            self.dirty[sector] = Some(Dirty { by, completed: u64::MAX });
        }
    }

    pub(super) fn finish(&mut self, transfer: &Transfer, result: Result<(), IoError>, tick: u64) {
        let op = &transfer.request.op;
        match op {
            IoOp::Flush | IoOp::Prove if result.is_ok() => {
                for dirty in &mut self.dirty {
                    *dirty = dirty.take_if(|dirty| dirty.completed > transfer.started);
                }
            }
            IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Trim { .. } => {
                let durable = matches!(op, IoOp::Write { fua: true, .. }) && result.is_ok();
                let first = (rules::offset_bytes(op) / SECTOR_BYTES) as usize;
                for entry in &mut self.dirty[first..first + transfer.units()] {
                    if let Some(dirty) = entry.as_mut().filter(|dirty| dirty.by == transfer.started)
                    {
                        dirty.completed = tick;
                        if durable {
                            *entry = None;
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// The engine died: what its writes left counts as complete.
    pub fn crash(&mut self, tick: u64) {
        for dirty in self.dirty.iter_mut().flatten() {
            dirty.completed = dirty.completed.min(tick);
        }
    }
}
