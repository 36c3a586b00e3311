//! Two hosts and one volume: hand-over, fail-over, and late writes of a host that was frozen
//! (docs/design/migration.md, "How it is searched").
//!
//! Each host has the real engine over a cache device of its own, the production rules of who owns the volume
//! ([`Ownership`](cinnabar_driver::Ownership)), the production life of a volume, and a record that outlives
//! it. Between them lie one image, messages, guests and an operator. A seed draws all of it.

mod aims;
mod clocks;
mod commands;
mod disasters;
mod ending;
mod guests;
mod host;
mod image;
mod io;
mod judge;
mod messages;
mod operator;
mod profile;
mod replies;
mod report;
mod requests;
mod steps;
mod world;

pub use report::{HostFault, HostReport};

use crate::violation::{Kind, Violation};
use cinnabar_engine::mutant::Mutants;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use world::World;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    /// Requests of guests in a seed.
    pub requests: u64,
    /// Deliberate bugs.
    pub mutants: Mutants,
    /// Lines shown of a failed run.
    pub lines: usize,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { requests: 200, mutants: Mutants::default(), lines: 60 }
    }
}

/// A seed that broke a promise.
#[derive(Debug)]
pub struct HostsFailed {
    pub seed: u64,
    /// What went wrong.
    pub violation: Violation,
    /// The last that happened before.
    pub history: Vec<String>,
}

impl fmt::Display for HostsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} of two hosts: {}", self.seed, self.violation)?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Runs a seed.
///
/// # Errors
/// [`HostsFailed`] if a promise was broken; its history comes from a second run of the seed.
pub fn run(seed: u64, options: &HostOptions) -> Result<HostReport, Box<HostsFailed>> {
    let mut world = World::new(seed, *options, false);
    let Err(violation) = guarded(&mut world) else { return Ok(world.report()) };
    let mut again = World::new(seed, *options, true);
    let second = guarded(&mut again).err();
    let violation = if second.as_ref() == Some(&violation) {
        violation
    } else {
        let what = format!("first {violation}, then {second:?}");
        Violation::new(Kind::Nondeterminism, what)
    };
    Err(Box::new(HostsFailed { seed, violation, history: again.last_lines() }))
}

fn guarded(world: &mut World) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Violation::new(Kind::Panic, text))
    })
}

/// Runs seeds on all cores until all are done, or `failures_max` have failed. Gives what happened in
/// those that did not fail, and those that did, lowest first.
///
/// # Panics
/// If a thread can't be started.
pub fn search(
    seeds: Range<u64>,
    options: &HostOptions,
    failures_max: usize,
) -> (HostReport, Vec<HostsFailed>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let (results, done) = mpsc::channel();
    let (mut sum, mut failures) = (HostReport::default(), Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (results, next, end) = (results.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || results.send(run(seed, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        for result in done {
            match result {
                Ok(report) => sum.add(&report),
                Err(failed) => failures.push(*failed),
            }
            if failures.len() >= failures_max {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    });
    failures.sort_by_key(|failed| failed.seed);
    (sum, failures)
}
