//! Answers of the manager, kept for a while: each costs it a status and a plan of all volumes, and pages
//! that are kept live ask for the same again and again.

use super::gather::trouble;
use crate::Control;
use cinnabar_manager::Query;
use cinnabar_manager::report::{ExplainReport, HistoryReport, PlanReport};
use cinnabar_page::{Trouble, WhatIf};
use cinnabar_policy::sizing::Allocator;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// An answer is as good as a fresh one for so long...
const KEPT: Duration = Duration::from_secs(10);
/// ...or, once something has happened since, for so long: a share may have been pinned.
const KEPT_THEN: Duration = Duration::from_secs(1);
/// Who asks waits no longer: a manager that hangs must not hold the connections of the page.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Answers to questions of a kind that are kept at a time.
const KEPT_MAX: usize = 64;

/// An allocator, and a size in blocks, beside those that are.
type Supposed = (Option<String>, Option<u64>);

/// See the module.
#[derive(Debug)]
pub(super) struct Answers {
    control: Arc<Control>,
    plans: Kept<usize, Result<HistoryReport, Trouble>>,
    explains: Kept<String, Result<ExplainReport, Trouble>>,
    what_ifs: Kept<Supposed, [Result<PlanReport, Trouble>; 2]>,
}

impl Answers {
    pub(super) fn new(control: Arc<Control>) -> Self {
        let (plans, explains, what_ifs) = (Kept::default(), Kept::default(), Kept::default());
        Self { control, plans, explains, what_ifs }
    }

    /// The newest plans.
    pub(super) async fn plans(&self, count: usize) -> Result<HistoryReport, Trouble> {
        let control = Arc::clone(&self.control);
        let ask = async move {
            let plans = control.ask_manager(move |answer| Query::History(count, answer));
            plans.await.map_err(trouble)
        };
        in_time(WAIT_MAX, self.plans.get(count, self.events(), ask, Result::is_ok)).await?
    }

    /// Why a volume that there is has what it has.
    pub(super) async fn explain(&self, name: &str) -> Result<ExplainReport, Trouble> {
        let (control, volume) = (Arc::clone(&self.control), name.to_owned());
        let ask = async move {
            let explain = control.ask_manager(move |answer| Query::Explain(volume, None, answer));
            explain.await.map_err(trouble)
        };
        let answer = self.explains.get(name.to_owned(), self.events(), ask, Result::is_ok);
        in_time(WAIT_MAX, answer).await?
    }

    /// What is planned, and what would be; into what was asked for.
    pub(super) async fn what_if(
        &self,
        asked: WhatIf,
        allocator: Option<Allocator>,
        capacity_blocks: Option<u64>,
    ) -> WhatIf {
        let is_wrong = asked.wrong.is_some();
        let control = Arc::clone(&self.control);
        let ask = async move {
            let now = control.ask_manager(|answer| Query::Plan(None, answer)).await;
            let now = now.map_err(trouble);
            let then = match &now {
                Ok(_) if !is_wrong => control
                    .ask_manager(move |answer| Query::WhatIf(allocator, capacity_blocks, answer))
                    .await
                    .map_err(trouble),
                other => other.clone(),
            };
            [now, then]
        };
        let is_good = |both: &[Result<PlanReport, Trouble>; 2]| both.iter().all(Result::is_ok);
        let key = (allocator.map(|one| one.name().to_owned()), capacity_blocks);
        let answers = if is_wrong {
            in_time(WAIT_MAX, async { Some(ask.await) }).await
        } else {
            in_time(WAIT_MAX, self.what_ifs.get(key, self.events(), ask, is_good)).await
        };
        let [now, then] = answers.unwrap_or_else(|late| [Err(late.clone()), Err(late)]);
        WhatIf { now, then, ..asked }
    }

    fn events(&self) -> u64 {
        self.control.observer.events().next()
    }
}

/// What is answered, unless it takes too long.
async fn in_time<T>(
    wait_max: Duration,
    answer: impl Future<Output = Option<T>>,
) -> Result<T, Trouble> {
    let answer = tokio::time::timeout(wait_max, answer).await;
    answer.ok().flatten().ok_or_else(|| Trouble {
        message: format!("The manager has not answered for {} s.", wait_max.as_secs()),
        hint: "look again in a while; the daemon's log may say what keeps it".into(),
    })
}

