//! A trace through a policy: what writes do, and what is counted.
//!
//! Called by the commands that compare policies and sizes, once for each pair.

use crate::access::{Access, blocks_of};
use crate::replacement::{
    Arc, Belady, Clock, Fifo, Larc, Lru, Outcome, Policy, Replacement, S3Fifo, Sieve,
};
use std::num::NonZeroU32;
use std::str::FromStr;

/// What a write does to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// The same as a read: what hit-ratio simulators do. Flash is written when a block comes in.
    #[default]
    AsReads,
    /// Write-through: the written block is cached, or refreshed, and written to the backend.
    Through,
    /// Write-around: the written block is dropped from the cache.
    Around,
    /// Write-back: the written block is cached, dirty, and written to the backend when it is evicted.
    Back,
}

/// No such way to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no way to write is called `{0}`: there are as-reads, through, around, back")]
pub struct UnknownWrites(String);

impl FromStr for Writes {
    type Err = UnknownWrites;

    fn from_str(name: &str) -> Result<Self, UnknownWrites> {
        match name {
            "as-reads" => Ok(Self::AsReads),
            "through" => Ok(Self::Through),
            "around" => Ok(Self::Around),
            "back" => Ok(Self::Back),
            _ => Err(UnknownWrites(name.to_owned())),
        }
    }
}

/// What a simulation counted; blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses.
    pub references: u64,
    /// Accesses whose block was not cached when they came; a write-around that drops a block is
    /// not one.
    pub misses: u64,
    /// Reads; all accesses if writes are as reads.
    pub read_references: u64,
    /// Reads whose block was not cached.
    pub read_misses: u64,
    /// Blocks written to flash: those that came in, and refreshed ones.
    pub flash_writes: u64,
    /// Blocks written to the backend, because they were written to or because they were evicted
    /// dirty.
    pub backend_writes: u64,
    /// Blocks still dirty at the end.
    pub dirty: u64,
}

/// Runs `accesses` through a cache of `capacity` blocks, empty at first.
///
/// # Panics
/// If Belady is asked about more than 2^32 - 2 accesses.
pub fn simulate(
    policy: Policy,
    capacity: NonZeroU32,
    writes: Writes,
    accesses: &[Access],
) -> Counts {
    match policy {
        Policy::Lru => run(Lru::new(capacity), writes, accesses),
        Policy::Fifo => run(Fifo::new(capacity), writes, accesses),
        Policy::Clock => run(Clock::new(capacity), writes, accesses),
        Policy::Sieve => run(Sieve::new(capacity), writes, accesses),
        Policy::S3Fifo => run(S3Fifo::new(capacity), writes, accesses),
        Policy::Arc => run(Arc::new(capacity), writes, accesses),
        Policy::Larc => run(Larc::new(capacity), writes, accesses),
        Policy::Belady => {
            let only_reads = writes == Writes::Around;
            run(Belady::new(capacity, accesses, only_reads), writes, accesses)
        }
    }
}

fn run(mut cache: impl Replacement, writes: Writes, accesses: &[Access]) -> Counts {
    let blocks = blocks_of(accesses);
    cache.reserve(blocks);
    let mut counts = match writes {
        Writes::AsReads => as_reads(cache, accesses),
        Writes::Through => through(cache, accesses),
        Writes::Around => around(cache, accesses),
        Writes::Back => back(cache, accesses, blocks),
    };
    counts.references = accesses.len() as u64;
    counts
}

fn as_reads(mut cache: impl Replacement, accesses: &[Access]) -> Counts {
    let mut counts = Counts::default();
    for access in accesses {
        let outcome = cache.touch(access.block(), |_| {});
        counts.misses += u64::from(outcome != Outcome::Hit);
        counts.flash_writes += u64::from(outcome == Outcome::Admitted);
    }
    counts.read_references = accesses.len() as u64;
    counts.read_misses = counts.misses;
    counts
}

impl Counts {
    /// Counts an access that went through the policy and may have written flash.
    #[inline]
    fn touched(&mut self, access: Access, outcome: Outcome) {
        let missed = u64::from(outcome != Outcome::Hit);
        let read = u64::from(!access.is_write());
        self.misses += missed;
        self.read_references += read;
        self.read_misses += missed & read;
        self.flash_writes += match outcome {
            Outcome::Hit => u64::from(access.is_write()),
            Outcome::Admitted => 1,
            Outcome::Passed => 0,
        };
    }
}

fn through(mut cache: impl Replacement, accesses: &[Access]) -> Counts {
    let mut counts = Counts::default();
    for &access in accesses {
        let outcome = cache.touch(access.block(), |_| {});
        counts.touched(access, outcome);
        counts.backend_writes += u64::from(access.is_write());
    }
    counts
}

fn around(mut cache: impl Replacement, accesses: &[Access]) -> Counts {
    let mut counts = Counts::default();
    for &access in accesses {
        if access.is_write() {
            counts.misses += u64::from(!cache.remove(access.block()));
            counts.backend_writes += 1;
        } else {
            let outcome = cache.touch(access.block(), |_| {});
            counts.touched(access, outcome);
        }
    }
    counts
}

fn back(mut cache: impl Replacement, accesses: &[Access], blocks: u32) -> Counts {
    let mut counts = Counts::default();
    let mut dirty = vec![false; blocks as usize];
    for &access in accesses {
        let mut destages = 0;
        let outcome = cache.touch(access.block(), |victim| {
            destages += u64::from(std::mem::take(&mut dirty[victim as usize]));
        });
        counts.touched(access, outcome);
        counts.backend_writes += destages;
        if access.is_write() {
            match outcome {
                // Not cached, so it can't wait.
                Outcome::Passed => counts.backend_writes += 1,
                Outcome::Hit | Outcome::Admitted => dirty[access.block() as usize] = true,
            }
        }
    }
    counts.dirty = dirty.iter().map(|&dirty| u64::from(dirty)).sum();
    counts
}
