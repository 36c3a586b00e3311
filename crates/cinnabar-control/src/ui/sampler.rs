//! One look a second for all who watch a page, and none while there is no viewer.
//!
//! A status interrupts the first data thread, so neither a viewer nor a page that is asked for has one of
//! its own: a page takes the newest one if that is younger than a second.

use crate::Control;
use crate::observer::now_ms;
use cinnabar_messages::{CommandError, DataStatus};
use cinnabar_page::Rates;
use cinnabar_status::report::StatusReport;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// Pages that are kept live at a time.
pub(super) const VIEWERS_MAX: usize = 64;
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A status is as good as a fresh one for so long.
const FRESH: Duration = Duration::from_millis(900);
/// Rates are of this time, or of less at first.
const RATES_OF: Duration = Duration::from_secs(5);
/// What is older says nothing of now.
const FORGOTTEN: Duration = Duration::from_secs(15);
/// Statuses that are kept.
const KEPT_MAX: usize = 8;

/// A look at the status.
#[derive(Debug)]
pub(super) struct Sample {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    taken: Instant,
    pub status: Arc<DataStatus>,
    pub report: StatusReport,
    /// Absent at the first one.
    pub rates: Option<Rates>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sampler {
    control: Arc<Control>,
    kept: Mutex<VecDeque<Arc<Sample>>>,
    /// One question at a time; others wait for its answer.
    asking: tokio::sync::Mutex<()>,
    viewers: Arc<Semaphore>,
    runs: AtomicBool,
    /// Counts samples, for those who wait for the next one.
    news: watch::Sender<u64>,
}

impl Sampler {
    pub(super) fn new(control: Arc<Control>) -> Self {
        Self {
            control,
            kept: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            runs: AtomicBool::new(false),
            news: watch::Sender::new(0),
        }
    }

    /// A place among those who watch, and what wakes them; `None` if all are taken.
    pub(super) fn watch(self: &Arc<Self>) -> Option<(OwnedSemaphorePermit, watch::Receiver<u64>)> {
        let place = Arc::clone(&self.viewers).try_acquire_owned().ok()?;
        if !self.runs.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(self).run());
        }
        Some((place, self.news.subscribe()))
    }

    fn is_watched(&self) -> bool {
        self.viewers.available_permits() < VIEWERS_MAX
    }

    /// Looks as long as there is a viewer.
    async fn run(self: Arc<Self>) {
        loop {
            while self.is_watched() {
                let next = Instant::now() + EVERY;
                // A daemon that does not answer is asked again.
                let _later = self.look(Duration::ZERO).await;
                tokio::time::sleep_until(next).await;
            }
            self.runs.store(false, Ordering::SeqCst);
            // One may have come between the two.
            if !self.is_watched() || self.runs.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// The newest sample, if it is fresh; else another one.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub(super) async fn sample(&self) -> Result<Arc<Sample>, CommandError> {
        self.look(FRESH).await
    }

    /// The newest one that there is.
    pub(super) fn newest(&self) -> Option<Arc<Sample>> {
        self.kept().back().cloned()
    }

    async fn look(&self, fresh: Duration) -> Result<Arc<Sample>, CommandError> {
        let _one_at_a_time = self.asking.lock().await;
        if let Some(newest) = self.newest().filter(|newest| newest.taken.elapsed() < fresh) {
            return Ok(newest);
        }
        let status = self.control.status().await?;
        Ok(self.keep(status))
    }

    fn keep(&self, status: DataStatus) -> Arc<Sample> {
        let taken = Instant::now();
        let mut kept = self.kept();
        while kept.len() >= KEPT_MAX
            || kept.front().is_some_and(|old| taken - old.taken > FORGOTTEN)
        {
            kept.pop_front();
        }
        // The youngest that is old enough, else the oldest there is.
        let old_enough = kept.iter().rev().find(|old| taken - old.taken >= RATES_OF);
        let rates = old_enough.or(kept.front()).and_then(|old| {
            Rates::between(&old.status, &status, (taken - old.taken).as_secs_f64())
        });
        let report = StatusReport::new(&status);
        let sample =
            Arc::new(Sample { at_ms: now_ms(), taken, status: Arc::new(status), report, rates });
        kept.push_back(Arc::clone(&sample));
        drop(kept);
        self.news.send_modify(|number| *number += 1);
        sample
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<Sample>>> {
        // It is whole at any time.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
