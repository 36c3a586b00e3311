//! What a run counted, and how a failed one is reported.

use crate::driver::log::Log;
use crate::kinds::{Fault, Path, Tally};
use crate::pairs::Pairs;
use crate::violation::{Kind, Violation};
use cinnabar_engine::Bound;
use std::fmt;

/// What a successful run counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Digest of all actions of all engines.
    pub digest: u64,
    /// Requests of guests.
    pub requests: u64,
    /// Of those, refused as they should be.
    pub refused: u64,
    /// Of those, failed because of an injected error.
    pub failed: u64,
    /// Events the engines took.
    pub events: u64,
    /// Virtual time, in ns.
    pub virtual_ns: u64,
    /// Sectors whose value the oracle judged.
    pub sectors_judged: u64,
    /// Blocks read that were cached.
    pub read_hits: u64,
    /// Blocks read that were not.
    pub misses: u64,
    /// Read requests with both.
    pub partial_hits: u64,
    /// Blocks read of which only the sectors asked for were known.
    pub partials_read: u64,
    /// Blocks that writes of parts made whole.
    pub partials_completed: u64,
    /// Blocks that earned flash by a ghost hit.
    pub ghost_hits: u64,
    /// Blocks evicted from flash.
    pub evicted_blocks: u64,
    pub reinserted_blocks: u64,
    /// Blocks let rot on the cache device.
    pub rotted: u64,
    /// Rotten blocks the engines were given to read.
    pub rotten_reads: u64,
    /// Checksum failures they counted.
    pub checksum_failures: u64,
    /// Errors injected on backends.
    pub backend_errors: u64,
    /// Backend I/Os that waited for their turn.
    pub parked: u64,
    /// Of those, given up while they waited.
    pub given_up: u64,
    /// Errors injected on the cache device.
    pub cache_errors: u64,
    /// Plans adopted.
    pub plans: u64,
    /// Volumes detached while others worked on.
    pub detaches: u64,
    /// Clean stops.
    pub stops: u64,
    pub crashes: u64,
    /// Writes by another writer.
    pub foreign_writes: u64,
    /// Blocks believed at attach.
    pub warm_blocks: u64,
    /// Blocks dropped at attach.
    pub dropped_blocks: u64,
    /// Sessions of the cache.
    pub sessions: u64,
    /// How often the log was written from end to end, in per cent.
    pub log_wraps_percent: u64,
    /// Stale sectors read where the stated limit allows it.
    pub stale_in_window: u64,
    /// Blocks that were durably on the cache device at crashes, as far as the driver can tell.
    pub crash_blocks_before: u64,
    /// Of those, cached again after the restart.
    pub crash_blocks_back: u64,
    /// Crashes after which it was demanded that they are.
    pub crashes_warm: u64,
    /// Blocks that had to be there again after a crash, one by one.
    pub crash_blocks_settled: u64,
    /// Of those, the ones that were not, evicted and rotten ones among them.
    pub crash_blocks_missing: u64,
    /// Two mechanisms that were brought together as wanted.
    pub duos: u64,
    /// Faults, by kind.
    pub faults: Tally<Fault>,
    /// Recovery paths, by kind.
    pub paths: Tally<Path>,
    /// Bounds of the engine that were run into.
    pub bounds: Tally<Bound>,
    /// Moments of the engine and what they met.
    pub pairs: Pairs,
}

impl Report {
    /// Adds up the counters of two runs; the digest is the second's.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            digest: other.digest,
            requests: self.requests + other.requests,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
            events: self.events + other.events,
            virtual_ns: self.virtual_ns + other.virtual_ns,
            sectors_judged: self.sectors_judged + other.sectors_judged,
            read_hits: self.read_hits + other.read_hits,
            misses: self.misses + other.misses,
            partial_hits: self.partial_hits + other.partial_hits,
            partials_read: self.partials_read + other.partials_read,
            partials_completed: self.partials_completed + other.partials_completed,
            ghost_hits: self.ghost_hits + other.ghost_hits,
            evicted_blocks: self.evicted_blocks + other.evicted_blocks,
            reinserted_blocks: self.reinserted_blocks + other.reinserted_blocks,
            rotted: self.rotted + other.rotted,
            rotten_reads: self.rotten_reads + other.rotten_reads,
            checksum_failures: self.checksum_failures + other.checksum_failures,
            backend_errors: self.backend_errors + other.backend_errors,
            parked: self.parked + other.parked,
            given_up: self.given_up + other.given_up,
            cache_errors: self.cache_errors + other.cache_errors,
            plans: self.plans + other.plans,
            detaches: self.detaches + other.detaches,
            stops: self.stops + other.stops,
            crashes: self.crashes + other.crashes,
            foreign_writes: self.foreign_writes + other.foreign_writes,
            warm_blocks: self.warm_blocks + other.warm_blocks,
            dropped_blocks: self.dropped_blocks + other.dropped_blocks,
            sessions: self.sessions + other.sessions,
            log_wraps_percent: self.log_wraps_percent + other.log_wraps_percent,
            stale_in_window: self.stale_in_window + other.stale_in_window,
            crash_blocks_before: self.crash_blocks_before + other.crash_blocks_before,
            crash_blocks_back: self.crash_blocks_back + other.crash_blocks_back,
            crashes_warm: self.crashes_warm + other.crashes_warm,
            crash_blocks_settled: self.crash_blocks_settled + other.crash_blocks_settled,
            crash_blocks_missing: self.crash_blocks_missing + other.crash_blocks_missing,
            duos: self.duos + other.duos,
            faults: self.faults.plus(other.faults),
            paths: self.paths.plus(other.paths),
            bounds: self.bounds.plus(other.bounds),
            pairs: self.pairs.plus(other.pairs),
        }
    }
}

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failed {
    pub seed: u64,
    /// What it broke.
    pub violation: Violation,
    /// The last events, in words.
    pub events: String,
}

impl Failed {
    pub(super) fn new(
        seed: u64,
        violation: Violation,
        second: Option<&Violation>,
        same_digest: bool,
        log: &Log,
        lines: usize,
    ) -> Self {
        let events = log.excerpt(second.unwrap_or(&violation), lines);
        if same_digest && second == Some(&violation) {
            return Self { seed, violation, events };
        }
        let what = format!("the first run found {violation}; the second {second:?}");
        Self { seed, violation: Violation::new(Kind::Nondeterminism, what), events }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed: {}", self.seed, self.violation)?;
        f.write_str(&self.events)
    }
}

impl std::error::Error for Failed {}
