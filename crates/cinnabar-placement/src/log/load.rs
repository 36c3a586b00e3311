//! The table as a file has it.

use super::page::{self, Kind, NoPage, Page};
use super::{Layout, SNAPSHOT_RECORDS};
use crate::header::{Header, HeaderError};
use crate::mutant::{Mutant, Mutants};
use crate::record::{Record, RecordError, State};
use thiserror::Error;

/// A table that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Of the volume.
    pub header: Header,
    /// Of all extents that aren't absent, in order.
    pub records: Vec<(u32, Record)>,
    pub(super) layout: Layout,
    pub(super) area: u8,
    pub(super) sequence: u64,
    /// The first page of the log without a change.
    pub(super) next: u32,
}

/// Why a table can't be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoadError<E> {
    /// No page could be read.
    #[error("page {page} of the table could not be read")]
    Read {
        /// In the file.
        page: u64,
        /// Why.
        source: E,
    },
    /// Neither area has a head.
    #[error("not the table of a hybrid volume")]
    Foreign,
    /// Written by a newer version.
    #[error("the table has version {0}; this program reads version {version}", version = page::VERSION)]
    Version(u16),
    /// A page that was acknowledged is not there.
    #[error("page {0} of the table is damaged")]
    Damaged(u64),
    /// A record does not belong there.
    #[error("page {page} of the table has a record that can't be")]
    Record {
        /// In the file.
        page: u64,
        /// What is wrong.
        source: RecordError,
    },
    /// The header does not belong there.
    #[error("page {page} of the table has a header that can't be")]
    Header {
        /// In the file.
        page: u64,
        /// What is wrong.
        source: HeaderError,
    },
}

/// Loads a table; `read` gives a page of the file. Each page is read once, but for the heads.
///
/// The newest area with a whole head counts. What an acknowledged change stood in and is damaged makes
/// the table refuse to load: an older area, or a log cut short, would show extents where they were.
///
/// # Errors
/// When the file is no table, a newer version's, or damaged; and when a page can't be read.
pub fn load<E>(
    layout: Layout,
    mutants: Mutants,
    mut read: impl FnMut(u64) -> Result<Page, E>,
) -> Result<Loaded, LoadError<E>> {
    let mut read = |page: u64| read(page).map_err(|source| LoadError::Read { page, source });
    let verify = !mutants.is(Mutant::LogUnverified);
    let (mut newest, mut damaged) = (None, None);
    for area in 0..2 {
        let at = layout.page(area, 0);
        let page = read(at)?;
        match page::label(&page, verify) {
            Ok(label) if label.kind == Kind::Head && label.count == layout.extents => {
                let source = |source| LoadError::Header { page: at, source };
                let header = Header::decode(page::header(&page)).map_err(source)?;
                if newest.is_none_or(|(_, sequence, _)| label.sequence > sequence) {
                    newest = Some((area, label.sequence, header));
                }
            }
            Err(NoPage::Version(version)) => return Err(LoadError::Version(version)),
            Err(NoPage::Foreign) if page.iter().all(|byte| *byte == 0) => {}
            Err(NoPage::Foreign) => damaged = damaged.or(Some(LoadError::Foreign)),
            Ok(_) | Err(NoPage::Damaged) => damaged = Some(LoadError::Damaged(at)),
        }
    }
    let (area, sequence, header) = newest.ok_or(damaged.unwrap_or(LoadError::Foreign))?;
    let mut loaded = Loaded { header, records: Vec::new(), layout, area, sequence, next: 0 };
    let mut table = vec![Record::ABSENT; layout.extents as usize];
    for index in 0..layout.snapshot_pages() {
        let at = layout.page(area, 1 + u64::from(index));
        let page = read(at)?;
        let label = page::label(&page, verify).map_err(|_| LoadError::Damaged(at))?;
        let place = (label.kind, label.sequence, label.index);
        if place != (Kind::Snapshot, sequence, 1 + u64::from(index)) {
            return Err(LoadError::Damaged(at));
        }
        let first = index * SNAPSHOT_RECORDS;
        apply(&mut table, at, page::snapshot(&page, label.count, first))?;
    }
    let mut end = false;
    for log in 0..layout.log_pages {
        let index = layout.log_index(log);
        let at = layout.page(area, index);
        let page = read(at)?;
        let of_log = |label: &page::Label| {
            label.sequence == sequence && matches!(label.kind, Kind::Changes | Kind::Header)
        };
        match page::label(&page, verify) {
            Ok(label) if of_log(&label) && label.index == index => {
                // Pages are written one after the other: one behind a gap says that there was a page.
                if end {
                    return Err(LoadError::Damaged(
                        layout.page(area, layout.log_index(loaded.next)),
                    ));
                }
                if label.kind == Kind::Changes {
                    apply(&mut table, at, page::changes(&page, label.count))?;
                } else {
                    let source = |source| LoadError::Header { page: at, source };
                    loaded.header = Header::decode(page::header(&page)).map_err(source)?;
                }
                loaded.next = log + 1;
            }
            Err(NoPage::Version(version)) => return Err(LoadError::Version(version)),
            Ok(_) | Err(_) => end = true,
        }
    }
    let numbered = table.into_iter().enumerate().map(|(extent, record)| (extent as u32, record));
    loaded.records = numbered.filter(|(_, record)| record.state != State::Absent).collect();
    Ok(loaded)
}

fn apply<E>(
    table: &mut [Record],
    page: u64,
    records: impl Iterator<Item = Result<(u32, Record), RecordError>>,
) -> Result<(), LoadError<E>> {
    for change in records {
        let (extent, record) = change.map_err(|source| LoadError::Record { page, source })?;
        *table.get_mut(extent as usize).ok_or(LoadError::Damaged(page))? = record;
    }
    Ok(())
}
