//! The table in a local file: two areas, each a snapshot of all records and a log of changes.
//!
//! All pages have 4 KiB, and begin with 32 bytes:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | CRC-32C of all that follows |
//! | 4 | 4 | `CHTL` |
//! | 8 | 2 | version, 1 |
//! | 10 | 1 | kind: 1 head of an area, 2 snapshot, 3 records, 4 header |
//! | 11 | 1 | 0 |
//! | 12 | 4 | records that follow; of a head the extents for which the file has room |
//! | 16 | 8 | sequence of the area: higher than that of the other one; its upper half is the owner's epoch |
//! | 24 | 8 | number of the page in the area |
//!
//! An area is its head, with the volume's [`Header`](crate::Header) behind the 32 bytes; as many
//! snapshot pages as there is room for extents, with 254 records each (zeros are an absent extent); and
//! log pages. A log page is written once: with up to 203 changes, each the extent's number (4 bytes) and
//! its record (zeros: it is absent now), or with a header. Nothing is added to a page that was
//! acknowledged, so a torn page costs nothing that was.
//!
//! When a log is half full the other area is prepared while changes go on: each change is written to
//! both logs, and the snapshot takes each record as it is when its page is made. Records are absolute,
//! so a log that has all changes since the snapshot was begun makes up for that. The head comes last,
//! after a flush: an area counts from then. The other area's head is zeroed before anything is written
//! to the new log alone, so that damage never makes an old table the newest one.

mod load;
mod page;
mod writer;

pub use load::{LoadError, Loaded, load};
pub use page::{PAGE_BYTES, Page};
pub use writer::{Full, Step, Writer};

use crate::limits::EXTENTS_MAX;

/// Records of a snapshot page.
const SNAPSHOT_RECORDS: u32 = 254;
/// Changes of a log page.
pub const PAGE_CHANGES: usize = 203;

/// Where pages are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Extents for which there is room: a volume can't have more in this file.
    extents: u32,
    /// Pages of an area's log.
    log_pages: u32,
}

impl Layout {
    /// Room for `extents`, and logs of `log_pages`; `None` if one of them is out of its range: up to
    /// [`EXTENTS_MAX`], and from 4 to 65,536.
    pub fn new(extents: u32, log_pages: u32) -> Option<Self> {
        let fits = (1..=EXTENTS_MAX).contains(&extents) && (4..=1 << 16).contains(&log_pages);
        fits.then_some(Self { extents, log_pages })
    }

    /// The layout of a file with so many pages, as a head in it has it; `read` gives a page. `None`: neither
    /// area has a head, or the file is no table. What was found is for [`load()`] to verify.
    ///
    /// # Errors
    /// When a page can't be read.
    pub fn find<E>(
        pages: u64,
        mut read: impl FnMut(u64) -> Result<Page, E>,
    ) -> Result<Option<Self>, E> {
        if pages < 2 || !pages.is_multiple_of(2) {
            return Ok(None);
        }
        for head in [0, pages / 2] {
            let Some(extents) = page::room(&read(head)?) else { continue };
            let others = 1 + u64::from(extents.div_ceil(SNAPSHOT_RECORDS));
            let log_pages = (pages / 2).checked_sub(others).and_then(|n| u32::try_from(n).ok());
            let layout = log_pages.and_then(|log_pages| Self::new(extents, log_pages));
            if layout.is_some() {
                return Ok(layout);
            }
        }
        Ok(None)
    }

    /// Extents for which there is room.
    pub fn extents(self) -> u32 {
        self.extents
    }

    /// Pages of an area's log.
    pub fn log_pages(self) -> u32 {
        self.log_pages
    }

    /// Snapshot pages of an area.
    fn snapshot_pages(self) -> u32 {
        self.extents.div_ceil(SNAPSHOT_RECORDS)
    }

    fn area_pages(self) -> u64 {
        1 + u64::from(self.snapshot_pages()) + u64::from(self.log_pages)
    }

    /// Pages of the file.
    pub fn pages(self) -> u64 {
        2 * self.area_pages()
    }

    /// The page of the file that is page `index` of an area.
    fn page(self, area: u8, index: u64) -> u64 {
        assert!(area < 2 && index < self.area_pages(), "a page of the file");
        u64::from(area) * self.area_pages() + index
    }

    /// The page of an area that is page `at` of its log.
    fn log_index(self, at: u32) -> u64 {
        1 + u64::from(self.snapshot_pages()) + u64::from(at)
    }
}