/// Answers by their questions: when each came, after which events.
type Known<K, T> = BTreeMap<K, (Instant, u64, T)>;

/// Answers to questions of one kind. One is asked at a time; who asks the same meanwhile gets its answer.
#[derive(Debug)]
struct Kept<K, T>(Arc<Mutex<Known<K, T>>>);

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> Kept<K, T>
where
    K: Ord + Clone + Send + 'static,
    T: Clone + Send + 'static,
{
    /// The answer to this question; `events` counts what has happened so far. One that is not good is
    /// not kept: the next to ask may have more luck. The question goes on when nobody waits for it any more, and its
    /// answer is kept: else one that takes longer than anybody waits would be asked again and again. `None` if it ended early.
    async fn get(
        &self,
        key: K,
        events: u64,
        ask: impl Future<Output = T> + Send + 'static,
        is_good: impl Fn(&T) -> bool + Send + 'static,
    ) -> Option<T> {
        let mut kept = Arc::clone(&self.0).lock_owned().await;
        let is_fresh = move |(at, then, _): &(Instant, u64, T)| {
            at.elapsed() < if *then == events { KEPT } else { KEPT_THEN }
        };
        if let Some((.., answer)) = kept.get(&key).filter(|known| is_fresh(known)) {
            return Some(answer.clone());
        }
        let asking = tokio::spawn(async move {
            let answer = ask.await;
            kept.retain(|_, known| is_fresh(known));
            if !is_good(&answer) {
                kept.remove(&key);
                return answer;
            }
            if kept.len() >= KEPT_MAX {
                kept.pop_first();
            }
            kept.insert(key, (Instant::now(), events, answer.clone()));
            answer
        });
        asking.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The first one holds the questions of its kind while nobody answers.
    #[test]
    fn nobody_waits_for_a_manager_that_hangs() {
        const WAIT: Duration = Duration::from_secs(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let kept = Kept::<u64, u64>::default();
            let get = |key| in_time(WAIT, kept.get(key, 0, pending(), |_| true));
            let asked = async { tokio::join!(get(1), get(1), get(2)) };
            // One after the other would be three times as long.
            let answers = tokio::time::timeout(2 * WAIT, asked).await.expect("all end together");
            assert!(answers.0.is_err() && answers.1.is_err() && answers.2.is_err());
        });
    }

    /// It is asked once, and who comes later gets it.
    #[test]
    fn an_answer_that_came_too_late_is_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let kept = Kept::<u64, u64>::default();
            let (say, said) = tokio::sync::oneshot::channel();
            let first = kept.get(1, 0, async { said.await.expect("it is said") }, |_| true);
            assert!(in_time(Duration::from_millis(20), first).await.is_err(), "it is not said yet");
            say.send(5).expect("it is waited for");
            let again = kept.get(1, 0, pending(), |_| true);
            assert_eq!(in_time(Duration::from_secs(20), again).await, Ok(5));
        });
    }

    #[test]
    fn a_question_is_asked_again_when_its_answer_is_old() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (kept, asked) = (Kept::<u64, u64>::default(), Arc::new(AtomicUsize::new(0)));
            let get = async |key: u64, events: u64| {
                let count = Arc::clone(&asked);
                let ask = async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    key
                };
                assert_eq!(kept.get(key, events, ask, |key| *key != 7).await, Some(key));
                asked.load(Ordering::Relaxed)
            };
            assert_eq!((get(1, 5).await, get(1, 5).await, get(1, 6).await), (1, 1, 1));
            assert_eq!(get(2, 5).await, 2, "another question");
            let age = async |by: Duration| {
                kept.0.lock().await.values_mut().for_each(|(at, ..)| *at -= by);
            };
            age(Duration::from_secs(2)).await;
            assert_eq!((get(1, 5).await, get(1, 6).await), (2, 3), "something has happened");
            age(KEPT).await;
            assert_eq!(get(1, 6).await, 4);
            assert_eq!((get(7, 6).await, get(7, 6).await), (5, 6), "it is not good");
            for key in 0..1000 {
                get(key, 6).await;
            }
            assert!(kept.0.lock().await.len() <= KEPT_MAX);
        });
    }
}
