//! The third pass: the trace under every plan, a thread for each run.
//!
//! A run is one contestant in one cache in one model; runs share nothing, so their figures do not
//! depend on how many are under way.

use super::engine::Replayed;
use super::input::{Input, Step};
use super::outcome::{Counts, Outcome};
use super::papers::Papers;
use super::plans::Division;
use super::progress::Progress;
use super::survey::Survey;
use super::watch::blocks_of;
use super::{Cache, CompareError, Contestant, Model, Options};
use crate::analysis::Every;
use cinnabar_policy::sizing::Allocator;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// The pace of a trace without times, in nanoseconds a request.
const REQUEST_NS_DEFAULT: u64 = 10_000;
/// The slowest pace: the engine's periods are seconds, and nothing more comes of longer pauses.
const REQUEST_NS_MAX: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
struct Run {
    cache: usize,
    entry: usize,
    model: Model,
}

enum Message {
    Requests(u64),
    Done(usize, Result<Outcome, CompareError>),
}

/// Carries out all plans.
///
/// # Errors
/// What the first run that failed says.
pub fn run(
    input: &Input<'_>,
    options: &Options,
    survey: &Survey,
    caches: &mut [Cache],
    tell: &mut impl FnMut(Progress),
) -> Result<(), CompareError> {
    let runs = runs(options, caches);
    let results = in_parallel(options, &runs, survey.requests, tell, |run, heard| {
        let cache = &caches[run.cache];
        carry_out(input, survey, cache, *run, heard)
    });
    for (run, result) in runs.iter().zip(results) {
        let entry = &mut caches[run.cache].entries[run.entry];
        let place = match run.model {
            Model::Engine => &mut entry.engine,
            Model::Papers => &mut entry.papers,
        };
        *place = result.transpose()?;
    }
    Ok(())
}

fn runs(options: &Options, caches: &[Cache]) -> Vec<Run> {
    let mut runs = Vec::new();
    for (cache, found) in caches.iter().enumerate() {
        for entry in 0..found.entries.len() {
            runs.extend(options.models.iter().map(|&model| Run { cache, entry, model }));
        }
    }
    runs
}

/// Does all runs; in their order, those that ended before one failed.
fn in_parallel(
    options: &Options,
    runs: &[Run],
    requests: u64,
    tell: &mut impl FnMut(Progress),
    work: impl Fn(&Run, &mut dyn FnMut(u64)) -> Result<Outcome, CompareError> + Sync,
) -> Vec<Option<Result<Outcome, CompareError>>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.jobs.map_or(cores, NonZeroUsize::get).min(runs.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (messages, heard) = mpsc::channel();
    let mut results: Vec<_> = runs.iter().map(|_| None).collect();
    let (mut done, mut replayed) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (messages, next, failed, work) = (messages.clone(), &next, &failed, &work);
            scope.spawn(move || {
                while !failed.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(at) else { return };
                    // The receiver stays until all threads have ended.
                    let mut say = |more| drop(messages.send(Message::Requests(more)));
                    let result = work(run, &mut say);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    drop(messages.send(Message::Done(at, result)));
                }
            });
        }
        drop(messages);
        for message in heard {
            match message {
                Message::Requests(more) => replayed += more,
                Message::Done(at, result) => {
                    results[at] = Some(result);
                    done += 1;
                }
            }
            let of = requests * runs.len() as u64;
            tell(Progress::Running { requests: replayed, of, runs: done, runs_of: runs.len() });
        }
    });
    results
}

fn carry_out(
    input: &Input<'_>,
    survey: &Survey,
    cache: &Cache,
    run: Run,
    heard: &mut dyn FnMut(u64),
) -> Result<Outcome, CompareError> {
    let entry = &cache.entries[run.entry];
    let (capacity, volumes) = (cache.capacity_blocks, survey.volumes.len());
    if entry.contestant == Contestant::NoCache {
        heard(survey.requests);
        let counts = survey.references.iter().map(|of| Counts::without_cache(*of));
        return Ok(Outcome { volumes: counts.collect(), ..Outcome::default() });
    }
    let (every, plans) = (survey.every, &entry.plans);
    match run.model {
        Model::Engine => {
            let mut replayed = Replayed::new(capacity, volumes, request_ns(survey));
            replay(input, every, plans, heard, |part| {
                match part {
                    Part::Plan(plan) => replayed.adopt(plan),
                    Part::Request(volume, blocks, write) => replayed.request(volume, blocks, write),
                }
                Ok(())
            })?;
            replayed.finish()
        }
        Model::Papers => {
            let is_shared = entry.contestant == Contestant::Allocator(Allocator::Shared);
            let mut papers = Papers::new(capacity, volumes, is_shared);
            replay(input, every, plans, heard, |part| {
                match part {
                    Part::Plan(plan) => papers.adopt(plan),
                    Part::Request(volume, blocks, write) => {
                        papers.request(volume, blocks, write)?;
                    }
                }
                Ok(())
            })?;
            Ok(papers.finish())
        }
    }
}

/// What a cache carries out: plans, and requests in between.
enum Part<'a> {
    Plan(&'a Division),
    Request(usize, std::ops::Range<u64>, bool),
}

fn replay(
    input: &Input<'_>,
    every: Every,
    plans: &[Division],
    heard: &mut dyn FnMut(u64),
    mut play: impl FnMut(Part<'_>) -> Result<(), CompareError>,
) -> Result<(), CompareError> {
    let mut plans = plans.iter();
    play(Part::Plan(plans.next().expect("a plan for the first interval")))?;
    input
        .pass(every, heard, |step| match step {
            Step::Request(record) => match blocks_of(record) {
                Some((blocks, write)) => play(Part::Request(record.volume as usize, blocks, write)),
                None => Ok(()),
            },
            Step::End { .. } => plans.next().map_or(Ok(()), |plan| play(Part::Plan(plan))),
        })
        .map(drop)
}

/// The trace's mean pace: what the engine does once a second, it does as often as it would have.
fn request_ns(survey: &Survey) -> u64 {
    let ends = survey.intervals.first().zip(survey.intervals.last());
    let length_us = ends.map_or(0, |(first, last)| last.last_us.saturating_sub(first.start_us));
    match length_us.saturating_mul(1000) / survey.requests.max(1) {
        0 => REQUEST_NS_DEFAULT,
        pace => pace.min(REQUEST_NS_MAX),
    }
}
