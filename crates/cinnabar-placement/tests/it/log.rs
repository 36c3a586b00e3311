//! The table's file over a disk that may lose, tear and reorder what was not flushed.

use cinnabar_placement::log::{
    Layout, LoadError, Loaded, PAGE_BYTES, PAGE_CHANGES, Page, Step, Writer, load,
};
use cinnabar_placement::mutant::Mutants;
use cinnabar_placement::{Geometry, Header, Pool, Record, Table};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::convert::Infallible;

const EXTENTS: u32 = 600;

struct Disk {
    pages: Vec<Page>,
    /// Written since the last flush.
    open: Vec<(u64, Box<Page>)>,
    rng: Xoshiro256PlusPlus,
}

impl Disk {
    fn new(seed: u64, layout: Layout) -> Self {
        let pages = vec![[0; PAGE_BYTES]; layout.pages() as usize];
        Self { pages, open: Vec::new(), rng: SeedableRng::seed_from_u64(seed) }
    }

    /// Carries steps out; at some of them the power fails, with this chance.
    fn carry_out(&mut self, steps: Vec<Step>, cut: f64) -> bool {
        for step in steps {
            if self.rng.random_bool(cut) {
                return false;
            }
            match step {
                Step::Write(at, page) => self.open.push((at, page)),
                Step::Flush => {
                    for (at, page) in self.open.drain(..) {
                        self.pages[at as usize] = *page;
                    }
                }
            }
        }
        true
    }

    /// Of what was not flushed each page is there, or not, or torn.
    fn power_cut(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        while !open.is_empty() {
            let (at, page) = open.swap_remove(self.rng.random_range(0..open.len()));
            let there = &mut self.pages[at as usize];
            match self.rng.random_range(0..3) {
                0 => {}
                1 => *there = *page,
                _ => {
                    let torn = self.rng.random_range(1..8) * 512;
                    there[..torn].copy_from_slice(&page[..torn]);
                }
            }
        }
    }

    fn load(&self, layout: Layout, mutants: Mutants) -> Result<Loaded, LoadError<Infallible>> {
        load(layout, mutants, |at| Ok(self.pages[at as usize]))
    }
}

fn geometry() -> Geometry {
    Geometry::new(u64::from(EXTENTS) << 22, 22).expect("a size")
}

/// What the record of an extent may become.
fn changed(record: Record, rng: &mut Xoshiro256PlusPlus) -> Record {
    use cinnabar_placement::State::{Absent, Cleaning, Copying, Dropping, Fresh, Stable};
    match record.state {
        Absent => record.allocated(Pool::Slow, rng.random_range(1..9)),
        Fresh => record.settled(),
        Stable if rng.random_bool(0.1) => record.dropping(),
        Stable => record.copying(),
        Copying if rng.random() => record.flipped(),
        Copying => record.aborted(),
        Cleaning => record.cleaned(),
        Dropping => Record::ABSENT,
    }
}

/// One run: owners one after the other, each until the power fails.
pub(crate) fn run(seed: u64, mutants: Mutants) -> Result<(), String> {
    let layout = Layout::new(EXTENTS, 8).expect("a layout");
    let mut disk = Disk::new(seed, layout);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let mut header = Header::new([1; 16], geometry(), 5 << 22);
    let (_, steps) = Writer::create(layout, &header, mutants);
    assert!(disk.carry_out(steps, 0.0), "nothing fails yet");
    let mut table = Table::new(geometry());
    // What the last owner appended and did not see done.
    let mut doubt: (Vec<_>, Option<Header>) = (Vec::new(), None);
    for _ in 0..rng.random_range(1..12) {
        let loaded = disk.load(layout, mutants).map_err(|e| e.to_string())?;
        let mut table_or = table.clone();
        for (extent, record) in &doubt.0 {
            table_or.set(*extent, *record);
        }
        let is = |table: &Table| {
            let there = (0..EXTENTS).map(|extent| (extent, table.get(extent)));
            there.filter(|(_, r)| *r != Record::ABSENT).eq(loaded.records.iter().copied())
        };
        if is(&table_or) {
            table = table_or;
        } else if !is(&table) {
            return Err("records are lost, or old".into());
        }
        if loaded.header != header && Some(loaded.header) != doubt.1 {
            return Err(format!("the header is {:?} instead of {header:?}", loaded.header));
        }
        let next = loaded.header.taken_over();
        let (mut writer, steps) = Writer::open(&loaded, &next, &table, mutants);
        let cut = rng.random_range(0.0..0.2_f64).powi(2);
        if disk.carry_out(steps, cut) {
            header = next;
            doubt = (session(&mut writer, &mut disk, &mut table, next, cut, &mut rng), None);
        } else {
            header = loaded.header;
            doubt = (Vec::new(), Some(next));
        }
        disk.power_cut();
    }
    Ok(())
}

