//! Reading the ring after a stop or a crash: which pages count, where it ends, and whether anything
//! that was durable is missing.

use crate::metadata::MetaPage;
use crate::metadata::journal::{PageHeader, Record, Sector, decode_each};
use crate::mutant::{Mutant, Mutants};

/// No device lives long enough to number a page higher.
pub(crate) const PAGE_MAX: u64 = 1 << 56;

/// What one place of the ring holds.
#[derive(Debug, Default)]
struct Place {
    /// The page, if all of its sectors are of one write.
    page: Option<(PageHeader, Vec<Record>)>,
    /// Headers of its sectors otherwise.
    torn: Vec<PageHeader>,
    /// A sector was never written.
    blank: bool,
    /// A sector is neither old nor new, or is of another era or device.
    damaged: bool,
}

impl Place {
    fn headers(&self) -> impl Iterator<Item = &PageHeader> {
        self.page.iter().map(|page| &page.0).chain(&self.torn)
    }
}

/// Takes in the pages of the ring.
#[derive(Debug)]
pub struct Scan {
    device: u32,
    era: u32,
    /// Records of pages before this one are checked, and not kept.
    from: u64,
    places: Vec<Place>,
}

/// What the ring says.
#[derive(Debug, Default)]
pub struct Read {
    /// First page that counts, and the one to be written next.
    pub start: u64,
    /// See `start`.
    pub next: u64,
    /// The oldest checkpoint that these records go with.
    pub checkpoint: u64,
    /// Records, in order.
    pub records: Vec<Record>,
}

impl Scan {
    /// A scan of the ring of a device, in its present era.
    pub fn new(device: u32, era: u32) -> Self {
        Self::behind(device, era, 0)
    }

    /// The same, to be [read](Self::read) from this page on.
    pub(crate) fn behind(device: u32, era: u32, from: u64) -> Self {
        Self { device, era, from, places: Vec::new() }
    }

    /// Takes in the next pages.
    pub fn take(&mut self, pages: &[MetaPage]) {
        self.take_at(self.places.len() as u64, pages);
    }

    /// Takes in the pages from place `first` of the ring on. Each place is taken in once, in any order.
    pub(crate) fn take_at(&mut self, first: u64, pages: &[MetaPage]) {
        let first = first as usize;
        let end = self.places.len().max(first + pages.len());
        self.places.resize_with(end, Place::default);
        for (at, page) in (first..).zip(pages) {
            self.places[at] = self.place(page);
        }
    }

    fn place(&self, page: &MetaPage) -> Place {
        let mut place = Place::default();
        let mut all = Vec::new();
        decode_each(
            page,
            |header| header.page >= self.from,
            &mut all,
            |sector| match sector {
                Sector::Blank => place.blank = true,
                Sector::Damaged => place.damaged = true,
                Sector::Whole(header, ()) => {
                    let possible = header.page.max(header.first).max(header.tail) <= PAGE_MAX;
                    let ours = header.device == self.device && header.era == self.era;
                    place.damaged |= !possible || !ours;
                    if possible && ours && !place.torn.contains(&header) {
                        place.torn.push(header);
                    }
                }
            },
        );
        if let (&[header], false, false) = (&place.torn[..], place.blank, place.damaged) {
            (place.page, place.torn) = (Some((header, all)), Vec::new());
        }
        place
    }

    fn at(&self, page: u64) -> Option<&(PageHeader, Vec<Record>)> {
        let place = &self.places[(page % self.places.len() as u64) as usize];
        place.page.as_ref().filter(|(header, _)| header.page == page)
    }

    /// Whether the place of page `next` in a ring of so many places, the only one that was taken in, holds
    /// what lay there before that page was written: the whole page of a round before, or what the ring was
    /// formatted with.
    pub(crate) fn is_unwritten(&self, next: u64, places: u64) -> bool {
        let place = self.places.last().and_then(|place| place.page.as_ref());
        place.is_some_and(|(header, _)| header.page < next && header.page % places == next % places)
    }

