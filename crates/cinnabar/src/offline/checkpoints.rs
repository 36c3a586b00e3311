//! The two checkpoint slots, page by page.

use super::image::PAGES_A_READ;
use super::{Source, Watch};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::checkpoint::{Head, Page};
use cinnabar_engine::metadata::superblock::Superblock;
use std::ops::ControlFlow;

/// What a slot begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotHead {
    /// Zeros: never written.
    Blank,
    /// A head that goes with this device.
    Good(u64, Head),
    /// Something else: damaged, being written when the daemon died, or of another device.
    Bad,
}

/// A page of a checkpoint.
#[derive(Debug)]
pub struct SlotPage {
    /// Its position; the head is at 0.
    pub position: u32,
    /// What it says; `None`: damaged, or not of this checkpoint.
    pub page: Option<Page>,
}

/// Reads the head of slot `slot` (0 or 1).
pub fn head(source: &(impl Source + ?Sized), superblock: &Superblock, slot: usize) -> SlotHead {
    let geometry = &superblock.geometry;
    let mut page = [MetaPage::zeroed()];
    if source.read(geometry.checkpoints.0[slot], &mut page) > 0 {
        return SlotHead::Bad;
    }
    let [page] = page;
    if page.0.iter().all(|byte| *byte == 0) {
        return SlotHead::Blank;
    }
    let Some((sequence, head, _)) = Page::decode_head(&page) else { return SlotHead::Bad };
    // What follows is read by these numbers: they must fit the slot. An empty one has no slots.
    let fits = (head.slots == 0 || head.slots == geometry.slots())
        && head.segments <= geometry.segments
        && head.pages() < geometry.checkpoints.1
        && sequence % 2 == slot as u64;
    if fits { SlotHead::Good(sequence, head) } else { SlotHead::Bad }
}

/// Reads what follows a head, page by page, until `visit` breaks it off.
pub fn walk(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    (sequence, head): (u64, Head),
    watch: &mut dyn Watch,
    visit: &mut dyn FnMut(SlotPage) -> ControlFlow<()>,
) {
    let base = superblock.geometry.checkpoints.0[(sequence % 2) as usize];
    let total = 1 + head.pages();
    let mut pages = vec![MetaPage::zeroed(); PAGES_A_READ];
    let mut position = 1;
    while position < total {
        watch.at("checkpoint pages", position, total);
        let count = (total - position).min(PAGES_A_READ as u64);
        source.read(base + position, &mut pages[..count as usize]);
        for (at, page) in (position..).zip(&pages[..count as usize]) {
            let decoded = Page::decode(page, sequence, at as u32);
            if visit(SlotPage { position: at as u32, page: decoded }).is_break() {
                return;
            }
        }
        position += count;
    }
    watch.at("checkpoint pages", total, total);
}
