//! The cache that the papers assume: an LRU partition for each volume, in place, without metadata.
//!
//! Every read miss is written to the SSD, and every write that the policy keeps; a partition that
//! shrinks evicts what was used least recently, and a volume that is no longer written back is
//! destaged first. `docs/guide/compare.md` lists what it leaves out.

use super::outcome::{Counts, Outcome};
use super::plans::Division;
use crate::analysis::Part;
use cinnabar_policy::replacement::Lru;
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_policy::{Access, Interner, Outcome as Touched, Replacement, TooManyBlocks};
use std::num::NonZeroU32;
use std::ops::Range;

/// Where a block number leaves room for the volume in a shared partition's keys.
const KEY_BLOCK_BITS: u32 = 40;

/// Partitions, and what was counted.
#[derive(Debug)]
pub struct Papers {
    capacity_blocks: u64,
    partitions: Vec<Partition>,
    /// Whose the block is, for destages; the policies of the plan under way.
    policies: Vec<WritePolicy>,
    is_shared: bool,
    outcome: Outcome,
    accesses: Vec<Access>,
}

impl Papers {
    /// An empty cache for so many volumes; it needs a plan first.
    pub fn new(capacity_blocks: u64, volumes: usize, is_shared: bool) -> Self {
        let partitions = if is_shared { 1 } else { volumes };
        Self {
            capacity_blocks,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            policies: vec![WritePolicy::Bypass; volumes],
            is_shared,
            outcome: Outcome { volumes: vec![Counts::default(); volumes], ..Outcome::default() },
            accesses: Vec::new(),
        }
    }

    /// Goes over to a plan.
    ///
    /// # Panics
    /// If a shared cache is to be divided, or the other way round.
    pub fn adopt(&mut self, plan: &Division) {
        let counts = &mut self.outcome.volumes;
        match plan {
            Division::Shared => {
                assert!(self.is_shared, "it was made for shares");
                self.policies.fill(WritePolicy::Back);
                let mut destage = |volume: u32| counts[volume as usize].backend_writes += 1;
                self.partitions[0].resize(self.capacity_blocks, &mut destage);
            }
            Division::Divided(shares) => {
                assert!(!self.is_shared, "it was made to be shared");
                for (volume, share) in shares.iter().enumerate() {
                    let Part { blocks, policy } = *share;
                    let blocks = if policy == WritePolicy::Bypass { 0 } else { blocks };
                    let mut destage = |_| counts[volume].backend_writes += 1;
                    let partition = &mut self.partitions[volume];
                    partition.resize(blocks, &mut destage);
                    if policy != WritePolicy::Back {
                        partition.clean(&mut destage);
                    }
                    self.policies[volume] = policy;
                }
            }
        }
    }

    /// A request.
    ///
    /// # Errors
    /// With more different blocks than can be numbered.
    pub fn request(
        &mut self,
        volume: usize,
        blocks: Range<u64>,
        is_write: bool,
    ) -> Result<(), TooManyBlocks> {
        let partition = &mut self.partitions[if self.is_shared { 0 } else { volume }];
        let key = |block| (volume as u64) << KEY_BLOCK_BITS | block;
        self.accesses.clear();
        partition
            .interner
            .extend(blocks.map(|block| (key(block), is_write)), &mut self.accesses)?;
        partition.reserve(volume as u32);
        for access in &self.accesses {
            let counts = &mut self.outcome.volumes;
            let found = partition.access(*access, self.policies[volume], |volume| {
                counts[volume as usize].backend_writes += 1;
            });
            self.outcome.ssd_writes += u64::from(found.is_kept);
            let counts = &mut counts[volume];
            if is_write {
                let is_back = found.is_kept && self.policies[volume] == WritePolicy::Back;
                counts.writes += 1;
                counts.writes_back += u64::from(is_back);
                counts.backend_writes += u64::from(!is_back);
            } else {
                counts.reads += 1;
                counts.read_hits += u64::from(found.is_hit);
            }
        }
        Ok(())
    }

