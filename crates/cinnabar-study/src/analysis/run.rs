//! The analysis: one pass over the traces, or two where the size of the cache follows from the first.

use super::error::AnalysisError;
use super::measure::{Curves, Look, Measure};
use super::outcome::{Analysis, Expected, Found, Planned, PlannedVolume};
use super::recommend::recommend;
use super::traces::{Progress, Traces};
use cinnabar_policy::monitor;
use cinnabar_policy::planning::{Bounds, Closed, Ended, Every, Interval, Part, Planning, Rules};
use cinnabar_policy::reuse::SampledCurves;
use cinnabar_policy::sizing::{Allocator, WritePolicy};
use cinnabar_trace::{Format, Op, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The default: ten minutes.
pub const EVERY_TIME: Every = Every::Time(600_000_000);
/// The same for traces without times.
pub const EVERY_REFERENCES: Every = Every::References(100_000);
/// Intervals at most: three weeks in minutes.
pub const INTERVALS_MAX: usize = 1 << 15;
/// Volumes of all intervals at most; each is about 150 bytes.
const ROWS_MAX: usize = 1 << 22;
/// Volumes named in an error.
const NAMES_TOLD: usize = 20;
/// A block number has so many bits.
const BLOCK_BITS: u32 = 40;

/// What to analyze, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    pub traces: Vec<PathBuf>,
    /// How closely to look.
    pub look: Look,
    /// Which blocks a sample has.
    pub seed: u64,
    /// What an interval weighs in the next one, from 0 to 1.
    pub decay: f64,
    /// A block belongs to the reuse working set after so many reuses.
    pub reuses_min: u8,
    /// Where to cut; `None`: as it suits the traces.
    pub every: Option<Every>,
    /// Whether the intervals' plans are wanted.
    pub intervals: bool,
    /// The cache, in blocks; `None`: recommend one.
    pub cache_blocks: Option<u64>,
    /// How to divide it.
    pub rules: Rules,
    /// What the operator wants, by volume.
    pub bounds: BTreeMap<String, Bounds>,
}

/// Analyzes traces; `tell` is called with the progress, the number of the pass and the number of
/// passes.
///
/// # Errors
/// What is wrong with the traces or the settings.
///
/// # Panics
/// If a sample's rate is none.
pub fn analyze(
    settings: &Settings,
    tell: &mut dyn FnMut([u32; 2], Progress),
) -> Result<Analysis, AnalysisError> {
    let passes = if settings.intervals && settings.cache_blocks.is_none() { 2 } else { 1 };
    if passes == 2 {
        only_files(&settings.traces)?;
    }
    let planner = settings.intervals.then_some(settings.cache_blocks).flatten();
    let mut first = Pass::new(settings, true, planner);
    let files = first.read(&mut |progress| tell([1, passes], progress))?;
    first.check()?;
    let names = std::mem::take(&mut first.names);
    let bounds = std::mem::take(&mut first.bounds);
    let shared = first.shared.take().map(Measure::finish);
    let curves = first.measure.take().map(Measure::finish).unwrap_or_default();
    let recommended = recommend(&curves, &bounds, &settings.rules.prices);
    let cache_blocks = settings.cache_blocks.unwrap_or(recommended.blocks);
    let mut intervals = std::mem::take(&mut first.intervals);
    if passes == 2 {
        let mut second = Pass::new(settings, false, Some(cache_blocks));
        second.read(&mut |progress| tell([2, passes], progress))?;
        intervals = second.intervals;
    }
    let seconds = (first.last_us - first.first_us) as f64 / 1e6;
    let parts = settings.rules.plan(&curves, &bounds, cache_blocks, seconds);
    let shared = shared.and_then(|mut all| all.pop()).map(|curves| {
        let part = Part { blocks: cache_blocks, policy: WritePolicy::Back };
        Expected::new(&curves, part, &settings.rules.prices)
    });
    let volumes = names.into_iter().zip(curves).zip(bounds).enumerate();
    let found = |(at, ((name, curves), bounds)): (usize, ((String, Curves), Bounds))| Found {
        name,
        curves,
        bounds,
        part: parts.as_ref().map(|parts| parts[at]),
    };
    Ok(Analysis {
        files,
        first_us: first.first_us,
        last_us: first.last_us,
        requests: first.requests,
        references: first.references,
        out_of_order: first.out_of_order,
        every: first.every,
        volumes: volumes.map(found).collect(),
        shared,
        cache_blocks,
        recommended,
        intervals,
    })
}

/// What can't be read twice is refused before it is read once.
fn only_files(paths: &[PathBuf]) -> Result<(), AnalysisError> {
    let other = paths.iter().find(|path| path.metadata().is_ok_and(|found| !found.is_file()));
    other.map_or(Ok(()), |path| Err(AnalysisError::Twice(path.clone())))
}

struct Pass<'a> {
    settings: &'a Settings,
    every: Every,
    measure: Option<Measure>,
    /// All volumes as one.
    shared: Option<Measure>,
    /// The size of the cache that plans are made for.
    cache_blocks: Option<u64>,
    planning: Option<Planning>,
    names: Vec<String>,
    bounds: Vec<Bounds>,
    requests: u64,
    references: u64,
    out_of_order: u64,
    previous_us: u64,
    first_us: u64,
    last_us: u64,
    rows: usize,
    intervals: Vec<Planned>,
}

