//! What the log's device says of the write memory in use.

use crate::format::{NOTE_PAGE, NUMBERS_END};
use crate::recover::{Media, OpenError, read_each};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::codec::{Reader, Writer};
use cinnabar_engine::units::BLOCK_BYTES;

const MAGIC: u32 = 0x4F4E_4C57;
/// Longest path of a write memory, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// Acknowledged writes may be in this memory, and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Boot of the host: after another one, they are lost.
    pub boot: [u8; 16],
    /// Drawn for this use of the file.
    pub nonce: u64,
    /// Where the file was.
    pub path: String,
}

/// A page of the note: it counts if its stamp is the higher one.
struct Page {
    stamp: u64,
    note: Option<Note>,
}

fn encode(uuid: [u8; 16], Page { stamp, note }: &Page) -> MetaPage {
    let mut page = MetaPage::zeroed();
    let mut w = Writer::new(&mut page.0);
    w.u32(MAGIC);
    w.u64(*stamp);
    w.bytes(&uuid);
    w.u8(u8::from(note.is_some()));
    if let Some(Note { boot, nonce, path }) = note {
        assert!(path.len() <= PATH_BYTES_MAX, "a path that fits");
        w.bytes(boot);
        w.u64(*nonce);
        w.u16(path.len() as u16);
        w.bytes(path.as_bytes());
    }
    w.seal();
    page
}

fn decode(page: &MetaPage, of: [u8; 16]) -> Option<Page> {
    let mut r = Reader::verified(&page.0)?;
    if r.u32() != MAGIC {
        return None;
    }
    let (stamp, uuid, in_use) = (r.u64(), r.array::<16>(), r.u8());
    if stamp >= NUMBERS_END || uuid != of || in_use > 1 {
        return None;
    }
    let note = if in_use == 1 {
        let (boot, nonce, length) = (r.array(), r.u64(), usize::from(r.u16()));
        let path = r.array::<PATH_BYTES_MAX>();
        let path = std::str::from_utf8(path.get(..length)?).ok()?.to_owned();
        Some(Note { boot, nonce, path })
    } else {
        None
    };
    Some(Page { stamp, note })
}

/// What a page of the note says, if it is one of this log: its stamp, and the memory in use.
pub fn of_page(page: &MetaPage, uuid: [u8; 16]) -> Option<(u64, Option<Note>)> {
    decode(page, uuid).map(|Page { stamp, note }| (stamp, note))
}

fn newest<P>(media: &impl Media<P>, uuid: [u8; 16]) -> Result<Page, OpenError> {
    let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
    read_each(media, NOTE_PAGE * BLOCK_BYTES, &mut pages)?;
    let found = pages.iter().filter_map(|page| decode(page, uuid));
    match found.max_by_key(|page| page.stamp) {
        Some(page) => Ok(page),
        // A crash can tear one of them, when it is the first.
        None if pages.iter().any(|page| *page == MetaPage::zeroed()) => {
            Ok(Page { stamp: 0, note: None })
        }
        None => Err(OpenError::Note),
    }
}

/// Which memory holds writes of this log, if any does.
///
/// # Errors
/// If the device fails, or both pages of the note are damaged.
pub fn read<P>(media: &impl Media<P>, uuid: [u8; 16]) -> Result<Option<Note>, OpenError> {
    Ok(newest(media, uuid)?.note)
}

/// Has the note say this, durably: in both its pages, one after the other.
///
/// # Errors
/// If the device fails.
pub(super) fn write<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    note: Option<&Note>,
) -> Result<(), OpenError> {
    let mut page = newest(media, uuid)?;
    page.note = note.cloned();
    for _ in 0..2 {
        page.stamp += 1;
        let at = (NOTE_PAGE + page.stamp % 2) * BLOCK_BYTES;
        media.write_page(at, &encode(uuid, &page))?;
        media.flush()?;
    }
    Ok(())
}
