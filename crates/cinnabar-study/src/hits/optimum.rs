//! Belady's optimum for several sizes, once the whole trace is known.
//!
//! Called at the end of a run. What comes next is worked out once; each size is a job.

use super::error::HitsError;
use super::{Options, Progress};
use cinnabar_policy::{Access, Counts, Future, Simulation};
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// References between two reports of a job's progress.
const STEP: usize = 1 << 18;
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Counts for each of `sizes`.
pub(super) fn run(
    all: &[Access],
    sizes: &[NonZeroU32],
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Counts>, HitsError> {
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let of = all.len() as u64 * sizes.len() as u64;
    progress(Progress::Foreseeing { done: 0, of });
    let future = Future::new(all, options.writes)?;
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let found: Vec<OnceLock<Counts>> = sizes.iter().map(|_| OnceLock::new()).collect();
    let work = |_ended: mpsc::Sender<()>| {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(size) = sizes.get(index)
        {
            let mut simulation = Simulation::foreseeing(*size, options.writes, &future);
            for step in all.chunks(STEP) {
                simulation.feed(step);
                done.fetch_add(step.len() as u64, Ordering::Relaxed);
            }
            found[index].set(simulation.finish()).expect("each index comes once");
        }
    };
    thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for _ in 0..options.jobs.get().min(sizes.len()) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        // Nothing is sent: the channel closes when the last of them has ended.
        while ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
            progress(Progress::Foreseeing { done: done.load(Ordering::Relaxed), of });
        }
    });
    let counts =
        found.into_iter().map(|counts| counts.into_inner().expect("every size was computed"));
    Ok(counts.collect())
}
