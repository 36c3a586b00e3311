//! Fault simulation over many seeds, on all cores.
//!
//! A seed fixes everything that happens in its run, whatever else runs beside it: commit and seed
//! reproduce a failure.

use crate::driver::{self, Failed, Options, Replay, Report};
use crate::shards::ShardedFactory;
use crate::workload::{Features, has_regions};
use cinnabar_engine::mutant::Mutants;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What is searched for, and with what.
#[derive(Clone, Copy, Debug)]
pub struct FaultOptions {
    /// Requests of guests in a seed.
    pub requests: u64,
    /// What may happen; each seed leaves some of it out.
    pub features: Features,
    /// A new daemon waits until the dead one's writes have landed. Without it, what lands late is
    /// found to break promises.
    pub wait_for_lock: bool,
    /// What frontends do with requests that a crash left unanswered: for tests, less than they must.
    pub replay: Replay,
    /// Backend I/O waits for its turn, in queues of two threads with drawn settings.
    pub qos_queues: bool,
    /// Writes may be in active regions, of which there are few; `None`: in every other seed.
    pub regions: Option<bool>,
    /// Deliberate bugs of the engine, for tests.
    pub mutants: Mutants,
    /// Lines shown of a failed seed: of the place's history, and of the last events.
    pub lines: usize,
    /// Failed seeds after which a search ends early.
    pub failures_max: usize,
    /// Threads of a search; `None`: as many as there are cores.
    pub threads: Option<usize>,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            requests: 1200,
            features: Features::ALL,
            wait_for_lock: true,
            replay: Replay::Sound,
            qos_queues: false,
            regions: Some(false),
            mutants: Mutants::default(),
            lines: 60,
            failures_max: 10,
            threads: None,
        }
    }
}

/// How far a search has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Seeds run so far, failed ones included.
    pub done: u64,
    /// Seeds to run.
    pub of: u64,
    /// Seeds that failed.
    pub failed: u64,
    /// Real time since the start.
    pub elapsed: Duration,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds run, failed ones included.
    pub seeds: u64,
    /// Counters of all seeds that did not fail; [`Report::faults`] and [`Report::paths`] say which
    /// faults fired and which recovery paths were taken. Its digest means nothing.
    pub report: Report,
    /// Failed seeds, lowest first.
    pub failures: Vec<Failed>,
    /// Real time.
    pub elapsed: Duration,
}

impl Summary {
    /// Seeds run in a second of real time.
    pub fn seeds_per_second(&self) -> f64 {
        self.seeds as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Simulated time over real time.
    pub fn simulated_over_real(&self) -> f64 {
        self.report.virtual_ns as f64 / 1e9 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Restarts of a seed, on average.
    pub fn restarts_per_seed(&self) -> f64 {
        self.per_seed(self.report.sessions as f64) - 1.0
    }

    /// How often a seed wrote the whole log, on average.
    pub fn log_wraps_per_seed(&self) -> f64 {
        self.per_seed(self.report.log_wraps_percent as f64 / 100.0)
    }

    fn per_seed(&self, sum: f64) -> f64 {
        let sound = self.seeds - self.failures.len() as u64;
        sum / (sound as f64).max(1.0)
    }
}

thread_local! {
    static UNDER_WAY: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed that this thread is running: a panic hook can tell it where a panic ends the process.
pub fn seed_under_way() -> Option<u64> {
    UNDER_WAY.get()
}

/// Runs one seed.
///
/// # Errors
/// [`Failed`] with what went wrong and the history of the place, if a promise was broken.
pub fn run_one(seed: u64, options: &FaultOptions) -> Result<Report, Box<Failed>> {
    UNDER_WAY.set(Some(seed));
    let run = Options {
        requests: options.requests,
        features: options.features,
        wait_for_lock: options.wait_for_lock,
        replay: options.replay,
        qos_queues: options.qos_queues,
        regions: options.regions.unwrap_or_else(|| has_regions(seed)),
        mutants: options.mutants,
        lines: options.lines,
        cold_after_crash: false,
    };
    let result = driver::run(seed, &run, &mut ShardedFactory);
    UNDER_WAY.set(None);
    result
}

/// Runs seeds on all cores until all are done or enough have failed.
///
/// # Panics
/// If a thread can't be started.
pub fn search(
    seeds: Range<u64>,
    options: &FaultOptions,
    mut on_progress: impl FnMut(&Progress),
) -> Summary {
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores).max(1);
    let (next, enough) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let (results, done) = mpsc::channel();
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (results, next, enough, end) = (results.clone(), &next, &enough, seeds.end);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || results.send(run_one(seed, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        for result in done {
            summary.seeds += 1;
            match result {
                Ok(report) => summary.report = std::mem::take(&mut summary.report).plus(report),
                Err(failed) => summary.failures.push(*failed),
            }
            if summary.failures.len() >= options.failures_max {
                enough.store(true, Ordering::Relaxed);
            }
            on_progress(&Progress {
                done: summary.seeds,
                of: seeds.end.saturating_sub(seeds.start),
                failed: summary.failures.len() as u64,
                elapsed: began.elapsed(),
            });
        }
    });
    summary.failures.sort_by_key(|failed| failed.seed);
    summary.elapsed = began.elapsed();
    summary
}
