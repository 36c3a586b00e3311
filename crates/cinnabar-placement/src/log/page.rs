//! One page, in bytes.

use super::{PAGE_CHANGES, SNAPSHOT_RECORDS};
use crate::header::{HEADER_BYTES, Header};
use crate::record::{RECORD_BYTES, Record, RecordError, State};

pub const PAGE_BYTES: usize = 4096;
pub type Page = [u8; PAGE_BYTES];

pub(super) const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"CHTL";
const BODY: usize = 32;
const CHANGE_BYTES: usize = 4 + RECORD_BYTES;

const _: () = assert!(BODY + SNAPSHOT_RECORDS as usize * RECORD_BYTES <= PAGE_BYTES);
const _: () = assert!(BODY + PAGE_CHANGES * CHANGE_BYTES <= PAGE_BYTES);
const _: () = assert!(BODY + HEADER_BYTES <= PAGE_BYTES);

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head = 1,
    Snapshot = 2,
    Changes = 3,
    Header = 4,
}

/// What every page begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) kind: Kind,
    pub(super) count: u32,
    pub(super) sequence: u64,
    pub(super) index: u64,
}

/// What a page that is not as it was written looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPage {
    /// No page of a table.
    Foreign,
    /// The checksum is another one.
    Damaged,
    /// A newer version's.
    Version(u16),
}

fn put(page: &mut Page, at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

fn array<const N: usize>(page: &Page, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&page[at..at + N]);
    bytes
}

fn sealed(label: Label, body: impl FnOnce(&mut Page)) -> Page {
    let mut page = [0; PAGE_BYTES];
    put(&mut page, 4, &MAGIC);
    put(&mut page, 8, &VERSION.to_le_bytes());
    page[10] = label.kind as u8;
    put(&mut page, 12, &label.count.to_le_bytes());
    put(&mut page, 16, &label.sequence.to_le_bytes());
    put(&mut page, 24, &label.index.to_le_bytes());
    body(&mut page);
    let crc = crc32c::crc32c(&page[4..]);
    put(&mut page, 0, &crc.to_le_bytes());
    page
}

/// A page with a header: the head of an area, or a change of it.
pub(super) fn of_header(label: Label, header: &Header) -> Page {
    sealed(label, |page| put(page, BODY, &header.encode()))
}

/// A page of a snapshot, from the extent `first` on.
pub(super) fn of_snapshot(label: Label, first: u32, get: impl Fn(u32) -> Record) -> Page {
    sealed(label, |page| {
        for i in 0..label.count {
            let record = get(first + i);
            if record.state != State::Absent {
                put(page, BODY + i as usize * RECORD_BYTES, &record.encode(first + i));
            }
        }
    })
}

pub(super) fn of_changes(label: Label, changes: &[(u32, Record)]) -> Page {
    assert!(changes.len() == label.count as usize && changes.len() <= PAGE_CHANGES, "they fit");
    sealed(label, |page| {
        for (i, (extent, record)) in changes.iter().enumerate() {
            let at = BODY + i * CHANGE_BYTES;
            put(page, at, &extent.to_le_bytes());
            if record.state != State::Absent {
                put(page, at + 4, &record.encode(*extent));
            }
        }
    })
}

/// Reads what a page begins with. `verify` is false in a test of the tests alone.
pub(super) fn label(page: &Page, verify: bool) -> Result<Label, NoPage> {
    if page[4..8] != MAGIC {
        return Err(NoPage::Foreign);
    }
    if verify && u32::from_le_bytes(array(page, 0)) != crc32c::crc32c(&page[4..]) {
        return Err(NoPage::Damaged);
    }
    let version = u16::from_le_bytes(array(page, 8));
    if version != VERSION {
        return Err(NoPage::Version(version));
    }
    let kind = match page[10] {
        1 => Kind::Head,
        2 => Kind::Snapshot,
        3 => Kind::Changes,
        4 => Kind::Header,
        _ => return Err(NoPage::Damaged),
    };
    let count = u32::from_le_bytes(array(page, 12));
    let (sequence, index) = (array(page, 16), array(page, 24));
    let (sequence, index) = (u64::from_le_bytes(sequence), u64::from_le_bytes(index));
    let fits = match kind {
        Kind::Head | Kind::Header => true,
        Kind::Snapshot => count <= SNAPSHOT_RECORDS,
        Kind::Changes => count as usize <= PAGE_CHANGES,
    };
    if fits { Ok(Label { kind, count, sequence, index }) } else { Err(NoPage::Damaged) }
}

/// For how many extents the file has room, if this is a head. Of a newer version as well: that is
/// for [`label`] to say.
pub(super) fn room(page: &Page) -> Option<u32> {
    let is_head = page[4..8] == MAGIC && page[10] == Kind::Head as u8;
    is_head.then(|| u32::from_le_bytes(array(page, 12)))
}

pub(super) fn header(page: &Page) -> &[u8] {
    &page[BODY..BODY + HEADER_BYTES]
}

fn record(page: &Page, at: usize, extent: u32) -> Result<Record, RecordError> {
    let bytes: [u8; RECORD_BYTES] = array(page, at);
    if bytes == [0; RECORD_BYTES] {
        return Ok(Record::ABSENT);
    }
    Record::decode(extent, &bytes)
}

/// The records of a snapshot page, from the extent `first` on.
pub(super) fn snapshot(
    page: &Page,
    count: u32,
    first: u32,
) -> impl Iterator<Item = Result<(u32, Record), RecordError>> {
    (0..count).map(move |i| {
        let extent = first + i;
        Ok((extent, record(page, BODY + i as usize * RECORD_BYTES, extent)?))
    })
}

/// The changes of a log page.
pub(super) fn changes(
    page: &Page,
    count: u32,
) -> impl Iterator<Item = Result<(u32, Record), RecordError>> {
    (0..count).map(move |i| {
        let at = BODY + i as usize * CHANGE_BYTES;
        let extent = u32::from_le_bytes(array(page, at));
        Ok((extent, record(page, at + 4, extent)?))
    })
}