    /// The records that count if the newest checkpoint covers everything before page `from`, and
    /// pages before `durable` are known to have been durable; nothing if some that were durable
    /// are missing.
    ///
    /// # Panics
    /// If no page was taken in.
    pub fn read(mut self, from: u64, durable: u64, mutants: Mutants) -> Option<Read> {
        assert!(!self.places.is_empty(), "a ring has pages");
        let whole = self.places.iter().filter_map(|place| place.page.as_ref());
        let newest = whole.map(|page| page.0).max_by_key(|header| header.page);
        let start = newest.map_or(from, |newest| newest.tail.max(from));
        let count = self.places.len() as u64;
        let mut next = start;
        while self.at(next).is_some() {
            next += 1;
            if next - start == count {
                return None;
            }
        }
        let trusting = mutants.is(Mutant::JournalGapIgnored);
        let lost = self.is_lost(next) || next < durable || self.is_strange(next, mutants);
        if lost && !trusting {
            return None;
        }
        let checkpoint = if next > start { self.at(next - 1)?.0.checkpoint } else { 0 };
        let mut records = Vec::new();
        for page in start..next {
            let place = &mut self.places[(page % count) as usize];
            records.extend(place.page.take().into_iter().flat_map(|page| page.1));
        }
        assert!(next - start < count, "the page to be written next is none that counts");
        Some(Read { start, next, checkpoint, records })
    }

    /// Whether page `next` must have been durable: a page was begun after that, or one of its own
    /// write is not where it belongs. What else lies behind the gap is of the write under way.
    fn is_lost(&self, next: u64) -> bool {
        let count = self.places.len() as u64;
        (0..).zip(&self.places).any(|(at, place)| {
            let lost = |header: &PageHeader| {
                header.page > next && header.first > next
                    || header.page >= next && header.page % count != at
            };
            place.headers().any(lost)
        })
    }

