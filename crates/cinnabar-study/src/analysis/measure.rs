//! What volumes do over a whole trace: every reference looked at, or a sample of the blocks.
//!
//! Intervals are measured by the policy crate's monitor, as in a running cache; this adds what only
//! a trace can have: exact curves, and one look at all of it.

use cinnabar_policy::monitor::{self, Monitor, Sampling};
use cinnabar_policy::planning::Measured;
use cinnabar_policy::reuse::{Curve, Mix, ReadOnlyCurves, SampledCurves, WriteBackCurves};
use cinnabar_policy::sizing::{Units, Volume, WritePolicy};
use cinnabar_policy::{Access, Interner, ReadOnly, TooManyBlocks, WriteBack};

/// How closely a trace is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Look {
    /// Every block is analysed.
    Exact,
    /// A sample of each volume's blocks.
    Sampled(Sampling),
}

impl Look {
    /// The same for a monitor, whose sample of all blocks is exact, but for sizes above 8192 blocks,
    /// which it knows to 1/4096.
    pub const fn sampling(self) -> Sampling {
        match self {
            Self::Exact => Sampling::Rate(1.0),
            Self::Sampled(sampling) => sampling,
        }
    }
}

/// Volumes under observation, numbered from 0.
#[derive(Debug)]
pub struct Measure(Kind);

#[derive(Debug)]
enum Kind {
    Exact(Box<Exact>),
    Sampled(Monitor),
}

#[derive(Debug, Default)]
struct Exact {
    interner: Interner,
    /// By the interner's number: the block's number within its volume, so that a volume's tables are
    /// as long as it has blocks.
    numbers: Vec<u32>,
    volumes: Vec<ExactVolume>,
    accesses: Vec<Access>,
}

#[derive(Debug, Default)]
struct ExactVolume {
    blocks: u32,
    back: WriteBack,
    only: ReadOnly,
}

impl Measure {
    /// One that has seen nothing.
    pub fn new(look: Look, seed: u64, reuses_min: u8) -> Self {
        Self(match look {
            Look::Exact => Kind::Exact(Box::default()),
            Look::Sampled(sampling) => {
                let settings = monitor::Settings { sampling, seed, decay: 1.0, reuses_min };
                Kind::Sampled(Monitor::new(settings))
            }
        })
    }

    /// Counts references of a volume: blocks below 2^40, all read or all written.
    ///
    /// # Errors
    /// If every block is analysed, and there are more than can be numbered.
    pub fn count(
        &mut self,
        volume: usize,
        blocks: std::ops::Range<u64>,
        is_write: bool,
    ) -> Result<(), TooManyBlocks> {
        match &mut self.0 {
            Kind::Exact(exact) => exact.count(volume, blocks, is_write),
            Kind::Sampled(monitor) => {
                monitor.extend(volume, blocks.map(|block| (block, is_write)));
                Ok(())
            }
        }
    }

    /// What was found, volume by volume.
    pub fn finish(self) -> Vec<Curves> {
        match self.0 {
            Kind::Exact(exact) => exact
                .volumes
                .into_iter()
                .map(|volume| Curves::Exact {
                    back: Box::new(volume.back.finish()),
                    only: Box::new(volume.only.finish()),
                })
                .collect(),
            Kind::Sampled(monitor) => {
                monitor.curves().map(|curves| Curves::Sampled(Box::new(curves))).collect()
            }
        }
    }
}

impl Exact {
    fn count(
        &mut self,
        volume: usize,
        blocks: std::ops::Range<u64>,
        is_write: bool,
    ) -> Result<(), TooManyBlocks> {
        if volume >= self.volumes.len() {
            self.volumes.resize_with(volume + 1, ExactVolume::default);
        }
        let key = |block: u64| ((volume as u64) << 40 | block, is_write);
        self.accesses.clear();
        self.interner.extend(blocks.map(key), &mut self.accesses)?;
        let of_volume = &mut self.volumes[volume];
        for access in &mut self.accesses {
            if access.block() as usize == self.numbers.len() {
                self.numbers.push(of_volume.blocks);
                of_volume.blocks += 1;
            }
            *access = Access::new(self.numbers[access.block() as usize], is_write);
        }
        of_volume.back.extend(&self.accesses);
        of_volume.only.extend(&self.accesses);
        Ok(())
    }
}

