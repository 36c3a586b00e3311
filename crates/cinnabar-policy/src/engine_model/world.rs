//! The small caches of a volume, and those that are shared by all: numbers for sampled blocks, and counts.

use super::small::{Room, Small};
use super::{AMPLIFICATION, EngineCurves, PARTS, Point, SEGMENT_BLOCKS, Scale, Way};
use std::collections::BTreeMap;

/// The part of a share that is air.
const AIR_PARTS: u64 = 8;
/// Numbers are looked through for free ones when there are so many.
const NUMBERS_MIN: usize = 4096;
/// A round of the shared caches is this part of their size in accesses, and so many are remembered.
const ROUNDS: u64 = 32;
/// What a read miss costs in flash writes, as with the engine's default price.
const READ_WORTH: u64 = 8;

/// Numbers of sampled blocks, given back when no cache knows a block any more.
#[derive(Clone, Debug)]
struct Numbers {
    by_hash: BTreeMap<u64, u32>,
    free: Vec<u32>,
    sweep_at: usize,
}

impl Numbers {
    const fn new() -> Self {
        Self { by_hash: BTreeMap::new(), free: Vec::new(), sweep_at: NUMBERS_MIN }
    }

    fn of(&mut self, hash: u64) -> u32 {
        let next = (self.by_hash.len() + self.free.len()) as u32;
        let free = &mut self.free;
        *self.by_hash.entry(hash).or_insert_with(|| free.pop().unwrap_or(next))
    }

    /// Gives numbers back if there are many.
    fn sweep(&mut self, is_free: impl Fn(u32) -> bool) {
        if self.by_hash.len() < self.sweep_at {
            return;
        }
        let free = &mut self.free;
        self.by_hash.retain(|_, number| {
            let goes = is_free(*number);
            if goes {
                free.push(*number);
            }
            !goes
        });
        self.sweep_at = (self.by_hash.len() * 2).max(NUMBERS_MIN);
    }
}

#[derive(Clone, Debug)]
struct Counted {
    cache: Small,
    hits: f64,
    kept: f64,
    flashed: f64,
    /// Pages of the journal.
    records: f64,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    scale: Scale,
    numbers: Numbers,
    /// By size: where writes are kept if that pays, and where they only invalidate.
    caches: [Vec<Counted>; 2],
    /// All references, reads and writes, and those of the sample.
    all: [f64; 2],
    sampled: [f64; 2],
    /// What it adds to the ghost lately, and all of it at the last look.
    ghosted: f64,
    ghosted_before: u64,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes")]
fn sampled(blocks: u64, scale: Scale) -> usize {
    (blocks as f64 * scale.rate).round() as usize
}

fn size(part: u32, scale: Scale) -> u64 {
    (scale.capacity_blocks * u64::from(part) / u64::from(PARTS[PARTS.len() - 1])).max(1)
}

/// Blocks worth keeping that a share of so many holds: the engine leaves a group a sixteenth of its
/// maximum as air, and the log up to an eighth, where cleaning it costs much. The larger of the two is
/// taken: a loop that just fits by the smaller one may not fit.
pub(crate) fn worth_keeping(blocks: u64) -> u64 {
    blocks - (blocks / AIR_PARTS).max((2 * SEGMENT_BLOCKS).min(blocks / 2))
}

fn room(blocks: u64, scale: Scale) -> Room {
    let main = worth_keeping(blocks);
    let free = main - (2 * SEGMENT_BLOCKS).min(main / 4);
    let probation = (blocks / 100).max(1);
    Room {
        main: sampled(main, scale),
        free: sampled(free, scale),
        probation: sampled(probation, scale).max(1),
        fills_once: false,
    }
}

impl World {
    pub(super) fn new(scale: Scale) -> Self {
        let cache = |part: &u32| Counted {
            cache: Small::new(
                room(size(*part, scale), scale),
                sampled(scale.capacity_blocks, scale),
            ),
            hits: 0.0,
            kept: 0.0,
            flashed: 0.0,
            records: 0.0,
        };
        let caches: Vec<Counted> = PARTS.iter().map(cache).collect();
        Self {
            scale,
            numbers: Numbers::new(),
            caches: [caches.clone(), caches],
            all: [0.0; 2],
            sampled: [0.0; 2],
            ghosted: 0.0,
            ghosted_before: 0,
        }
    }

    /// A reference, sampled or not.
    pub(super) fn count(&mut self, is_write: bool) {
        self.all[usize::from(is_write)] += 1.0;
    }

    /// A reference of the sample, a part of a request of so many blocks: one record is for all of them,
    /// and where requests come one by one it takes a page of the journal.
    pub(super) fn access(&mut self, hash: u64, is_write: bool, blocks: f64, way: Way) {
        self.sampled[usize::from(is_write)] += 1.0;
        let number = self.numbers.of(hash);
        for one in &mut self.caches[0] {
            one.cache.reserve(number as usize + 1);
            let became = one.cache.access(number, is_write, way, None);
            one.hits += f64::from(u8::from(became.is_hit && !is_write));
            one.kept += f64::from(u8::from(became.is_kept));
            one.flashed += f64::from(became.flashed);
            one.records += f64::from(u8::from(became.is_recorded)) / blocks;
        }
        for one in &mut self.caches[1] {
            one.cache.reserve(number as usize + 1);
            if is_write {
                one.records += f64::from(u8::from(one.cache.invalidate(number))) / blocks;
                continue;
            }
            let became = one.cache.access(number, false, way, None);
            one.hits += f64::from(u8::from(became.is_hit));
            one.flashed += f64::from(became.flashed);
        }
        let caches = &self.caches;
        self.numbers.sweep(|number| caches.iter().flatten().all(|one| one.cache.is_free(number)));
    }