    /// Blocks cached, by partition.
    pub fn cached_blocks(&self) -> impl Iterator<Item = u64> {
        self.partitions
            .iter()
            .map(|one| one.blocks.iter().filter(|block| block.cached).count() as u64)
    }

    /// What was counted; what is dirty is destaged.
    pub fn finish(mut self) -> Outcome {
        let counts = &mut self.outcome.volumes;
        for (at, partition) in self.partitions.iter_mut().enumerate() {
            let shared = self.is_shared;
            partition.clean(&mut |volume| {
                counts[if shared { volume as usize } else { at }].backend_writes += 1;
            });
        }
        self.outcome.ssd_writes_back = self.outcome.ssd_writes;
        self.outcome
    }
}

struct Found {
    is_hit: bool,
    /// It wrote the SSD.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// When it was used last.
    used: u64,
    volume: u32,
    cached: bool,
    dirty: bool,
}

/// One LRU; without room it is none.
#[derive(Debug, Default)]
struct Partition {
    room: u64,
    lru: Option<Lru>,
    interner: Interner,
    blocks: Vec<Block>,
    now: u64,
}

impl Partition {
    /// Room to know the blocks met so far; new ones are `volume`'s.
    fn reserve(&mut self, volume: u32) {
        let blocks = self.interner.blocks();
        self.blocks.resize(blocks as usize, Block { volume, ..Block::default() });
        if let Some(lru) = &mut self.lru {
            lru.reserve(blocks);
        }
    }

    fn access(
        &mut self,
        access: Access,
        policy: WritePolicy,
        mut destage: impl FnMut(u32),
    ) -> Found {
        let (number, is_write) = (access.block(), access.is_write());
        let is_hit = self.blocks[number as usize].cached;
        let keeps = !is_write || matches!(policy, WritePolicy::Back | WritePolicy::Through);
        let Some(lru) = self.lru.as_mut() else { return Found { is_hit: false, is_kept: false } };
        if !keeps {
            lru.remove(number);
            let block = &mut self.blocks[number as usize];
            (block.cached, block.dirty) = (false, false);
            return Found { is_hit, is_kept: false };
        }
        let blocks = &mut self.blocks;
        let touched = lru.touch(number, |victim| {
            let victim = &mut blocks[victim as usize];
            victim.cached = false;
            if std::mem::take(&mut victim.dirty) {
                destage(victim.volume);
            }
        });
        assert_eq!(touched == Touched::Hit, is_hit, "both know what is cached");
        self.now += 1;
        let block = &mut self.blocks[number as usize];
        block.used = self.now;
        block.cached = true;
        if is_write {
            block.dirty = policy == WritePolicy::Back;
        }
        Found { is_hit, is_kept: is_write || !is_hit }
    }

    /// Another size: those used least recently go, the others keep their order.
    fn resize(&mut self, room: u64, destage: &mut impl FnMut(u32)) {
        if room == self.room {
            return;
        }
        self.room = room;
        let is_cached = |number: &u32| self.blocks[*number as usize].cached;
        let mut cached: Vec<u32> = (0..self.blocks.len() as u32).filter(is_cached).collect();
        cached.sort_by_key(|number| self.blocks[*number as usize].used);
        let gone = cached.len().saturating_sub(usize::try_from(room).unwrap_or(usize::MAX));
        for number in cached.drain(..gone) {
            let block = &mut self.blocks[number as usize];
            block.cached = false;
            if std::mem::take(&mut block.dirty) {
                destage(block.volume);
            }
        }
        let room = NonZeroU32::new(u32::try_from(room).unwrap_or(u32::MAX));
        self.lru = room.map(|room| {
            let mut lru = Lru::new(room);
            lru.reserve(self.blocks.len() as u32);
            for number in cached {
                lru.touch(number, |_| unreachable!("there is room for what stays"));
            }
            lru
        });
    }

    /// What is dirty goes to the backend, and stays.
    fn clean(&mut self, destage: &mut impl FnMut(u32)) {
        for block in &mut self.blocks {
            if std::mem::take(&mut block.dirty) {
                destage(block.volume);
            }
        }
    }
}
