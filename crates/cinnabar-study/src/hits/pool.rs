//! Threads that read the trace and feed the caches with it.
//!
//! Called once a trace. A job is reading the next portion, or feeding one cache with one portion. Some
//! portions are kept at a time: a quick cache may be ahead of a slow one by so many. Each cache has
//! its portions in order, so what it counts does not depend on threads.

use super::engine::EngineCache;
use super::error::HitsError;
use super::portions::{Portion, Portions, Survey};
use super::{Contender, Options, Outcome, Progress, Run};
use cinnabar_engine::Config;
use cinnabar_policy::Simulation;
use cinnabar_trace::{Record, TraceError};
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Portions kept at a time, some 2 MiB each (8 with requests).
const PORTIONS_MAX: usize = 6;
const TELL_EVERY: Duration = Duration::from_millis(100);

pub(super) enum Runner {
    Policy(Box<Simulation<'static>>),
    Engine(Box<EngineCache>),
}

impl Runner {
    /// An empty cache; not for Belady.
    pub(super) fn new(run: Run, options: &Options) -> Result<Self, HitsError> {
        match run.contender {
            Contender::Engine => {
                let Options { endurance, admission, .. } = *options;
                let config = Config { endurance, admission, ..Config::default() };
                let cache = EngineCache::with(run.size_blocks, options.writes, config)?;
                Ok(Self::Engine(Box::new(cache)))
            }
            Contender::Policy(policy) => {
                let simulation = Simulation::new(policy, run.size_blocks, options.writes);
                Ok(Self::Policy(Box::new(simulation.expect("it needs no future"))))
            }
        }
    }

    fn feed(&mut self, portion: &Portion) -> Result<(), HitsError> {
        match self {
            Self::Policy(simulation) => simulation.feed(&portion.accesses),
            Self::Engine(cache) => {
                for request in &portion.requests {
                    cache.request(request.volume, request.is_write, request.span)?;
                }
            }
        }
        Ok(())
    }

    /// What it counted as `run`.
    pub(super) fn finish(self, run: Run) -> Outcome {
        let (capacity_blocks, counts, reasons) = match self {
            Self::Policy(simulation) => (run.size_blocks.get().into(), simulation.finish(), None),
            Self::Engine(mut cache) => {
                (cache.capacity_blocks(), cache.counts(), Some(cache.reasons()))
            }
        };
        Outcome { run, capacity_blocks, counts, reasons }
    }
}

/// A cache, and which portion it is to see next.
struct Lane {
    /// Not there while a thread feeds it.
    runner: Option<Runner>,
    next: u64,
}

/// What the threads share.
struct State<I> {
    /// Not there while a thread reads.
    source: Option<Portions<I>>,
    has_ended: bool,
    survey: Survey,
    portions: VecDeque<Arc<Portion>>,
    /// Number of the oldest of them.
    first: u64,
    lanes: Vec<Lane>,
    failed: Option<HitsError>,
    /// A thread panicked: the others end.
    broken: bool,
}

enum Job<I> {
    Read(Portions<I>),
    Feed(usize, Runner, Arc<Portion>),
}

impl<I: Iterator<Item = Result<Record, TraceError>>> State<I> {
    /// Something to do now. Reading comes first: without it no thread has work.
    fn job(&mut self) -> Option<Job<I>> {
        if !self.has_ended
            && self.portions.len() < PORTIONS_MAX
            && let Some(source) = self.source.take()
        {
            return Some(Job::Read(source));
        }
        let end = self.first + self.portions.len() as u64;
        let ready = |(_, lane): &(usize, &mut Lane)| lane.runner.is_some() && lane.next < end;
        let lanes = self.lanes.iter_mut().enumerate().filter(ready);
        let (index, lane) = lanes.min_by_key(|(_, lane)| lane.next)?;
        let runner = lane.runner.take().expect("it was there");
        let portion = self.portions[(lane.next - self.first) as usize].clone();
        Some(Job::Feed(index, runner, portion))
    }

