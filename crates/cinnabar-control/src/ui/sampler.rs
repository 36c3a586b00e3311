//! One look a second for all who watch a page, and none while there is no viewer.
//!
//! A status interrupts the first data thread, so neither a viewer nor a page that is asked for has one of
//! its own: a page takes the newest one if that is younger than a second. What viewers hear of a sample
//! is made once for all who see the same.

use crate::Control;
use crate::observer::now_ms;
use crate::peer::Peer;
use crate::places::{Place, Places};
use cinnabar_config::messages::{CommandError, DataStatus};
use cinnabar_config::status::report::StatusReport;
use cinnabar_page::{Fact, Facts, Rates, Scope};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Pages that are kept live at a time.
pub(super) const VIEWERS_MAX: usize = 64;
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A status is as good as a fresh one for so long.
const FRESH: Duration = Duration::from_millis(900);
/// Rates are of this time, or of less at first.
const RATES_OF: Duration = Duration::from_secs(5);
/// Of less than about a second they say nothing.
const RATES_OF_LEAST: Duration = Duration::from_millis(900);
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
    pub report: Arc<StatusReport>,
    /// Absent at the first one.
    pub rates: Option<Rates>,
    /// One for each scope and what was heard before, of which there are no more than viewers.
    news: Mutex<Vec<News>>,
}

/// What viewers hear who see the same and have heard the same.
#[derive(Clone, Debug)]
pub(super) struct News {
    scope: Scope,
    before: Option<Arc<Facts>>,
    /// The numbers of this sample.
    pub facts: Arc<Facts>,
    /// Those that have changed, as JSON.
    pub json: Arc<str>,
}

/// The numbers that have changed.
#[derive(Serialize)]
struct Changed<'f> {
    /// When, in milliseconds since 1970.
    at: u64,
    /// The same for people.
    clock: String,
    facts: BTreeMap<&'f str, &'f Fact>,
}

impl Sample {
    /// What is new in it for viewers who have heard these facts.
    pub(super) fn news(&self, scope: &Scope, before: Option<&Arc<Facts>>) -> News {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |one: &Option<Arc<Facts>>| match (one, before) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        let known = all.iter().find(|news| news.scope == *scope && is_same(&news.before));
        if let Some(known) = known {
            return known.clone();
        }
        let facts =
            all.iter().find(|news| news.scope == *scope).map(|news| Arc::clone(&news.facts));
        let facts =
            facts.unwrap_or_else(|| Arc::new(Facts::of(scope, &self.report, self.rates.as_ref())));
        let none = Facts::default();
        let changed = Changed {
            at: self.at_ms,
            clock: cinnabar_page::clock(self.at_ms),
            facts: facts.since(before.map_or(&none, AsRef::as_ref)),
        };
        let json = serde_json::to_string(&changed).expect("facts have no keys that fail").into();
        let news = News { scope: scope.clone(), before: before.cloned(), facts, json };
        all.push(news.clone());
        news
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sampler {
    control: Arc<Control>,
    kept: Mutex<VecDeque<Arc<Sample>>>,
    /// One question at a time; others wait for its answer.
    asking: tokio::sync::Mutex<()>,
    viewers: Arc<Places>,
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
            viewers: Places::new(VIEWERS_MAX),
            runs: AtomicBool::new(false),
            news: watch::Sender::new(0),
        }
    }

    /// A place among those who watch, and what wakes them; `None` if there is none for this client.
    pub(super) fn watch(self: &Arc<Self>, peer: Peer) -> Option<(Place, watch::Receiver<u64>)> {
        let place = self.viewers.take(peer)?;
        if !self.runs.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(self).run());
        }
        Some((place, self.news.subscribe()))
    }

    fn is_watched(&self) -> bool {
        self.viewers.is_used()
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
        let old = old_enough.or(kept.front()).filter(|old| taken - old.taken >= RATES_OF_LEAST);
        let rates = old.and_then(|old| {
            Rates::between(&old.status, &status, (taken - old.taken).as_secs_f64())
        });
        let report = Arc::new(StatusReport::new(&status));
        let (at_ms, status) = (now_ms(), Arc::new(status));
        let sample =
            Arc::new(Sample { at_ms, taken, status, report, rates, news: Mutex::default() });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_who_see_the_same_share_what_they_hear() {
        let sample = || {
            let status = Arc::new(crate::ui::tests::status());
            let report = Arc::new(StatusReport::new(&status));
            let (at_ms, taken, rates, news) = (7, Instant::now(), None, Mutex::default());
            Sample { at_ms, taken, status, report, rates, news }
        };
        let (one, two) = (sample(), sample());
        let first = one.news(&Scope::Cache, None);
        assert!(Arc::ptr_eq(&first.json, &one.news(&Scope::Cache, None).json));
        assert!(first.json.contains("cache:cached_blocks"), "{}", first.json);
        let other = one.news(&Scope::Overview(5), None);
        assert!(!Arc::ptr_eq(&first.facts, &other.facts), "another scope");
        let next = two.news(&Scope::Cache, Some(&first.facts));
        assert!(next.json.contains("\"facts\":{}"), "nothing changed: {}", next.json);
        let late = two.news(&Scope::Cache, None);
        assert!(late.json.contains("cache:cached_blocks"), "one who has heard nothing yet");
        assert!(Arc::ptr_eq(&next.facts, &late.facts), "computed once");
    }
}