    /// Whether the place of page `next` holds what no write that was cut short leaves there: it has
    /// sectors of that page and of the one before it there, and none else. Only a ring that was
    /// formatted by an earlier version has blank places, until it has been written once.
    fn is_strange(&self, next: u64, mutants: Mutants) -> bool {
        let count = self.places.len() as u64;
        let place = &self.places[(next % count) as usize];
        if mutants.is(Mutant::JournalEndTrusted) {
            return place.damaged;
        }
        let stray = |header: &PageHeader| header.page % count != next % count || header.page > next;
        place.damaged || place.blank && next > count || place.headers().any(stray)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 8;

    fn page(number: u64, first: u64, tail: u64) -> MetaPage {
        let header = PageHeader { device: 1, era: 1, page: number, first, tail, checkpoint: 0 };
        let record = Record::Dropped { incarnation: number as u32 };
        header.encode(&mut [record].iter().peekable()).0
    }

    /// A ring with these pages written in order, each a write of its own.
    fn ring(numbers: std::ops::Range<u64>) -> Vec<MetaPage> {
        let mut ring = vec![MetaPage::zeroed(); PAGES as usize];
        for number in numbers {
            ring[(number % PAGES) as usize] = page(number, number, 1);
        }
        ring
    }

    /// The same of a ring that was formatted by this version.
    fn formatted(numbers: std::ops::Range<u64>) -> Vec<MetaPage> {
        let mut ring: Vec<_> =
            (0..PAGES).map(|at| PageHeader::formatted(1, 1, PAGES, at)).collect();
        for number in numbers {
            ring[(number % PAGES) as usize] = page(number, number, PAGES + 1);
        }
        ring
    }

    fn read(ring: &[MetaPage], from: u64) -> Option<(u64, u64, usize)> {
        read_with(ring, from, 0, Mutants::default())
    }

    fn read_with(
        ring: &[MetaPage],
        from: u64,
        durable: u64,
        mutants: Mutants,
    ) -> Option<(u64, u64, usize)> {
        let mut scan = Scan::new(1, 1);
        scan.take(ring);
        let read = scan.read(from, durable, mutants)?;
        Some((read.start, read.next, read.records.len()))
    }

    #[test]
    fn pages_count_from_the_checkpoint_to_the_end() {
        assert_eq!(read(&ring(1..1), 1), Some((1, 1, 0)));
        assert_eq!(read(&ring(1..5), 1), Some((1, 5, 4)));
        assert_eq!(read(&ring(1..12), 9), Some((9, 12, 3)));
    }

    #[test]
    fn a_torn_last_write_is_normal_and_a_hole_before_it_is_not() {
        let mut torn = ring(1..5);
        let (old, new) = (torn[5].clone(), page(5, 5, 1));
        torn[5].0[..1024].copy_from_slice(&new.0[..1024]);
        assert_ne!(torn[5], old);
        assert_eq!(read(&torn, 1), Some((1, 5, 4)));
        let mut multi = ring(1..5);
        multi[6] = page(6, 5, 1);
        assert_eq!(read(&multi, 1), Some((1, 5, 4)), "the first page of that write is missing");
        let mut hole = ring(1..5);
        hole[3] = MetaPage::zeroed();
        assert_eq!(read(&hole, 1), None);
    }

    #[test]
    fn impossible_numbers_are_damage() {
        let mut ring = ring(1..5);
        ring[5] = page(u64::MAX, u64::MAX, 1);
        assert_eq!(read(&ring, 1), None);
        assert_eq!(read(&vec![page(u64::MAX, 1, 1); PAGES as usize], PAGE_MAX), None);
    }

    #[test]
    fn damage_at_the_end_leaves_doubt() {
        let mut ring = ring(1..5);
        ring[4].0[700] ^= 1;
        assert_eq!(read(&ring, 1), None);
    }

    #[test]
    fn a_formatted_ring_is_empty() {
        assert_eq!(read(&formatted(9..9), 9), Some((9, 9, 0)));
        assert_eq!(read(&formatted(9..20), 9), None, "it wrapped without a tail");
        assert_eq!(read(&formatted(9..14), 9), Some((9, 14, 5)));
    }

    /// The page written last, page 13, is at place 5. Before, page 5 was.
    fn misread() -> Vec<(&'static str, MetaPage)> {
        let other_era = PageHeader { device: 1, era: 7, page: 5, first: 5, tail: 1, checkpoint: 0 };
        let other_era = other_era.encode(&mut [].iter().peekable()).0;
        let mut half_blank = page(13, 13, PAGES + 1);
        half_blank.0[2048..].fill(0);
        vec![
            ("zeros", MetaPage::zeroed()),
            ("another place's", page(10, 10, PAGES + 1)),
            ("another place's, dead", page(3, 3, PAGES + 1)),
            ("another era's", other_era),
            ("half of it, and zeros", half_blank),
        ]
    }

    /// Nothing but the page before it is left at its place by a write that was cut short.
    #[test]
    fn a_last_page_that_comes_back_as_something_else_is_noticed() {
        for (what, misread) in misread() {
            let mut ring = formatted(9..14);
            ring[5] = misread;
            assert_eq!(read(&ring, 9), None, "{what}");
        }
        let mut torn = formatted(9..14);
        torn[5] = page(5, 5, 1);
        torn[5].0[..1024].copy_from_slice(&page(13, 13, PAGES + 1).0[..1024]);
        assert_eq!(read(&torn, 9), Some((9, 13, 4)), "torn");
        let mut later = formatted(9..13);
        later[7] = page(13, 13, PAGES + 1);
        assert_eq!(read(&later, 9), None, "written elsewhere");
    }

    #[test]
    fn the_mutant_that_takes_anything_for_a_torn_page_is_found() {
        let mutant = Mutants::only(Mutant::JournalEndTrusted);
        let mut ring = formatted(9..14);
        ring[5] = MetaPage::zeroed();
        assert_eq!(read_with(&ring, 9, 0, mutant), Some((9, 13, 4)), "page 13 is lost");
    }

    /// What was there before can't be told from a write that was cut short, but by what was written
    /// elsewhere since.
    #[test]
    fn pages_known_to_be_durable_are_missed() {
        let mut ring = formatted(9..14);
        ring[5] = formatted(9..9)[5].clone();
        assert_eq!(read(&ring, 9), Some((9, 13, 4)));
        let sound = Mutants::default();
        assert_eq!(read_with(&ring, 9, 14, sound), None);
        assert_eq!(read_with(&formatted(9..14), 9, 14, sound), Some((9, 14, 5)));
        assert_eq!(read_with(&formatted(9..14), 16, 14, sound), Some((16, 16, 0)));
    }
}