    /// Whether the volume's history speaks for keeping writes, as the largest cache knows it.
    pub(super) fn pays(&self) -> bool {
        self.caches[0][PARTS.len() - 1].cache.pays()
    }

    /// Numbers in use.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> usize {
        self.numbers.by_hash.len()
    }

    /// Sampled blocks that a share of so many adds to the ghost lately: what came earlier counts half
    /// with each look.
    pub(super) fn ghosted(&mut self, share: u64) -> f64 {
        let sizes = PARTS.iter().map(|part| size(*part, self.scale));
        let at = sizes.take_while(|size| *size <= share).count().saturating_sub(1);
        let now = self.caches[0][at].cache.ghosted();
        let since = now.saturating_sub(std::mem::replace(&mut self.ghosted_before, now));
        self.ghosted = self.ghosted / 2.0 + since as f64;
        self.ghosted
    }

    /// The ghost is shared: this part of it is the volume's.
    pub(super) fn set_ghost_part(&mut self, part: f64) {
        let whole = sampled(self.scale.capacity_blocks, self.scale) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let blocks = (whole * part.clamp(0.02, 1.0)) as usize;
        for one in self.caches.iter_mut().flatten() {
            one.cache.set_ghost_max(blocks);
        }
    }

    pub(super) fn decay(&mut self, factor: f64) {
        for one in self.caches.iter_mut().flatten() {
            for count in [&mut one.hits, &mut one.kept, &mut one.flashed, &mut one.records] {
                *count *= factor;
            }
        }
        for count in self.all.iter_mut().chain(&mut self.sampled) {
            *count *= factor;
        }
    }

    pub(super) fn curves(&self) -> EngineCurves {
        let part = |all: f64, sampled: f64| if sampled > 0.0 { all / sampled } else { 0.0 };
        let by_reads = part(self.all[0], self.sampled[0]);
        let by_writes = part(self.all[1], self.sampled[1]);
        let by_all = part(self.all.iter().sum(), self.sampled.iter().sum());
        let point = |one: &Counted| Point {
            read_hits: one.hits * by_reads,
            kept_writes: one.kept * by_writes,
            flash_writes: one.flashed * by_all * AMPLIFICATION + one.records * by_writes,
        };
        EngineCurves {
            sizes: PARTS.iter().map(|part| size(*part, self.scale)).collect(),
            kept: self.caches[0].iter().map(point).collect(),
            around: self.caches[1].iter().map(point).collect(),
        }
    }
}

/// Four small caches of all volumes' blocks, one a way of admission, and the way that costs least.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    numbers: Numbers,
    ways: Vec<(Way, Small, u64, u64)>,
    taken: Way,
    round: u64,
    left: u64,
}

impl Shared {
    pub(super) fn new(scale: Scale) -> Self {
        let room = room(scale.capacity_blocks, scale);
        let room = Room { free: room.main, fills_once: true, ..room };
        let ghost = sampled(scale.capacity_blocks, scale);
        let one = |way| (way, Small::new(room, ghost), 0, 0);
        let round = (ghost as u64 / ROUNDS).max(16);
        Self {
            numbers: Numbers::new(),
            ways: Way::ALL.into_iter().map(one).collect(),
            taken: Way::default(),
            round,
            left: round,
        }
    }

    pub(super) const fn way(&self) -> Way {
        self.taken
    }

    pub(super) fn access(&mut self, hash: u64, is_write: bool, pays: bool) {
        let number = self.numbers.of(hash);
        for (way, cache, cost, _) in &mut self.ways {
            cache.reserve(number as usize + 1);
            let became = cache.access(number, is_write, *way, Some(pays));
            *cost +=
                READ_WORTH * u64::from(!became.is_hit && !is_write) + u64::from(became.flashed);
        }
        let ways = &self.ways;
        self.numbers.sweep(|number| ways.iter().all(|(_, cache, ..)| cache.is_free(number)));
        self.left -= 1;
        if self.left == 0 {
            self.end_round();
        }
    }

    /// As the engine ends a round: costs fade, *closed* has to halve them, and another way is taken if it
    /// costs an eighth less.
    fn end_round(&mut self) {
        self.left = self.round;
        // Before that they do the same.
        let full = self.ways.iter().any(|(_, cache, ..)| cache.was_full());
        for (_, _, now, all) in &mut self.ways {
            let now = std::mem::take(now);
            *all = if full { *all - *all / ROUNDS + now } else { 0 };
        }
        let cost = |way: Way| {
            let cost = self.ways[way as usize].3;
            if way == Way::Closed { cost * 2 } else { cost }
        };
        let best = Way::ALL.into_iter().min_by_key(|way| cost(*way)).expect("there are ways");
        if cost(best) < cost(self.taken) / 8 * 7 {
            self.taken = best;
        }
    }
}
