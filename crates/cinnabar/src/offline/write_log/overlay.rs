//! A device of which all that is written stays in RAM: what a start would do to the halves of a mirrored log
//! can be done, and looked at, without doing it.

use cinnabar_backend::{Disk, Memory};
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_writeback::recover::Media;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Result;

/// See the module.
pub(super) struct Overlay<'a> {
    disk: &'a Disk,
    /// Pages by their offset.
    written: RefCell<BTreeMap<u64, MetaPage>>,
}

impl<'a> Overlay<'a> {
    pub(super) fn new(disk: &'a Disk) -> Self {
        Self { disk, written: RefCell::default() }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

impl Media<Memory> for Overlay<'_> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> Result<()> {
        Media::<Memory>::read_pages(self.disk, offset, pages)?;
        let end = offset + pages.len() as u64 * BLOCK_BYTES;
        for (at, page) in self.written.borrow().range(offset..end) {
            pages[((at - offset) / BLOCK_BYTES) as usize].clone_from(page);
        }
        Ok(())
    }

    fn read_data(&self, offset: u64, blocks: u32) -> Result<Memory> {
        let mut pages = vec![MetaPage::zeroed(); blocks as usize];
        self.read_pages(offset, &mut pages)?;
        let memory = Memory::alloc(blocks);
        for (at, page) in (0..).step_by(BLOCK_BYTES as usize).zip(&pages) {
            memory.write_at(at, &page.0);
        }
        Ok(memory)
    }

    fn write_page(&self, offset: u64, page: &MetaPage) -> Result<()> {
        self.written.borrow_mut().insert(offset, page.clone());
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
