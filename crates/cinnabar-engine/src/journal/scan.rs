//! Reading the ring after a stop or a crash: which pages count, where it ends, and whether anything
//! that was durable is missing.
//!
//! Called by recovery and by offline tools.

use crate::metadata::MetaPage;
use crate::metadata::journal::{PageHeader, Record, Sector, decode};

/// No device lives long enough to number a page higher.
pub(crate) const PAGE_MAX: u64 = 1 << 56;

/// What one place of the ring holds.
#[derive(Debug)]
struct Place {
    /// The page, if all of its sectors are of one write.
    page: Option<(PageHeader, Vec<Record>)>,
    /// A sector is neither old nor new.
    damaged: bool,
}

/// Takes in the pages of the ring, in order.
#[derive(Debug)]
pub struct Scan {
    device: u32,
    era: u32,
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
        Self { device, era, places: Vec::new() }
    }

    /// Takes in the next pages.
    pub fn take(&mut self, pages: &[MetaPage]) {
        for page in pages {
            let place = self.place(page);
            self.places.push(place);
        }
    }

    fn place(&self, page: &MetaPage) -> Place {
        let sectors = decode(page);
        let damaged = sectors.contains(&Sector::Damaged);
        let mut whole: Option<(PageHeader, Vec<Record>)> = None;
        for sector in sectors {
            let Sector::Whole(header, records) = sector else {
                return Place { page: None, damaged };
            };
            if header.page.max(header.first).max(header.tail) > PAGE_MAX {
                return Place { page: None, damaged: true };
            }
            let ours = header.device == self.device && header.era == self.era;
            match &mut whole {
                _ if !ours => return Place { page: None, damaged },
                None => whole = Some((header, records)),
                Some((first, all)) if *first == header => all.extend(records),
                Some(_) => return Place { page: None, damaged },
            }
        }
        Place { page: whole, damaged }
    }

    fn at(&self, page: u64) -> Option<&(PageHeader, Vec<Record>)> {
        let place = &self.places[(page % self.places.len() as u64) as usize];
        place.page.as_ref().filter(|(header, _)| header.page == page)
    }

    /// The records that count if the newest checkpoint covers everything before page `from`;
    /// nothing if some that were durable are missing. `trusting` is the mutant that doesn't care.
    ///
    /// # Panics
    /// If no page was taken in.
    pub fn read(mut self, from: u64, trusting: bool) -> Option<Read> {
        let headers = || self.places.iter().filter_map(|place| place.page.as_ref()).map(|p| &p.0);
        let newest = headers().max_by_key(|header| header.page).copied();
        let start = newest.map_or(from, |newest| newest.tail.max(from));
        let mut next = start;
        while self.at(next).is_some() {
            next += 1;
            if next - start == self.places.len() as u64 {
                return None;
            }
        }
        // What lies behind the gap belongs to the write that was under way, or something is lost.
        let lost = headers().any(|header| header.page > next && header.first > next);
        let gap = (next % self.places.len() as u64) as usize;
        if (lost || self.places[gap].damaged) && !trusting {
            return None;
        }
        let checkpoint = if next > start { self.at(next - 1)?.0.checkpoint } else { 0 };
        let count = self.places.len() as u64;
        let mut records = Vec::new();
        for page in start..next {
            let place = &mut self.places[(page % count) as usize];
            records.extend(place.page.take().into_iter().flat_map(|page| page.1));
        }
        Some(Read { start, next, checkpoint, records })
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

    fn read(ring: &[MetaPage], from: u64) -> Option<(u64, u64, usize)> {
        let mut scan = Scan::new(1, 1);
        scan.take(ring);
        scan.read(from, false).map(|read| (read.start, read.next, read.records.len()))
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
}