impl<'a> Pass<'a> {
    fn new(settings: &'a Settings, measures: bool, cache_blocks: Option<u64>) -> Self {
        let measure = || Measure::new(settings.look, settings.seed, settings.reuses_min);
        let shares = measures && settings.rules.allocator == Allocator::Shared;
        Self {
            settings,
            every: EVERY_TIME,
            measure: measures.then(measure),
            shared: shares.then(measure),
            cache_blocks,
            planning: None,
            names: Vec::new(),
            bounds: Vec::new(),
            requests: 0,
            references: 0,
            out_of_order: 0,
            previous_us: 0,
            first_us: u64::MAX,
            last_us: 0,
            rows: 0,
            intervals: Vec::new(),
        }
    }

    /// Reads all of it; returns what the files are.
    fn read(
        &mut self,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Vec<(PathBuf, Format)>, AnalysisError> {
        let mut traces = Traces::open(&self.settings.traces, tell)?;
        let suits = if traces.have_times() { EVERY_TIME } else { EVERY_REFERENCES };
        self.every = self.settings.every.unwrap_or(suits);
        self.planning = self.cache_blocks.map(|blocks| self.plans_for(blocks));
        while let Some(record) = traces.next() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return Err(traces.failure(error).into()),
            };
            self.learn_names(&traces);
            self.record(&record)?;
        }
        if let Some(closed) = self.planning.as_mut().and_then(Planning::finish) {
            self.closed(closed)?;
        }
        let files = traces.files();
        Ok(files.map(|(path, format)| (path.to_owned(), format)).collect())
    }

    fn plans_for(&self, cache_blocks: u64) -> Planning {
        let Settings { look, seed, decay, reuses_min, rules, .. } = self.settings;
        let (sampling, seed, decay) = (look.sampling(), *seed, *decay);
        let monitor = monitor::Settings { sampling, seed, decay, reuses_min: *reuses_min };
        Planning::new(self.every, monitor, *rules, cache_blocks)
    }

    fn record(&mut self, record: &Record) -> Result<(), AnalysisError> {
        self.requests += 1;
        self.out_of_order += u64::from(record.ts_us < self.previous_us);
        self.previous_us = record.ts_us;
        self.first_us = self.first_us.min(record.ts_us);
        self.last_us = self.last_us.max(record.ts_us);
        let volume = record.volume as usize;
        let counts = matches!(record.op, Op::Read | Op::Write);
        // A volume with nothing but flushes is there, too.
        let blocks = if counts { record.blocks() } else { 0..0 };
        let is_write = record.op == Op::Write;
        self.references += blocks.end - blocks.start;
        if let Some(measure) = &mut self.measure {
            measure.count(volume, blocks.clone(), is_write)?;
        }
        if let Some(shared) = &mut self.shared {
            let first = u64::from(record.volume) << BLOCK_BITS;
            shared.count(0, first + blocks.start..first + blocks.end, is_write)?;
        }
        let planning = self.planning.as_mut();
        let closed = planning.and_then(|all| all.request(record.ts_us, volume, blocks, is_write));
        closed.map_or(Ok(()), |closed| self.closed(closed))
    }

    fn learn_names(&mut self, traces: &Traces) {
        for volume in self.names.len()..traces.volumes() {
            let name = traces.name(volume);
            let bounds = self.settings.bounds.get(&name).copied().unwrap_or_default();
            if let Some(planning) = &mut self.planning {
                planning.set_bounds(volume, bounds);
            }
            self.bounds.push(bounds);
            self.names.push(name);
        }
    }

    /// Keeps the plan of an interval that has ended.
    fn closed(&mut self, closed: Closed) -> Result<(), AnalysisError> {
        if self.intervals.len() == INTERVALS_MAX || self.rows >= ROWS_MAX {
            return Err(AnalysisError::ManyIntervals);
        }
        let digest = closed.digest();
        let Closed { interval, ended: Ended { end_us, .. }, curves, parts } = closed;
        let reach_part = self.settings.rules.reach_part;
        let row = |(volume, curves): (usize, SampledCurves)| {
            let part = parts.as_ref().map(|parts| parts[volume]);
            PlannedVolume::new(volume, &Curves::Sampled(Box::new(curves)), part, reach_part)
        };
        let volumes: Vec<_> =
            curves.into_iter().enumerate().map(row).filter(PlannedVolume::matters).collect();
        self.rows += volumes.len();
        let Interval { number, start_us, requests, references, .. } = interval;
        let planned = Planned { number, start_us, end_us, requests, references, digest, volumes };
        self.intervals.push(planned);
        Ok(())
    }

    /// What was asked for and is not there.
    fn check(&self) -> Result<(), AnalysisError> {
        if self.references == 0 {
            let path = self.settings.traces.first().cloned().unwrap_or_default();
            return Err(AnalysisError::Empty(path));
        }
        let known: BTreeSet<&str> = self.names.iter().map(String::as_str).collect();
        if let Some(name) = self.settings.bounds.keys().find(|name| !known.contains(name.as_str()))
        {
            let names = self.names.iter().take(NAMES_TOLD).cloned().collect();
            return Err(AnalysisError::NoVolume { name: name.clone(), names });
        }
        if self.settings.rules.ssd_blocks_per_s.is_some() && self.first_us == self.last_us {
            return Err(AnalysisError::NoTimes);
        }
        Ok(())
    }
}
