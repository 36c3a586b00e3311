//! Reuse analysis of a part of the blocks, scaled up: cheap enough for live volumes and huge traces.
//!
//! Spatial sampling (SHARDS, FAST'15): a block is in the sample if its hash is small enough, so all
//! of its accesses are or none, and distances within the sample are the workload's, times the rate.
//! Most keys are hashed, compared, and not looked at again.
//!
//! With a fixed rate the sample grows with the footprint. With a fixed size the block with the
//! largest hash leaves when there is one too many and the rate falls; what was counted before keeps
//! the weight it had.
//!
//! A sample may have more than its share of the accesses, if it caught a hot block, or less. So
//! curves are normalised by what the sample has: read hits by its reads, destages by its writes. The
//! other way, crediting the reads that the sample lacks to the smallest cache, is wrong for read-only
//! curves. For write-back ones, with 8192 blocks on real traces, its mean error was up to .014 (median
//! of five seeds) where this has .008 at most; it was the better one on two of thirteen. Of very
//! small sizes neither knows much, and at a loop's cliff both may be wrong by a lot.

use super::estimate::{Estimate, Steps};
use super::hole_stack::HoleStack;
use super::mix::Mix;
use super::stack::Stack;
use super::window::Window;
use crate::engine_model::EngineCurves;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Of a block of the sample: its number by hash, its places in both stacks, its uses.
const BLOCK_RAM_BYTES: usize = 120;
/// All hashes there are.
const HASHES: f64 = 18_446_744_073_709_551_616.0;
/// The largest size of cache that is distinguished, in blocks.
const SIZE_MAX: f64 = (u32::MAX - 1) as f64;

/// The analysis, fed with references in any portions.
#[derive(Debug)]
pub struct Sampled {
    seed: u64,
    /// The largest hash of the sample.
    top: u64,
    blocks_max: Option<NonZeroU32>,
    /// Numbers of the sample's blocks, by hash; no two keys have the same.
    numbers: BTreeMap<u64, u32>,
    free_numbers: Vec<u32>,
    stack: Stack,
    hole_stack: HoleStack<true>,
    window: Window,
    counted: Counted,
    /// References since the last decay, reads and writes: in whole numbers, so that it does not matter
    /// in which portions they came.
    since: [u64; 2],
    /// Larger sizes are not told apart.
    size_max: u32,
}

/// Which blocks a sample takes at a moment: what is hashed and compared where accesses happen, so that
/// only those of the sample go on from there. The sample of that moment or of a later one takes none
/// beside these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Of the hash.
    seed: u64,
    /// The largest hash that passes.
    pub top: u64,
}

impl Filter {
    /// That of samples of this seed, up to this hash.
    pub const fn new(seed: u64, top: u64) -> Self {
        Self { seed: spread(seed), top }
    }

    /// Whether accesses to a block pass.
    #[inline]
    pub const fn takes(&self, key: u64) -> bool {
        mixed(key ^ self.seed) <= self.top
    }
}

/// What was counted; all of it loses weight with [`Sampled::decay`].
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Of all references, reads and writes.
    accesses: [f64; 2],
    /// Of the sample, scaled up.
    sampled: [f64; 2],
    /// RAR, RAW, WAR, WAW.
    reuses: [f64; 4],
    total: Steps,
    useful: Steps,
    destages: Steps,
    read_only: Steps,
}

/// What it found, scaled up to the whole workload.
#[derive(Clone, Debug)]
pub struct SampledCurves {
    /// Accesses and reuses by class; reads and writes are exact, classes estimated.
    pub mix: Mix,
    /// Different blocks since the last decay: the working set.
    pub blocks: u64,
    /// Those of them that were used again: the reuse working set.
    pub blocks_again: u64,
    /// The part of the blocks that is in the sample, from 0 to 1, at the end.
    pub rate: f64,
    /// Accesses that hit in a cache that keeps what is written, by size.
    pub hits: Estimate,
    /// Reads that hit in a cache that keeps what is written, by size.
    pub read_hits: Estimate,
    /// Dirty blocks written to the backend when they were evicted, by size.
    pub destages: Estimate,
    /// Reads that hit in a cache that drops what is written, by size.
    pub read_only_hits: Estimate,
    /// What the engine would do with it, if that is simulated beside.
    pub engine: Option<EngineCurves>,
}

impl SampledCurves {
    /// Reads that miss in a cache of so many blocks that keeps what is written.
    pub fn read_misses(&self, size_blocks: u64) -> f64 {
        (self.mix.reads as f64 - self.read_hits.at(size_blocks)).max(0.0)
    }