/// An owner, until the power fails; what it was about to change.
fn session(
    writer: &mut Writer,
    disk: &mut Disk,
    table: &mut Table,
    header: Header,
    cut: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<(u32, Record)> {
    for _ in 0..rng.random_range(1..60) {
        if writer.wants_room() {
            let mut steps = Vec::new();
            for _ in 0..rng.random_range(1..4) {
                if !writer.prepare(table, &header, &mut steps) {
                    break;
                }
            }
            if !disk.carry_out(steps, cut) {
                return Vec::new();
            }
        }
        let count = if rng.random() { 3 } else { rng.random_range(1..=PAGE_CHANGES) };
        let mut changes: Vec<(u32, Record)> = Vec::new();
        for _ in 0..count {
            let hot = if rng.random() { 30 } else { EXTENTS };
            let extent = rng.random_range(0..hot);
            if changes.iter().all(|(other, _)| *other != extent) {
                changes.push((extent, changed(table.get(extent), rng)));
            }
        }
        let Ok(steps) = writer.append(&changes) else { continue };
        if !disk.carry_out(steps, cut) {
            return changes;
        }
        for (extent, record) in changes {
            table.set(extent, record);
        }
    }
    Vec::new()
}

#[test]
fn what_is_no_table_or_damaged_or_newer_is_refused() {
    let layout = Layout::new(EXTENTS, 8).expect("a layout");
    let mut disk = Disk::new(0, layout);
    let get = |disk: &Disk| disk.load(layout, Mutants::NONE);
    assert_eq!(get(&disk), Err(LoadError::Foreign));
    disk.pages[0] = [7; PAGE_BYTES];
    assert_eq!(get(&disk), Err(LoadError::Foreign));
    let header = Header::new([1; 16], geometry(), 0);
    let (mut writer, steps) = Writer::create(layout, &header, Mutants::NONE);
    disk.carry_out(steps, 0.0);
    let fresh = Record::ABSENT.allocated(Pool::Slow, 1);
    for extent in 0..3 {
        let steps = writer.append(&[(extent, fresh)]).expect("room");
        disk.carry_out(steps, 0.0);
    }
    assert_eq!(get(&disk).map(|loaded| loaded.records.len()), Ok(3));
    let whole = disk.pages.clone();
    let log = whole.iter().rposition(|page| page[10] == 3).expect("a page of changes");
    // The last one may be torn; one behind which there is another was acknowledged.
    disk.pages[log][40] ^= 1;
    assert_eq!(get(&disk).map(|loaded| loaded.records.len()), Ok(2));
    disk.pages.clone_from(&whole);
    disk.pages[log - 1][40] ^= 1;
    assert_eq!(get(&disk), Err(LoadError::Damaged(log as u64 - 1)));
    disk.pages.clone_from(&whole);
    disk.pages[2][40] ^= 1;
    assert_eq!(get(&disk), Err(LoadError::Damaged(2)), "a snapshot page");
    disk.pages.clone_from(&whole);
    disk.pages[0][8] = 2;
    assert_eq!(get(&disk), Err(LoadError::Damaged(0)), "a checksum counts before a version");
    assert!(Layout::new(0, 8).is_none() && Layout::new(5, 3).is_none());
}
