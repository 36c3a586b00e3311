//! A policy at one size, fed with accesses portion by portion.
//!
//! A trace is simulated as it is read, so memory is bounded by its different blocks and not by its
//! length. Only Belady needs all accesses before the first one ([`Future`]).

use crate::access::{Access, blocks_of};
use crate::counts::{Counts, Writes};
use crate::replacement::{
    Arc, Belady, Clock, Fifo, Future, Larc, Lru, Outcome, Policy, Replacement, S3Fifo, Sieve,
};
use std::num::NonZeroU32;

/// A cache, empty at first, and what was counted so far.
#[derive(Debug)]
pub struct Simulation<'a> {
    cache: Cache<'a>,
    writes: Writes,
    counts: Counts,
    /// By block; only for write-back.
    dirty: Vec<bool>,
}

/// Any policy. It is looked at once a portion: within one, a policy's own code runs.
#[derive(Debug)]
enum Cache<'a> {
    Lru(Lru),
    Fifo(Fifo),
    Clock(Clock),
    Sieve(Sieve),
    S3Fifo(S3Fifo),
    Arc(Arc),
    Larc(Larc),
    Belady(Belady<'a>),
}

impl Simulation<'static> {
    /// A cache of `capacity` blocks, empty; `None` for Belady, which has to be
    /// [foreseeing](Simulation::foreseeing).
    pub fn new(policy: Policy, capacity: NonZeroU32, writes: Writes) -> Option<Self> {
        let cache = match policy {
            Policy::Lru => Cache::Lru(Lru::new(capacity)),
            Policy::Fifo => Cache::Fifo(Fifo::new(capacity)),
            Policy::Clock => Cache::Clock(Clock::new(capacity)),
            Policy::Sieve => Cache::Sieve(Sieve::new(capacity)),
            Policy::S3Fifo => Cache::S3Fifo(S3Fifo::new(capacity)),
            Policy::Arc => Cache::Arc(Arc::new(capacity)),
            Policy::Larc => Cache::Larc(Larc::new(capacity)),
            Policy::Belady => return None,
        };
        Some(Self::of(cache, writes))
    }
}

impl<'a> Simulation<'a> {
    /// Belady: it must be fed with the accesses of `future`, which was made for the same `writes`.
    ///
    /// # Panics
    /// If `future` was made for writes with another effect.
    pub fn foreseeing(capacity: NonZeroU32, writes: Writes, future: &'a Future<'a>) -> Self {
        assert!(future.is_for(writes), "what is of use depends on what writes do");
        Self::of(Cache::Belady(Belady::new(capacity, future)), writes)
    }

    fn of(cache: Cache<'a>, writes: Writes) -> Self {
        Self { cache, writes, counts: Counts::default(), dirty: Vec::new() }
    }

    /// The next accesses.
    pub fn feed(&mut self, accesses: &[Access]) {
        match &mut self.cache {
            Cache::Lru(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Fifo(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Clock(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Sieve(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::S3Fifo(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Arc(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Larc(cache) => run(cache, self.writes, accesses, &mut self.dirty),
            Cache::Belady(cache) => run(cache, self.writes, accesses, &mut self.dirty),
        }
        .add_to(&mut self.counts);
    }

    /// What was counted.
    pub fn finish(self) -> Counts {
        let dirty = self.dirty.iter().map(|&dirty| u64::from(dirty)).sum();
        Counts { dirty, ..self.counts }
    }
}

fn run(
    cache: &mut impl Replacement,
    writes: Writes,
    accesses: &[Access],
    dirty: &mut Vec<bool>,
) -> Counts {
    let blocks = blocks_of(accesses);
    cache.reserve(blocks);
    let mut counts = match writes {
        Writes::AsReads => as_reads(cache, accesses),
        Writes::Through => through(cache, accesses),
        Writes::Around => around(cache, accesses),
        Writes::Back => {
            if dirty.len() < blocks as usize {
                dirty.resize(blocks as usize, false);
            }
            back(cache, accesses, dirty)
        }
    };
    counts.references = accesses.len() as u64;
    counts
}

fn as_reads(cache: &mut impl Replacement, accesses: &[Access]) -> Counts {
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
    fn add_to(self, all: &mut Self) {
        all.references += self.references;
        all.misses += self.misses;
        all.read_references += self.read_references;
        all.read_misses += self.read_misses;
        all.flash_writes += self.flash_writes;
        all.backend_writes += self.backend_writes;
    }

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

fn through(cache: &mut impl Replacement, accesses: &[Access]) -> Counts {
    let mut counts = Counts::default();
    for &access in accesses {
        let outcome = cache.touch(access.block(), |_| {});
        counts.touched(access, outcome);
        counts.backend_writes += u64::from(access.is_write());
    }
    counts
}

fn around(cache: &mut impl Replacement, accesses: &[Access]) -> Counts {
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

fn back(cache: &mut impl Replacement, accesses: &[Access], dirty: &mut [bool]) -> Counts {
    let mut counts = Counts::default();
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
    counts
}