    /// Reads that miss in a cache of so many blocks that drops what is written.
    pub fn read_only_misses(&self, size_blocks: u64) -> f64 {
        (self.mix.reads as f64 - self.read_only_hits.at(size_blocks)).max(0.0)
    }
}

impl Sampled {
    /// The default size of a sample, in blocks.
    pub const BLOCKS: NonZeroU32 = NonZeroU32::new(8192).expect("it is not 0");

    /// Samples the part `rate` of the blocks. Another seed samples others.
    ///
    /// # Panics
    /// If `rate` is not above 0 and at most 1.
    pub fn fixed_rate(rate: f64, seed: u64) -> Self {
        assert!(rate > 0.0 && rate <= 1.0, "a rate is a part, not {rate}");
        // From 1.0, which is one too many for 64 bits, the cast makes the largest.
        Self::new(whole(rate * HASHES), None, seed)
    }

    /// Samples as many blocks as there are, up to `blocks_max`. Another seed samples others.
    pub fn fixed_size(blocks_max: NonZeroU32, seed: u64) -> Self {
        Self::new(u64::MAX, Some(blocks_max), seed)
    }

    fn new(top: u64, blocks_max: Option<NonZeroU32>, seed: u64) -> Self {
        Self {
            seed: spread(seed),
            top,
            blocks_max,
            numbers: BTreeMap::new(),
            free_numbers: Vec::new(),
            stack: Stack::default(),
            hole_stack: HoleStack::default(),
            window: Window::default(),
            counted: Counted::default(),
            since: [0; 2],
            size_max: u32::MAX,
        }
    }

    /// Sizes of cache above so many blocks are not told apart from now on, which bounds the memory of
    /// curves. What was counted for larger ones is forgotten.
    pub fn set_size_max(&mut self, blocks: u64) {
        self.size_max = u32::try_from(blocks).unwrap_or(u32::MAX);
        let Counted { total, useful, destages, read_only, .. } = &mut self.counted;
        for steps in [total, useful, destages, read_only] {
            steps.truncate(self.size_max);
        }
    }

    /// A block counts as used again after so many reuses; otherwise one is enough. Called before the
    /// first reference.
    pub fn set_reuses_min(&mut self, reuses: u8) {
        self.window = Window::new(reuses);
    }

    /// Counts references, pairs of a key and whether it is a write.
    pub fn extend(&mut self, references: impl IntoIterator<Item = (u64, bool)>) {
        let (mut all, mut writes) = (0_u64, 0_u64);
        let seed = self.seed;
        for (key, is_write) in references {
            all += 1;
            writes += u64::from(is_write);
            let hash = mixed(key ^ seed);
            if hash <= self.top {
                self.access(hash, is_write);
            }
        }
        self.count(all - writes, writes);
    }

    /// Counts references of which those that pass the [`filter`](Self::filter) come by
    /// [`touch`](Self::touch).
    pub const fn count(&mut self, reads: u64, writes: u64) {
        self.since[0] += reads;
        self.since[1] += writes;
    }

    /// A reference that has passed a filter of this sample, of now or of earlier; it is counted
    /// elsewhere.
    pub fn touch(&mut self, key: u64, is_write: bool) {
        let hash = mixed(key ^ self.seed);
        if hash <= self.top {
            self.access(hash, is_write);
        }
    }

    /// Which blocks it takes now.
    pub const fn filter(&self) -> Filter {
        Filter { seed: self.seed, top: self.top }
    }

    /// About how many bytes of RAM it takes.
    pub fn ram_bytes(&self) -> usize {
        let Counted { total, useful, destages, read_only, .. } = &self.counted;
        let steps: usize = [total, useful, destages, read_only].map(Steps::ram_bytes).iter().sum();
        steps + self.numbers.len() * BLOCK_RAM_BYTES
    }

    /// The part of the blocks that is in the sample, from 0 to 1.
    pub fn rate(&self) -> f64 {
        (self.top as f64 + 1.0) / HASHES
    }

    /// Multiplies the weight of everything counted so far by `factor` (0 to 1): called between
    /// intervals. Times of last use are kept; working sets start from empty.
    pub fn decay(&mut self, factor: f64) {
        self.window.restart();
        let counted = &mut self.counted;
        for (all, since) in counted.accesses.iter_mut().zip(std::mem::take(&mut self.since)) {
            *all += since as f64;
        }
        let pairs = counted.accesses.iter_mut().chain(&mut counted.sampled);
        pairs.chain(&mut counted.reuses).for_each(|count| *count *= factor);
        counted.total.scale(factor);
        counted.useful.scale(factor);
        counted.destages.scale(factor);
        counted.read_only.scale(factor);
    }

