//! Many timed simulations on all cores: the points of a plan, the lines of a figure.
//!
//! Each [`Job`] is a run of its own with its own seed, so neither the number of threads nor what
//! runs beside it changes an outcome. What is under way together fits the memory given ([`memory`]
//! says how much that is); a job that doesn't fit waits for others to end. Outcomes are handed over
//! as they come, so that a caller can keep them and nothing piles up.

mod job;
mod load;
pub mod memory;
mod queue;
#[cfg(test)]
mod tests;

pub use job::Job;
pub use load::{Load, Open};

use crate::timed::{self, Outcome, RunError};
use queue::Queue;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a sweep may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Simulations at a time, at least 1.
    pub threads: usize,
    /// Bytes of memory for all that run together, by [`Job::memory_bytes`].
    pub memory_bytes: u64,
}

impl Limits {
    /// All cores, and most of the memory that is free now.
    pub fn of_this_machine() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, memory_bytes: memory::available_bytes() }
    }
}

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Jobs that ended.
    pub jobs_done: usize,
    /// Number of jobs in all.
    pub jobs: usize,
    /// Blocks read and written so far, those of jobs under way as far as is known.
    pub ios_done: f64,
    /// Blocks that all jobs read and write.
    pub ios: f64,
    /// Real time since the start.
    pub elapsed: Duration,
}

impl Progress {
    /// Blocks simulated in a second of real time.
    pub fn ios_per_second(&self) -> f64 {
        self.ios_done / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Real time until the end, at the speed so far; `None` before anything is done.
    pub fn left(&self) -> Option<Duration> {
        let left = (self.ios - self.ios_done).max(0.0) / self.ios_per_second();
        (self.ios_done > 0.0).then(|| Duration::try_from_secs_f64(left).ok()).flatten()
    }
}

/// A job that ended.
#[derive(Debug)]
pub struct Finished {
    /// Its place in the list of jobs.
    pub job: usize,
    /// What it found.
    pub result: Result<Outcome, RunError>,
}

/// Why a sweep gives nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("{name} needs about {} MiB of memory, and there are {} MiB", bytes >> 20, limit >> 20)]
    TooLarge { name: String, bytes: u64, limit: u64 },
    #[error("{name}: {source}")]
    Job { name: String, source: RunError },
    #[error("the sweep was stopped")]
    Stopped,
}

impl SweepError {
    /// What would help.
    pub fn hint(&self) -> &str {
        match self {
            Self::TooLarge { .. } => "choose smaller sizes, fewer hosts, or a larger scale",
            Self::Job { source, .. } => source.hint(),
            Self::Stopped => "",
        }
    }
}

enum Message {
    /// A job has come so far, 0 to 1.
    Share(usize, f64),
    /// A job has ended.
    Ended(Box<Finished>),
}

/// Runs all jobs. `watch` is called from time to time with the progress, and for each job that has
/// ended, in the order of their ends. When it breaks, no further job is begun, and those under way
/// are finished.
///
/// # Errors
/// [`SweepError::TooLarge`] before anything is begun; [`SweepError::Stopped`]. A job that fails does
/// not end the others.
///
/// # Panics
/// If a thread can't be started.
pub fn run(
    jobs: &[Job<'_>],
    limits: &Limits,
    watch: &mut dyn FnMut(&Progress, Option<Finished>) -> ControlFlow<()>,
) -> Result<(), SweepError> {
    let needs = needs(jobs, limits)?;
    let queue = Queue::new(needs, limits.memory_bytes);
    let (tell, told) = mpsc::channel();
    let began = Instant::now();
    let mut shares = vec![0.0; jobs.len()];
    let mut progress = Progress {
        jobs: jobs.len(),
        ios: jobs.iter().map(|job| job.ios() as f64).sum(),
        ..Progress::default()
    };
    let mut stopped = false;
    std::thread::scope(|scope| {
        for _ in 0..limits.threads.clamp(1, jobs.len().max(1)) {
            let (tell, queue) = (tell.clone(), &queue);
            scope.spawn(move || work(jobs, queue, &tell));
        }
        drop(tell);
        for message in told {
            let (at, share, finished) = match message {
                Message::Share(at, share) => (at, share, None),
                Message::Ended(finished) => (finished.job, 1.0, Some(*finished)),
            };
            progress.ios_done += (share - shares[at]) * jobs[at].ios() as f64;
            shares[at] = share;
            progress.jobs_done += usize::from(finished.is_some());
            progress.elapsed = began.elapsed();
            if !stopped && watch(&progress, finished).is_break() {
                stopped = true;
                queue.close();
            }
        }
    });
    if stopped { Err(SweepError::Stopped) } else { Ok(()) }
}

/// Runs all jobs; gives their outcomes in the order of the jobs.
///
/// # Errors
/// As [`run`], and if a job fails: then no further one is begun.
///
/// # Panics
/// If a thread can't be started.
pub fn outcomes(
    jobs: &[Job<'_>],
    limits: &Limits,
    show: &mut dyn FnMut(&Progress),
) -> Result<Vec<Outcome>, SweepError> {
    let mut found: Vec<Option<Outcome>> = jobs.iter().map(|_| None).collect();
    let mut failed = None;
    let ran = run(jobs, limits, &mut |progress, finished| {
        show(progress);
        match finished {
            None => ControlFlow::Continue(()),
            Some(Finished { job, result: Ok(outcome) }) => {
                found[job] = Some(outcome);
                ControlFlow::Continue(())
            }
            Some(Finished { job, result: Err(source) }) => {
                failed = Some(SweepError::Job { name: jobs[job].name.clone(), source });
                ControlFlow::Break(())
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => ran.map(|()| found.into_iter().map(|outcome| outcome.expect("it ended")).collect()),
    }
}

fn needs(jobs: &[Job<'_>], limits: &Limits) -> Result<Vec<u64>, SweepError> {
    let need = |job: &Job<'_>| match job.memory_bytes() {
        bytes if bytes <= limits.memory_bytes => Ok(bytes),
        bytes => {
            let (name, limit) = (job.name.clone(), limits.memory_bytes);
            Err(SweepError::TooLarge { name, bytes, limit })
        }
    };
    jobs.iter().map(need).collect()
}

fn work(jobs: &[Job<'_>], queue: &Queue, tell: &mpsc::Sender<Message>) {
    while let Some(turn) = queue.next() {
        let job = turn.job();
        let result = jobs[job].load.workload().and_then(|workload| {
            timed::run(&jobs[job].config, workload, &mut |share| {
                // The receiver is gone only if the sweep is being torn down.
                let _gone = tell.send(Message::Share(job, share));
            })
        });
        let _gone = tell.send(Message::Ended(Box::new(Finished { job, result })));
    }
}
