//! Images that somebody has tampered with, checksums put right: a check and a dump come to an end and
//! take nothing at its word.

use super::offline::used_site;
use super::offline_shards::sharded_site;
use super::rig::Site;
use cinnabar::offline::Source;
use cinnabar::offline::check::{CheckOptions, check};
use cinnabar::offline::dump::{DumpOptions, Part, dump};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Lines of a dump that are asked for; a real one of this device has some thousand.
const LINES_MAX: u64 = 1_000_000;
const ROUNDS: u64 = 500;

/// A generator that gives the same numbers each time.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }
}

/// A good image with some pages changed, and perhaps its end cut off.
struct Tampered<'a> {
    good: &'a [MetaPage],
    changed: BTreeMap<u64, MetaPage>,
    blocks: u64,
}

impl Source for Tampered<'_> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, first: u64, pages: &mut [MetaPage]) -> u64 {
        self.good[..self.blocks as usize].read(first, pages);
        for (block, page) in self.changed.range(first..first + pages.len() as u64) {
            if *block < self.blocks {
                pages[(block - first) as usize].0.copy_from_slice(&page.0);
            }
        }
        0
    }
}

impl<'a> Tampered<'a> {
    fn new(good: &'a [MetaPage]) -> Self {
        Self { good, changed: BTreeMap::new(), blocks: good.len() as u64 }
    }

    fn page(&mut self, block: usize) -> &mut MetaPage {
        self.changed.entry(block as u64).or_insert_with(|| self.good[block].clone())
    }
}

fn image(site: &Site) -> Vec<MetaPage> {
    let bytes = std::fs::read(site.path("cache.img")).expect("the device");
    let pages = bytes.chunks_exact(4096);
    pages.map(|page| MetaPage(page.try_into().expect("a page"))).collect()
}

/// Changes some bytes of a page, mostly in front, where the numbers are; and then lets the checksum of
/// the page, or of the sector, say that all is well, or leaves it.
fn tamper(page: &mut MetaPage, rng: &mut Rng) {
    let sector = if rng.below(2) == 0 { 0 } else { rng.below(8) * 512 };
    for _ in 0..=rng.below(4) {
        let at = sector + if rng.below(3) == 0 { rng.below(512) } else { 4 + rng.below(60) };
        page.0[at.min(4095)] = match rng.below(3) {
            0 => 0xFF,
            1 => page.0[at.min(4095)] ^ 1 << rng.below(8),
            _ => rng.next() as u8,
        };
    }
    let part = match rng.below(5) {
        0 => return,
        1 | 2 => sector..sector + 512,
        _ => 0..4096,
    };
    let crc = crc32c::crc32c(&page.0[part.start + 4..part.end]);
    page.0[part.start..part.start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks and dumps; gives what the next start would do.
fn look(image: &(impl Source + ?Sized), all: bool) -> Option<String> {
    let report = check(image, "image", CheckOptions { all }, &mut ());
    let options = DumpOptions { parts: Part::ALL.to_vec(), entries: true, shard: None };
    let mut lines = 0;
    let _refused = dump(image, "image", &options, &mut (), &mut |line| {
        assert!(line.to_json().starts_with("{\"what\""));
        lines += 1;
        if lines < LINES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(lines < LINES_MAX, "a dump of this device is endless");
    report.ok().map(|report| format!("{:?}", report.sum.next_start.kind))
}

#[test]
fn no_image_is_too_hostile() {
    let mut seen = BTreeMap::<Option<String>, u64>::new();
    for crash in [false, true] {
        let good = image(&used_site(crash));
        assert!(look(&Tampered::new(&good), true).is_some());
        // Superblocks, journal and checkpoints, and the first chunk headers: where words are.
        let metadata: Vec<usize> = (0..600)
            .chain((512..good.len()).step_by(256))
            .filter(|page| good.get(*page).is_some_and(|page| page.0.iter().any(|b| *b != 0)))
            .collect();
        let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
        for round in 0..ROUNDS {
            let mut bad = Tampered::new(&good);
            for _ in 0..=rng.below(5) {
                let page = bad.page(metadata[rng.below(metadata.len())]);
                match rng.below(8) {
                    0 => *page = good[metadata[rng.below(metadata.len())]].clone(),
                    1 => page.0.iter_mut().for_each(|byte| *byte = rng.next() as u8),
                    2 => page.0.fill(0),
                    _ => tamper(page, &mut rng),
                }
            }
            // Now and then one that ends too early.
            if round % 16 == 15 {
                bad.blocks = 1 + rng.below(good.len() - 1) as u64;
            }
            *seen.entry(look(&bad, round % 8 == 0)).or_default() += 1;
        }
    }
    // What it is made for was met: sound ones, dropped ones, refused ones.
    for kind in ["Warm", "Recover", "Drop"] {
        assert!(seen.contains_key(&Some(kind.to_owned())), "{kind}: {seen:?}");
    }
}

#[test]
fn a_superblock_alone_is_judged_for_what_it_is() {
    let good = image(&used_site(false));
    let mut rng = Rng(7);
    let mut kinds = BTreeSet::new();
    for _ in 0..400 {
        let mut bad = Tampered::new(&good);
        tamper(bad.page(0), &mut rng);
        tamper(bad.page(1), &mut rng);
        kinds.insert(look(&bad, false));
    }
    assert!(kinds.contains(&Some("Refuse".to_owned())), "{kinds:?}");
}

#[test]
fn no_region_is_too_hostile() {
    let good = image(&sharded_site(true));
    let blocks = good.len() / 3;
    let mut rng = Rng(11);
    let mut seen = BTreeMap::<Option<String>, u64>::new();
    for round in 0..ROUNDS {
        let mut bad = Tampered::new(&good);
        for _ in 0..=rng.below(3) {
            // Mostly superblocks, where the numbers are that say how many regions there are.
            let within = if rng.below(4) == 0 { rng.below(300) } else { rng.below(2) };
            let from = rng.below(3) * blocks + within;
            let to = rng.below(3) * blocks + rng.below(2);
            match rng.below(4) {
                0 => *bad.page(to) = good[from].clone(),
                _ => tamper(bad.page(from), &mut rng),
            }
        }
        if round % 16 == 15 {
            bad.blocks = 1 + rng.below(good.len() - 1) as u64;
        }
        *seen.entry(look(&bad, false)).or_default() += 1;
    }
    for kind in ["Recover", "Refuse"] {
        assert!(seen.contains_key(&Some(kind.to_owned())), "{kind}: {seen:?}");
    }
}

#[test]
fn more_regions_than_fit_are_told_and_not_read() {
    let mut superblock = Superblock::format([7; 16], Geometry::for_device(20 << 20).expect("fits"));
    superblock.geometry = superblock.geometry.divided(Geometry::SHARDS_MAX, 10);
    let (offset, page) = superblock.encode();
    let mut image = vec![MetaPage::zeroed(); 5120];
    image[(offset / 4096) as usize] = page;
    let report = check(&image[..], "image", CheckOptions { all: true }, &mut ()).expect("ours");
    assert_eq!(report.shards.len(), 64);
    let last = &report.shards[63];
    assert_eq!(last.findings, ["the device ends before its region"]);
    assert_eq!(format!("{:?}", report.sum.next_start.kind), "Refuse");
    assert_eq!(report.sum.findings.len() as u64 + report.sum.more_findings, 63);
}