    /// The curves so far.
    pub fn curves(&self) -> SampledCurves {
        self.curves_with([0; 2])
    }

    /// The same with so many more references, reads and writes, counted.
    pub fn curves_with(&self, more: [u64; 2]) -> SampledCurves {
        let (counted, rate) = (&self.counted, self.rate());
        let part = |all: f64, sampled: f64| if sampled > 0.0 { all / sampled } else { 0.0 };
        let of = |at: usize| counted.accesses[at] + (self.since[at] + more[at]) as f64;
        let [reads, writes] = [of(0), of(1)];
        let by_reads = part(reads, counted.sampled[0]);
        let by_writes = part(writes, counted.sampled[1]);
        let by_all = part(reads + writes, counted.sampled.iter().sum());
        let mut destages = counted.destages.clone();
        for (first, end) in self.stack.last(hits_from(rate)).filter_map(|block| block.destaged) {
            destages.add(first..end, 1.0 / rate, self.size_max);
        }
        let [rar, raw, war, waw] = counted.reuses;
        let mix = Mix {
            reads: whole(reads),
            writes: whole(writes),
            rar: whole(rar * by_reads),
            raw: whole(raw * by_reads),
            war: whole(war * by_writes),
            waw: whole(waw * by_writes),
        };
        SampledCurves {
            mix,
            blocks: whole(f64::from(self.window.blocks()) / rate),
            blocks_again: whole(f64::from(self.window.again()) / rate),
            rate,
            hits: counted.total.estimate(by_all),
            read_hits: counted.useful.estimate(by_reads),
            destages: destages.estimate(by_writes),
            read_only_hits: counted.read_only.estimate(by_reads),
            engine: None,
        }
    }

    /// An access of the sample; kept out of the loop over references, which seldom comes here.
    #[cold]
    #[inline(never)]
    fn access(&mut self, hash: u64, is_write: bool) {
        let number = self.number(hash) as usize;
        let rate = self.rate();
        let (weight, hits_from, most) = (1.0 / rate, hits_from(rate), self.size_max);
        let counted = &mut self.counted;
        counted.sampled[usize::from(is_write)] += weight;
        let reuse = self.stack.access(number, is_write, &hits_from);
        self.window.access(number, reuse.map(|reuse| reuse.distance));
        if let Some(reuse) = reuse {
            counted.reuses[usize::from(is_write) * 2 + usize::from(reuse.was_write)] += weight;
            counted.total.add_up_to(most, reuse.hits_from, weight);
            if !is_write {
                counted.useful.add_up_to(most, reuse.hits_from, weight);
            }
            if let Some((first, end)) = reuse.destaged {
                counted.destages.add(first..end, weight, most);
            }
        }
        if is_write {
            self.hole_stack.write(number);
        } else if let Some(distance) = self.hole_stack.read(number) {
            counted.read_only.add_up_to(most, hits_from(distance), weight);
        }
        if self.blocks_max.is_some_and(|max| self.numbers.len() > max.get() as usize) {
            self.shrink();
        }
    }

    fn number(&mut self, hash: u64) -> u32 {
        let unused = self.numbers.len() as u32;
        let free_numbers = &mut self.free_numbers;
        *self.numbers.entry(hash).or_insert_with(|| free_numbers.pop().unwrap_or(unused))
    }

    /// Drops the block with the largest hash and all that is above it.
    fn shrink(&mut self) {
        let (hash, number) = self.numbers.pop_last().expect("there is one too many");
        self.top = hash - 1;
        let newer = self.stack.forget(number as usize);
        self.window.forget(number as usize, newer);
        self.hole_stack.forget(number as usize);
        self.free_numbers.push(number);
    }
}

#[allow(clippy::cast_sign_loss, reason = "counts are never below zero")]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

/// The smallest size of cache that hits at a distance in a sample: `distance` and a half sampled
/// blocks stand for so many of all, which is exact if all are sampled.
#[allow(clippy::cast_sign_loss, reason = "distances are never below zero")]
fn hits_from(rate: f64) -> impl Fn(u32) -> u32 {
    move |distance| ((f64::from(distance) + 0.5) / rate).min(SIZE_MAX) as u32 + 1
}

/// Small seeds, and the next one's, must not turn keys into each other's.
const fn spread(seed: u64) -> u64 {
    mixed(seed ^ 0x9E37_79B9_7F4A_7C15)
}

/// A hash that no two keys share, so it stands for its key.
#[inline]
const fn mixed(key: u64) -> u64 {
    let mut hash = (key ^ (key >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^ (hash >> 32)
}
