//! A comparison for programs: the contract of `analyze --compare --json`.
//!
//! Keys are only ever added; `version` changes if one must change its meaning.

use cinnabar_policy::sizing::Prices;
use cinnabar_study::analysis::Every;
use cinnabar_study::compare::{
    Cache, Comparison, Counts, Division, Entry, Gains, Judged, Measures, Model, Options, Outcome,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

const VERSION: u32 = 1;

/// All of it. Counts are of 4 KiB blocks, latencies in microseconds.
#[derive(Debug, Serialize)]
pub struct Compared<'a> {
    version: u32,
    traces: Vec<String>,
    interval_us: Option<u64>,
    interval_references: Option<u64>,
    latencies_us: BTreeMap<&'static str, f64>,
    omega: f64,
    reach_part: f64,
    decay: f64,
    demand_blocks: u64,
    volumes: &'a [String],
    intervals: Vec<Interval>,
    caches: Vec<OneCache>,
    #[serde(skip_serializing_if = "<[Judged]>::is_empty")]
    judged: &'a [Judged],
}

#[derive(Debug, Serialize)]
struct Interval {
    number: u64,
    start_us: u64,
    requests: u64,
    references: u64,
}

#[derive(Debug, Serialize)]
struct OneCache {
    part: f64,
    capacity_blocks: u64,
    baseline: Option<&'static str>,
    contestants: Vec<One>,
    eci_over_centaur: BTreeMap<&'static str, Gains>,
}

#[derive(Debug, Serialize)]
struct One {
    name: &'static str,
    allocated_blocks: f64,
    models: BTreeMap<&'static str, Found>,
    plans: Vec<Plan>,
}

#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    total: Counted,
    ssd_writes: u64,
    ssd_writes_back: u64,
    gains: Gains,
    /// By every measure, a write counting as much as a read.
    measures: Measures,
    volumes: Vec<Counted>,
}

#[derive(Debug, Serialize)]
struct Counted {
    read_us: Option<f64>,
    write_us: Option<f64>,
    mean_us: Option<f64>,
    reads: u64,
    read_hits: u64,
    writes: u64,
    writes_back: u64,
    backend_reads: u64,
    backend_writes: u64,
}

#[derive(Debug, Serialize)]
struct Plan {
    interval: u64,
    shared: bool,
    blocks: Vec<u64>,
    policies: Vec<&'static str>,
}

/// The object.
pub fn of<'a>(
    found: &'a Comparison,
    judged: &'a [Judged],
    options: &Options,
    traces: &[PathBuf],
) -> Compared<'a> {
    let prices = &options.rules.prices;
    let (interval_us, interval_references) = match found.every {
        Every::Time(us) => (Some(us), None),
        Every::References(count) => (None, Some(count)),
        Every::Never => (None, None),
    };
    let interval = |one: &cinnabar_study::analysis::Interval| Interval {
        number: one.number,
        start_us: one.start_us,
        requests: one.requests,
        references: one.references,
    };
    Compared {
        version: VERSION,
        traces: traces.iter().map(|path| path.display().to_string()).collect(),
        interval_us,
        interval_references,
        latencies_us: [
            ("ssd_read", prices.ssd_read_us),
            ("ssd_write", prices.ssd_write_us),
            ("backend_read", prices.backend_read_us),
            ("backend_write", prices.backend_write_us),
        ]
        .into(),
        omega: prices.omega,
        reach_part: options.rules.reach_part,
        decay: options.decay,
        demand_blocks: found.demand_blocks,
        volumes: &found.volumes,
        intervals: found.intervals.iter().map(interval).collect(),
        caches: found.caches.iter().map(|cache| one_cache(cache, found, options)).collect(),
        judged,
    }
}

fn one_cache(cache: &Cache, found: &Comparison, options: &Options) -> OneCache {
    let gained = |model: &Model| {
        let gains = cache.eci_over_centaur(*model, &options.rules.prices)?;
        Some((model.name(), gains))
    };
    OneCache {
        part: cache.part,
        capacity_blocks: cache.capacity_blocks,
        baseline: cache.baseline().map(|entry| entry.contestant.name()),
        contestants: cache.entries.iter().map(|entry| one(entry, cache, found, options)).collect(),
        eci_over_centaur: options.models.iter().filter_map(gained).collect(),
    }
}

fn one(entry: &Entry, cache: &Cache, found: &Comparison, options: &Options) -> One {
    let prices = &options.rules.prices;
    let model = |model: &Model| {
        let outcome = entry.outcome(*model)?;
        let gains = cache.baseline().map(|over| entry.gains(over, *model, prices));
        Some((model.name(), Found::of(outcome, gains.unwrap_or_default(), prices)))
    };
    let plans = found.intervals.iter().zip(&entry.plans);
    let volumes = found.volumes.len();
    One {
        name: entry.contestant.name(),
        allocated_blocks: entry.allocated_blocks,
        models: options.models.iter().filter_map(model).collect(),
        plans: plans.map(|(interval, plan)| Plan::of(interval.number, plan, volumes)).collect(),
    }
}

impl Found {
    fn of(outcome: &Outcome, gains: Gains, prices: &Prices) -> Self {
        Self {
            total: Counted::of(&outcome.total(), prices),
            ssd_writes: outcome.ssd_writes,
            ssd_writes_back: outcome.ssd_writes_back,
            gains,
            measures: Measures::of(outcome, prices),
            volumes: outcome.volumes.iter().map(|counts| Counted::of(counts, prices)).collect(),
        }
    }
}

impl Counted {
    fn of(counts: &Counts, prices: &Prices) -> Self {
        Self {
            read_us: counts.read_us(prices),
            write_us: counts.write_us(prices),
            mean_us: counts.mean_us(prices),
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            writes_back: counts.writes_back,
            backend_reads: counts.backend_reads(),
            backend_writes: counts.backend_writes,
        }
    }
}

impl Plan {
    fn of(interval: u64, plan: &Division, volumes: usize) -> Self {
        let shared = matches!(plan, Division::Shared);
        let blocks = match plan {
            Division::Shared => Vec::new(),
            Division::Divided(parts) => parts.iter().map(|part| part.blocks).collect(),
        };
        let policies = (0..volumes).map(|volume| plan.policy(volume).name()).collect();
        Self { interval, shared, blocks, policies }
    }
}