/// What one volume does, for every size of cache.
#[derive(Clone, Debug)]
pub enum Curves {
    /// From every block.
    Exact {
        /// In caches that keep what is written.
        back: Box<WriteBackCurves>,
        /// In caches that drop it.
        only: Box<ReadOnlyCurves>,
    },
    /// From a sample, scaled up.
    Sampled(Box<SampledCurves>),
}

impl Curves {
    /// Accesses and reuses by class.
    pub fn mix(&self) -> Mix {
        match self {
            Self::Exact { back, .. } => back.mix,
            Self::Sampled(curves) => curves.mix,
        }
    }

    /// Size of the working set: different blocks.
    pub fn working_set(&self) -> u64 {
        match self {
            Self::Exact { back, .. } => back.blocks,
            Self::Sampled(curves) => curves.blocks,
        }
    }

    /// Different blocks that were used again.
    pub fn reuse_working_set(&self) -> u64 {
        match self {
            Self::Exact { back, .. } => back.blocks_again,
            Self::Sampled(curves) => curves.blocks_again,
        }
    }

    /// The part of the blocks that was looked at, above 0; 1 is all.
    pub fn rate(&self) -> f64 {
        match self {
            Self::Exact { .. } => 1.0,
            Self::Sampled(curves) => curves.rate,
        }
    }

    /// The smallest size with the part `part` (0 to 1) of all hits there are, in blocks: with 1,
    /// maximum TRD + 1.
    pub fn reach(&self, part: f64) -> u64 {
        match self {
            Self::Exact { back, .. } => back.total.reaches(part),
            Self::Sampled(curves) => curves.hits.reaches(part),
        }
    }

    /// The same of read hits: with 1, maximum URD + 1.
    pub fn useful_reach(&self, part: f64) -> u64 {
        match self {
            Self::Exact { back, .. } => back.useful.reaches(part),
            Self::Sampled(curves) => curves.read_hits.reaches(part),
        }
    }

    pub fn read_hits(&self, policy: WritePolicy, size_blocks: u64) -> f64 {
        use WritePolicy::{Back, Bypass, ReadOnly, Through};
        let hits = match (policy, self) {
            (Bypass, _) => 0.0,
            (ReadOnly, Self::Exact { only, .. }) => only.read_hits.at(size_blocks) as f64,
            (ReadOnly, Self::Sampled(curves)) => curves.read_only_hits.at(size_blocks),
            (Through | Back, Self::Exact { back, .. }) => back.read_hits.at(size_blocks) as f64,
            (Through | Back, Self::Sampled(curves)) => curves.read_hits.at(size_blocks),
        };
        // A scaled-up sample may have a hair more hits than there are reads.
        if size_blocks == 0 { 0.0 } else { hits.min(self.mix().reads as f64) }
    }

    /// Blocks written to the SSD by a cache that keeps every read that missed, and what the policy
    /// keeps of the writes.
    pub fn ssd_writes(&self, policy: WritePolicy, size_blocks: u64) -> f64 {
        if size_blocks == 0 || policy == WritePolicy::Bypass {
            return 0.0;
        }
        let mix = self.mix();
        let fills = mix.reads as f64 - self.read_hits(policy, size_blocks);
        let kept = matches!(policy, WritePolicy::Through | WritePolicy::Back);
        fills + if kept { mix.writes as f64 } else { 0.0 }
    }

    /// Blocks written to the backend: all writes, or with write-back the dirty blocks that were
    /// evicted. What is still dirty at the end is not among them.
    pub fn backend_writes(&self, policy: WritePolicy, size_blocks: u64) -> f64 {
        let writes = self.mix().writes as f64;
        if policy != WritePolicy::Back || size_blocks == 0 {
            return writes;
        }
        match self {
            Self::Exact { back, .. } => back.destages.at(size_blocks) as f64,
            Self::Sampled(curves) => curves.destages.at(size_blocks).min(writes),
        }
    }

    /// A size from which on nothing changes any more, in blocks.
    pub fn flat_from(&self) -> u64 {
        Measured::flat_from(self)
    }
}

impl Measured for Curves {
    fn flat_from(&self) -> u64 {
        match self {
            Self::Exact { back, only } => {
                let ends = [&back.hits, &back.read_hits, &back.destages, &only.read_hits];
                ends.map(Curve::flat_from).into_iter().max().unwrap_or(0)
            }
            Self::Sampled(curves) => curves.flat_from(),
        }
    }

    fn in_units(&self, units: Units) -> Volume {
        match self {
            Self::Exact { back, only } => Volume::exact(back, only, units),
            Self::Sampled(curves) => curves.in_units(units),
        }
    }
}
