//! What a block of the simulated cache device holds: stamps or real bytes, and how it tears.

use crate::rng::Rng;
use crate::stamp::{BLOCK_SECTORS, Stamp};
use cinnabar_engine::metadata::MetaPage;
use std::rc::Rc;

const SECTOR: usize = 4096 / BLOCK_SECTORS;

/// What a block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Nothing was ever written here.
    Empty,
    /// Real bytes.
    Meta(Rc<MetaPage>),
    Data([Stamp; BLOCK_SECTORS]),
}

impl Contents {
    pub(super) fn meta(page: &MetaPage) -> Self {
        Self::Meta(Rc::new(page.clone()))
    }

    /// Read as data; metadata are garbage then.
    pub(super) fn stamps(&self) -> [Stamp; BLOCK_SECTORS] {
        match self {
            Self::Empty => [Stamp::ZERO; BLOCK_SECTORS],
            Self::Meta(_) => [Stamp::POISON; BLOCK_SECTORS],
            Self::Data(stamps) => *stamps,
        }
    }

    /// Read as bytes; a stamp's bytes are its own, again and again.
    pub(super) fn page(&self) -> MetaPage {
        match self {
            Self::Empty => MetaPage::zeroed(),
            Self::Meta(page) => (**page).clone(),
            Self::Data(stamps) => {
                let mut page = MetaPage::zeroed();
                for (sector, stamp) in page.0.chunks_exact_mut(SECTOR).zip(stamps) {
                    for bytes in sector.chunks_exact_mut(8) {
                        bytes.copy_from_slice(&stamp.bits().to_le_bytes());
                    }
                }
                page
            }
        }
    }

    /// This block with some sectors of an older one: what a power cut in the middle of a write leaves.
    pub(super) fn torn(&self, old: &Self, rng: &mut Rng) -> Self {
        let cut = rng.within(1..BLOCK_SECTORS as u64) as usize;
        let in_order = rng.chance(0.5);
        let mut is_old = |sector: usize| if in_order { sector >= cut } else { rng.chance(0.5) };
        if let Self::Data(stamps) = self {
            let (mut mixed, old) = (*stamps, old.stamps());
            for (sector, stamp) in mixed.iter_mut().enumerate() {
                if is_old(sector) {
                    *stamp = old[sector];
                }
            }
            return Self::Data(mixed);
        }
        let (mut page, old) = (self.page(), old.page());
        for sector in 0..BLOCK_SECTORS {
            if is_old(sector) {
                let bytes = sector * SECTOR..(sector + 1) * SECTOR;
                page.0[bytes.clone()].copy_from_slice(&old.0[bytes]);
            }
        }
        Self::meta(&page)
    }

    /// With some bits flipped in one sector or in several.
    pub(super) fn rotten(&self, rng: &mut Rng) -> Self {
        if let Self::Data(stamps) = self {
            let mut stamps = *stamps;
            stamps[rng.below(BLOCK_SECTORS as u64) as usize] = Stamp::POISON;
            return Self::Data(stamps);
        }
        let mut page = self.page();
        let sectors = if rng.chance(0.7) { 1 } else { rng.within(1..9) };
        for _ in 0..sectors {
            let first = rng.below(BLOCK_SECTORS as u64) as usize * SECTOR;
            for _ in 0..rng.within(1..9) {
                let at = first + rng.below(SECTOR as u64) as usize;
                page.0[at] ^= rng.within(1..256) as u8;
            }
        }
        Self::meta(&page)
    }
}