    fn is_done(&self) -> bool {
        let end = self.first + self.portions.len() as u64;
        let through = |lane: &Lane| lane.runner.is_some() && lane.next == end;
        self.broken || self.failed.is_some() || (self.has_ended && self.lanes.iter().all(through))
    }

    fn read(&mut self, source: Portions<I>, read: Result<Option<Portion>, HitsError>) {
        self.survey = source.survey();
        self.source = Some(source);
        match read {
            // Without caches that are fed so, it is only counted, or kept for the optimum.
            Ok(Some(_)) if self.lanes.is_empty() => {}
            Ok(Some(portion)) => self.portions.push_back(Arc::new(portion)),
            Ok(None) => self.has_ended = true,
            Err(error) => self.fail(error),
        }
    }

    fn fed(&mut self, index: usize, runner: Runner, fed: Result<(), HitsError>) {
        let lane = &mut self.lanes[index];
        lane.runner = Some(runner);
        lane.next += 1;
        if let Err(error) = fed {
            self.fail(error);
        }
        let seen = self.lanes.iter().map(|lane| lane.next).min().unwrap_or(self.first);
        while self.first < seen {
            self.portions.pop_front();
            self.first += 1;
        }
    }

    fn fail(&mut self, error: HitsError) {
        self.failed.get_or_insert(error);
    }
}

/// The shared state, and where to wait for a change of it.
struct Pool<I> {
    state: Mutex<State<I>>,
    changed: Condvar,
}

impl<I: Iterator<Item = Result<Record, TraceError>>> Pool<I> {
    fn lock(&self) -> MutexGuard<'_, State<I>> {
        self.state.lock().expect("no thread panics with it")
    }

    fn work(&self) {
        let _alarm = Alarm(self);
        let mut state = self.lock();
        while !state.is_done() {
            let Some(job) = state.job() else {
                state = self.changed.wait(state).expect("no thread panics with it");
                continue;
            };
            drop(state);
            match job {
                Job::Read(mut source) => {
                    let read = source.next();
                    state = self.lock();
                    state.read(source, read);
                }
                Job::Feed(index, mut runner, portion) => {
                    let fed = runner.feed(&portion);
                    drop(portion);
                    state = self.lock();
                    state.fed(index, runner, fed);
                }
            }
            self.changed.notify_all();
        }
    }
}

/// Wakes the other threads if its thread panics: they would wait without end.
struct Alarm<'a, I: Iterator<Item = Result<Record, TraceError>>>(&'a Pool<I>);

impl<I: Iterator<Item = Result<Record, TraceError>>> Drop for Alarm<'_, I> {
    fn drop(&mut self) {
        if thread::panicking()
            && let Ok(mut state) = self.0.state.lock()
        {
            state.broken = true;
            self.0.changed.notify_all();
        }
    }
}

/// Feeds every cache with all of the trace.
pub(super) fn run<I: Iterator<Item = Result<Record, TraceError>> + Send>(
    source: Portions<I>,
    runners: Vec<Runner>,
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Portions<I>, Vec<Runner>), HitsError> {
    let threads = jobs.get().min(runners.len() + 1);
    let lanes = runners.into_iter().map(|runner| Lane { runner: Some(runner), next: 0 });
    let state = State {
        survey: source.survey(),
        source: Some(source),
        has_ended: false,
        portions: VecDeque::new(),
        first: 0,
        lanes: lanes.collect(),
        failed: None,
        broken: false,
    };
    let pool = Pool { state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pool.work());
        }
        loop {
            let state = pool.lock();
            if state.is_done() {
                break;
            }
            let (state, _) =
                pool.changed.wait_timeout(state, TELL_EVERY).expect("no thread panics with it");
            let survey = state.survey;
            drop(state);
            progress(Progress::Reading(survey));
        }
    });
    let state = pool.state.into_inner().expect("no thread panics with it");
    if let Some(error) = state.failed {
        return Err(error);
    }
    let runners = state.lanes.into_iter().map(|lane| lane.runner.expect("it was given back"));
    Ok((state.source.expect("it was given back"), runners.collect()))
}
