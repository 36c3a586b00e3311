//! One I/O under way: the engine's request and what has become of it so far.

use crate::medium::rules;
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{BLOCK_BYTES, SECTOR_BYTES};
use cinnabar_engine::{IoOp, IoRequest, Slices};
use std::ops::Range;

/// An I/O under way.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// What the engine asked for.
    pub request: IoRequest<Stamped>,
    /// The backend it goes to; `None` for the cache device.
    pub(super) backend: Option<usize>,
    /// When it began.
    pub(super) started: u64,
    /// Data of a write as they were at the start; data of a read as far as they were read.
    pub(super) data: Vec<Stamp>,
    /// Pages of a metadata read as far as they were read.
    pub(super) pages: Vec<MetaPage>,
    /// What of it goes to another place of the cache device by mistake.
    pub(super) astray: Option<Astray>,
}

/// Blocks of an I/O that go to another place.
#[derive(Clone, Debug)]
pub(super) struct Astray {
    pub(super) units: Range<usize>,
    /// The block where the first of them goes.
    pub(super) block: usize,
}

impl Transfer {
    pub(super) fn new(request: IoRequest<Stamped>, backend: Option<usize>, started: u64) -> Self {
        let (data, pages) = match &request.op {
            // What a read has not reached yet is garbage, in the memory as on a real machine.
            IoOp::Read { data, .. } => {
                let garbage = vec![Stamp::POISON; rules::sectors_of(data)];
                scatter(data, &garbage);
                (garbage, Vec::new())
            }
            IoOp::Write { data, .. } | IoOp::WriteMeta { data, .. } => (gather(data), Vec::new()),
            IoOp::ReadMeta { pages, .. } => (Vec::new(), pages.clone()),
            _ => (Vec::new(), Vec::new()),
        };
        Self { request, backend, started, data, pages, astray: None }
    }

    /// It begins once more at this tick, as if nothing of it had happened.
    pub fn begin_again(&mut self, tick: u64) {
        self.started = tick;
    }

    /// Parts it can happen in: sectors on a backend, blocks on the cache device, none for a flush.
    pub fn units(&self) -> usize {
        let unit_bytes = if self.backend.is_some() { SECTOR_BYTES } else { BLOCK_BYTES };
        (rules::len_bytes(&self.request.op) / unit_bytes) as usize
    }

    /// The backend it goes to; `None` for the cache device.
    pub fn backend(&self) -> Option<usize> {
        self.backend
    }

    /// Does it let go of what is on the cache device, or find room there?
    pub(super) fn is_about_room(&self) -> bool {
        let trims = matches!(self.request.op, IoOp::Trim { .. }) && self.backend.is_none();
        trims || matches!(self.request.op, IoOp::MakeRoom { .. })
    }

    /// Does it change what is on its medium?
    pub fn writes(&self) -> bool {
        matches!(
            self.request.op,
            IoOp::Write { .. }
                | IoOp::WriteMeta { .. }
                | IoOp::WriteZeroes { .. }
                | IoOp::Trim { .. }
        )
    }

    /// These blocks of it go to another place of the cache device.
    pub(super) fn misdirect(&mut self, units: Range<usize>, block: u64) {
        self.astray = Some(Astray { units, block: block as usize });
    }

    /// Where on the cache device a block of it is meant to be, and where it goes.
    pub(super) fn block_of(&self, unit: usize) -> (usize, usize) {
        let meant = (rules::offset_bytes(&self.request.op) / BLOCK_BYTES) as usize + unit;
        match &self.astray {
            Some(Astray { units, block }) if units.contains(&unit) => {
                (meant, block + unit - units.start)
            }
            _ => (meant, meant),
        }
    }

    /// Neither side may touch memory that is under I/O.
    pub(super) fn check_memory(&self) -> Result<(), Violation> {
        let unchanged = match &self.request.op {
            IoOp::Read { data, .. } => gather(data).iter().all(|&stamp| stamp == Stamp::POISON),
            IoOp::Write { data, .. } | IoOp::WriteMeta { data, .. } => gather(data) == self.data,
            _ => true,
        };
        if unchanged {
            return Ok(());
        }
        let what = format!("the memory of {:?} changed while it was under way", self.request);
        Err(Violation::new(Kind::TouchedBuffer, what))
    }

    /// Moves what was read into the engine's memory.
    pub(super) fn deliver(&mut self) {
        match &mut self.request.op {
            IoOp::Read { data, .. } => scatter(data, &self.data),
            IoOp::ReadMeta { pages, .. } => pages.clone_from(&self.pages),
            _ => {}
        }
    }
}

/// Sectors of a list, in order.
fn gather(slices: &Slices<Stamped>) -> Vec<Stamp> {
    let mut stamps = Vec::with_capacity(rules::sectors_of(slices));
    for slice in slices {
        let (first, count) = (slice.at / SECTOR_BYTES, slice.len / SECTOR_BYTES);
        slice.data.append_to(first as usize, count as usize, &mut stamps);
    }
    stamps
}

fn scatter(slices: &Slices<Stamped>, stamps: &[Stamp]) {
    let mut rest = stamps;
    for slice in slices {
        let (part, behind) = rest.split_at((slice.len / SECTOR_BYTES) as usize);
        slice.data.set((slice.at / SECTOR_BYTES) as usize, part);
        rest = behind;
    }
}

/// The sectors of one block of a transfer's data.
pub(super) fn block_of(stamps: &[Stamp], block: usize) -> [Stamp; BLOCK_SECTORS] {
    let first = block * BLOCK_SECTORS;
    stamps[first..first + BLOCK_SECTORS].try_into().expect("whole blocks")
}
