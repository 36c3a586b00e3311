//! What is written to the file, in which order.

use super::load::Loaded;
use super::page::{self, Kind, Label, PAGE_BYTES, Page};
use super::{Layout, PAGE_CHANGES, SNAPSHOT_RECORDS};
use crate::header::Header;
use crate::mutant::{Mutant, Mutants};
use crate::record::Record;
use crate::table::Table;
use thiserror::Error;

/// What the driver does, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a page of the file.
    Write(u64, Box<Page>),
    /// Make all that was written durable.
    Flush,
}

/// The log is full: nothing is written before the other area is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the log of the table is full")]
pub struct Full;

/// Writes changes, and prepares the other area in time.
///
/// One batch is under way at a time: the driver carries out all steps of a call before the next one.
#[derive(Clone, Debug)]
pub struct Writer {
    layout: Layout,
    mutants: Mutants,
    area: u8,
    sequence: u64,
    /// The next page of the log.
    next: u32,
    preparing: Option<Preparing>,
    /// The last batch: the table must have it before a snapshot is made of it.
    last: Vec<(u32, Record)>,
}

/// How far the other area is prepared.
#[derive(Clone, Copy, Debug)]
struct Preparing {
    sequence: u64,
    /// The next snapshot page.
    at: u32,
    /// The next page of its log.
    next: u32,
}

impl Writer {
    /// A file for a volume that was never written; the steps make it.
    ///
    /// # Panics
    /// If the volume has more extents than the layout.
    pub fn create(layout: Layout, header: &Header, mutants: Mutants) -> (Self, Vec<Step>) {
        assert!(header.records() <= layout.extents, "the layout has room for the volume");
        let (area, sequence, next, last) = (1, 0, 0, Vec::new());
        let mut writer = Self { layout, mutants, area, sequence, next, preparing: None, last };
        let mut steps = Vec::new();
        let table = Table::new(header.geometry);
        while writer.prepare(&table, header, &mut steps) {}
        (writer, steps)
    }

    /// Goes on behind what was loaded, as the owner that `header` names; it is the owner after the steps,
    /// and what was loaded is durable then. If former owners left a full log, the other area is
    /// prepared at once.
    pub fn open(
        loaded: &Loaded,
        header: &Header,
        table: &Table,
        mutants: Mutants,
    ) -> (Self, Vec<Step>) {
        let Loaded { layout, area, sequence, next, .. } = *loaded;
        let last = Vec::new();
        let mut writer = Self { layout, mutants, area, sequence, next, preparing: None, last };
        // What was loaded may not be durable yet.
        let mut steps = vec![Step::Flush];
        writer.close(1 - area, &mut steps);
        if let Ok(append) = writer.append_header(header) {
            steps.extend(append);
        } else {
            while writer.prepare(table, header, &mut steps) {}
        }
        (writer, steps)
    }

    /// Where pages are.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether the other area is to be prepared: call [`Writer::prepare`] now and then.
    pub fn wants_room(&self) -> bool {
        self.preparing.is_some() || self.next >= self.layout.log_pages / 2
    }

    /// Changes of records, at most [`PAGE_CHANGES`]; durable after the steps.
    ///
    /// # Errors
    /// When the log is full.
    ///
    /// # Panics
    /// If there are more changes, or one of an extent for which there is no room.
    pub fn append(&mut self, changes: &[(u32, Record)]) -> Result<Vec<Step>, Full> {
        assert!((1..=PAGE_CHANGES).contains(&changes.len()), "a batch fits a page");
        let inside = |(extent, _): &(u32, Record)| *extent < self.layout.extents;
        assert!(changes.iter().all(inside), "the file has room for the extent");
        self.last = changes.to_vec();
        let count = changes.len() as u32;
        self.log(Kind::Changes, count, |label| page::of_changes(label, changes))
    }

    /// A change of the header; durable after the steps.
    ///
    /// # Errors
    /// When the log is full.
    ///
    /// # Panics
    /// If the volume has more extents than the file has room for.
    pub fn append_header(&mut self, header: &Header) -> Result<Vec<Step>, Full> {
        assert!(header.records() <= self.layout.extents, "the file has room for the volume");
        self.log(Kind::Header, 0, |label| page::of_header(label, header))
    }

    fn log(
        &mut self,
        kind: Kind,
        count: u32,
        page: impl Fn(Label) -> Page,
    ) -> Result<Vec<Step>, Full> {
        if self.next == self.layout.log_pages {
            return Err(Full);
        }
        let mut steps = Vec::new();
        let mut write = |area, sequence, at| {
            let index = self.layout.log_index(at);
            let page = page(Label { kind, count, sequence, index });
            steps.push(Step::Write(self.layout.page(area, index), Box::new(page)));
        };
        write(self.area, self.sequence, self.next);
        self.next += 1;
        if let Some(of) = &mut self.preparing
            && !self.mutants.is(Mutant::LogNotDoubled)
        {
            write(1 - self.area, of.sequence, of.next);
            of.next += 1;
        }
        steps.push(Step::Flush);
        Ok(steps)
    }

    /// Prepares a page of the other area, and turns to it when it is complete; whether there is more.
    ///
    /// # Panics
    /// If `table` has not what was appended last.
    pub fn prepare(&mut self, table: &Table, header: &Header, steps: &mut Vec<Step>) -> bool {
        let get = |extent| if extent < table.len() { table.get(extent) } else { Record::ABSENT };
        let begun = Preparing { sequence: self.next_sequence(header), at: 0, next: 0 };
        let Preparing { sequence, at, next } = *self.preparing.get_or_insert(begun);
        if at == 0 {
            let has = |(extent, record): &(u32, Record)| get(*extent) == *record;
            assert!(self.last.iter().all(has), "the table has what was appended");
        }
        let area = 1 - self.area;
        if at < self.layout.snapshot_pages() {
            let (first, index) = (at * SNAPSHOT_RECORDS, 1 + u64::from(at));
            let count = SNAPSHOT_RECORDS.min(self.layout.extents - first);
            let label = Label { kind: Kind::Snapshot, count, sequence, index };
            let page = page::of_snapshot(label, first, get);
            steps.push(Step::Write(self.layout.page(area, index), Box::new(page)));
            self.preparing = Some(Preparing { at: at + 1, sequence, next });
            return true;
        }
        let label = Label { kind: Kind::Head, count: self.layout.extents, sequence, index: 0 };
        let head = Box::new(page::of_header(label, header));
        let head = Step::Write(self.layout.page(area, 0), head);
        if self.mutants.is(Mutant::LogHeadEarly) {
            steps.extend([head, Step::Flush]);
        } else {
            steps.extend([Step::Flush, head, Step::Flush]);
        }
        self.close(self.area, steps);
        (self.area, self.sequence, self.next, self.preparing) = (area, sequence, next, None);
        false
    }

    /// Takes an area out of use before the other one has what it has not: if the other one's head were
    /// damaged one day, this one would be loaded, and is old.
    fn close(&self, area: u8, steps: &mut Vec<Step>) {
        let head = self.layout.page(area, 0);
        steps.extend([Step::Write(head, Box::new([0; PAGE_BYTES])), Step::Flush]);
    }

    /// Of the area that is prepared next. A former owner may have prepared it in part, and its pages
    /// must not be taken for those of this time: each owner has sequences of its own.
    fn next_sequence(&self, header: &Header) -> u64 {
        if self.mutants.is(Mutant::LogSequenceReused) {
            return self.sequence + 1;
        }
        assert!(header.epoch < 1 << 32, "fewer than 2^32 owners");
        (self.sequence + 1).max(header.epoch << 32)
    }
}
