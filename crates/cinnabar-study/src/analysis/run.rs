//! The analysis: one pass over the traces, or two where the size of the cache follows from the first.

use super::error::AnalysisError;
use super::intervals::{Every, Interval, Intervals};
use super::measure::{Curves, Look, Measure};
use super::outcome::{Analysis, Expected, Found, Planned, PlannedVolume};
use super::plan::{Bounds, Part, Planner, Rules};
use super::recommend::recommend;
use super::traces::{Progress, Traces};
use cinnabar_policy::TooManyBlocks;
use cinnabar_policy::monitor::{self, Monitor};
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
    /// Paths of the traces.
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

/// One way through the traces.
struct Pass<'a> {
    settings: &'a Settings,
    every: Every,
    measure: Option<Measure>,
    /// All volumes as one.
    shared: Option<Measure>,
    monitor: Option<(Monitor, Planner)>,
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
    failed: Option<TooManyBlocks>,
}

impl<'a> Pass<'a> {
    fn new(settings: &'a Settings, measures: bool, cache_blocks: Option<u64>) -> Self {
        let measure = || Measure::new(settings.look, settings.seed, settings.reuses_min);
        let monitor = monitor::Settings {
            sampling: settings.look.sampling(),
            seed: settings.seed,
            decay: settings.decay,
            reuses_min: settings.reuses_min,
        };
        let shares = measures && settings.rules.allocator == Allocator::Shared;
        Self {
            settings,
            every: EVERY_TIME,
            measure: measures.then(measure),
            shared: shares.then(measure),
            monitor: cache_blocks
                .map(|blocks| (Monitor::new(monitor), Planner::new(settings.rules, blocks))),
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
            failed: None,
        }
    }

    /// Reads all of it; returns what the files are.
    fn read(
        &mut self,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Vec<(PathBuf, Format)>, AnalysisError> {
        let traces = Traces::open(&self.settings.traces, tell)?;
        let suits = if traces.have_times() { EVERY_TIME } else { EVERY_REFERENCES };
        self.every = self.settings.every.unwrap_or(suits);
        let mut intervals = Intervals::new(traces, self.every);
        loop {
            let found = match intervals.next(|record| self.record(record)) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => return Err(intervals.records_mut().failure(error).into()),
            };
            if let Some(error) = self.failed {
                return Err(error.into());
            }
            self.learn_names(intervals.records());
            self.end(found, intervals.next_us())?;
        }
        let files = intervals.records().files();
        Ok(files.map(|(path, format)| (path.to_owned(), format)).collect())
    }

    fn record(&mut self, record: &Record) {
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
            let counted = measure.count(volume, blocks.clone(), is_write);
            self.failed = self.failed.or(counted.err());
        }
        if let Some(shared) = &mut self.shared {
            let first = u64::from(record.volume) << BLOCK_BITS;
            let counted = shared.count(0, first + blocks.start..first + blocks.end, is_write);
            self.failed = self.failed.or(counted.err());
        }
        if let Some((monitor, _)) = &mut self.monitor {
            monitor.extend(volume, blocks.map(|block| (block, is_write)));
        }
    }

    fn learn_names(&mut self, traces: &Traces) {
        for volume in self.names.len()..traces.volumes() {
            let name = traces.name(volume);
            self.bounds.push(self.settings.bounds.get(&name).copied().unwrap_or_default());
            self.names.push(name);
        }
    }

    /// Ends an interval with a plan; `next_us` is the time of the first request behind it.
    fn end(&mut self, found: Interval, next_us: Option<u64>) -> Result<(), AnalysisError> {
        let Some((monitor, planner)) = &mut self.monitor else { return Ok(()) };
        if self.intervals.len() == INTERVALS_MAX || self.rows >= ROWS_MAX {
            return Err(AnalysisError::ManyIntervals);
        }
        let end_us = match self.every {
            Every::Time(length) => found.start_us.saturating_add(length),
            Every::References(_) | Every::Never => next_us.unwrap_or(found.last_us),
        };
        // What the trace does not cover does not count.
        let from = found.start_us.max(self.first_us);
        let to = if next_us.is_some() { end_us } else { found.last_us };
        let seconds = to.saturating_sub(from) as f64 / 1e6;
        let curves: Vec<Curves> =
            monitor.curves().map(|curves| Curves::Sampled(Box::new(curves))).collect();
        let parts = planner.plan(&curves, &self.bounds[..curves.len()], seconds);
        let reach_part = self.settings.rules.reach_part;
        let row = |(volume, curves): (usize, &Curves)| {
            let part = parts.as_ref().map(|parts| parts[volume]);
            PlannedVolume::new(volume, curves, part, reach_part)
        };
        let volumes: Vec<_> =
            curves.iter().enumerate().map(row).filter(PlannedVolume::matters).collect();
        self.rows += volumes.len();
        let Interval { number, start_us, requests, references, .. } = found;
        self.intervals.push(Planned { number, start_us, end_us, requests, references, volumes });
        let passed = match (self.every, next_us) {
            (Every::Time(length), Some(next_us)) => next_us / length - number,
            _ => 1,
        };
        planner.fade(monitor.end_intervals(passed));
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
