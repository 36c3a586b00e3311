//! A simulated cache device: blocks of stamps (cached data) or of real bytes (metadata).
//!
//! Called through [`Media`](super::Media), and by drivers that let its blocks rot.

use crate::dice::Dice;
use crate::medium::rules;
use crate::medium::transfer::{Transfer, block_of};
use crate::stamp::{BLOCK_SECTORS, Stamp};
use cinnabar_engine::IoOp;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use std::ops::Range;

/// What a block holds.
#[derive(Clone, Debug)]
enum Cell {
    /// Nothing was ever written here.
    Empty,
    /// Real bytes.
    Meta(Box<MetaPage>),
    /// Stamps.
    Data {
        stamps: [Stamp; BLOCK_SECTORS],
        /// Changed behind the engine's back.
        rotten: bool,
    },
}

/// A cache device.
#[derive(Debug)]
pub struct CacheDevice {
    cells: Vec<Cell>,
    rotten_reads: u64,
    data_blocks_written: u64,
    meta_blocks_written: u64,
}

impl CacheDevice {
    /// A device of so many blocks whose first ones hold `pages`.
    pub fn new(blocks: u64, pages: &[MetaPage]) -> Self {
        let mut cells = vec![Cell::Empty; blocks as usize];
        for (cell, page) in cells.iter_mut().zip(pages) {
            *cell = Cell::Meta(Box::new(page.clone()));
        }
        Self { cells, rotten_reads: 0, data_blocks_written: 0, meta_blocks_written: 0 }
    }

    /// Its size.
    pub fn blocks(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Rotten blocks handed to the engine so far, each time counted.
    pub fn rotten_reads(&self) -> u64 {
        self.rotten_reads
    }

    /// Blocks written so far: data, metadata.
    pub fn written_blocks(&self) -> (u64, u64) {
        (self.data_blocks_written, self.meta_blocks_written)
    }

    /// The bytes of a block.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn page(&self, block: u64) -> MetaPage {
        let mut page = MetaPage::zeroed();
        match &self.cells[block as usize] {
            Cell::Empty => {}
            Cell::Meta(bytes) => page = (**bytes).clone(),
            Cell::Data { stamps, .. } => {
                for (bytes, stamp) in page.0.chunks_exact_mut(8).zip(stamps.iter().cycle()) {
                    bytes.copy_from_slice(&stamp.bits().to_le_bytes());
                }
            }
        }
        page
    }

    /// Overwrites a block with bytes, behind the engine's back.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn set_page(&mut self, block: u64, page: &MetaPage) {
        self.cells[block as usize] = Cell::Meta(Box::new(page.clone()));
    }

    /// Lets a block of cached data rot, near a random place: bits that flipped, or the contents of
    /// another block, as a misdirected write leaves them. False if there is none.
    pub fn rot(&mut self, dice: &mut Dice) -> bool {
        let Some(victim) = self.data_near(dice.below(self.blocks())) else { return false };
        let Cell::Data { stamps: before, rotten } = self.cells[victim] else { return false };
        let mut after = before;
        if dice.chance(0.5) {
            after[dice.below(BLOCK_SECTORS as u64) as usize] = Stamp::POISON;
        } else if let Some(Cell::Data { stamps, .. }) =
            self.data_near(dice.below(self.blocks())).map(|other| &self.cells[other])
        {
            after = *stamps;
        }
        self.cells[victim] = Cell::Data { stamps: after, rotten: rotten || after != before };
        after != before
    }

    /// Lets every block of cached data rot.
    pub fn rot_everything(&mut self) {
        for cell in &mut self.cells {
            if let Cell::Data { stamps, rotten } = cell {
                stamps[0] = Stamp::POISON;
                *rotten = true;
            }
        }
    }

    fn data_near(&self, block: u64) -> Option<usize> {
        let at = block as usize;
        let is_data = |&index: &usize| matches!(self.cells[index], Cell::Data { .. });
        (at..self.cells.len()).chain(0..at).find(is_data)
    }

    pub(super) fn effect(&mut self, transfer: &mut Transfer, units: Range<usize>) {
        let first = (rules::offset_bytes(&transfer.request.op) / BLOCK_BYTES) as usize;
        for unit in units {
            let block = first + unit;
            match &transfer.request.op {
                IoOp::Read { .. } => {
                    let stamps = self.stamps(block);
                    transfer.data[unit * BLOCK_SECTORS..][..BLOCK_SECTORS].copy_from_slice(&stamps);
                }
                IoOp::ReadMeta { .. } => transfer.pages[unit] = self.page(block as u64),
                IoOp::Write { .. } => self.cells[block] = data_cell(&transfer.data, unit),
                IoOp::WriteMeta { pages, .. } => {
                    self.cells[block] = match pages.get(unit) {
                        Some(page) => Cell::Meta(Box::new(page.clone())),
                        None => data_cell(&transfer.data, unit - pages.len()),
                    };
                }
                IoOp::WriteZeroes { .. } => self.cells[block] = Cell::Empty,
                IoOp::Trim { .. } | IoOp::Flush | IoOp::Prove | IoOp::Distrust => {}
            }
        }
    }

    pub(super) fn finish(&mut self, transfer: &Transfer) {
        if let IoOp::Write { .. } | IoOp::WriteMeta { .. } = transfer.request.op {
            let data = (transfer.data.len() / BLOCK_SECTORS) as u64;
            self.data_blocks_written += data;
            self.meta_blocks_written += transfer.units() as u64 - data;
        }
    }

    /// A block read as data; metadata are garbage then.
    fn stamps(&mut self, block: usize) -> [Stamp; BLOCK_SECTORS] {
        match &self.cells[block] {
            Cell::Empty => [Stamp::ZERO; BLOCK_SECTORS],
            Cell::Meta(_) => [Stamp::POISON; BLOCK_SECTORS],
            Cell::Data { stamps, rotten } => {
                self.rotten_reads += u64::from(*rotten);
                *stamps
            }
        }
    }
}

fn data_cell(stamps: &[Stamp], block: usize) -> Cell {
    Cell::Data { stamps: block_of(stamps, block), rotten: false }
}
