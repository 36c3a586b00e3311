//! What `analyze` can be told, checked as far as it can be without a trace.

use super::compare::{Choice, CompareArgs, choice, single};
use super::values::{amount_a_day, at_volume, every, factor, part, price, rate};
use crate::cli::parse::{size, trace_path};
use cinnabar_policy::monitor::Sampling;
use cinnabar_policy::sizing::{Allocator, Prices, Steadiness};
use cinnabar_study::analysis::{Bounds, Every, Look, Rules, Settings};
use cinnabar_text::{Failure, show_size};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A cache line, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Blocks of a sample at most, by default and if asked for.
const SAMPLE_DEFAULT: u32 = 8192;
const SAMPLE_MAX: i64 = 1 << 24;
/// No cache is larger: 1 PiB.
const CACHE_MAX: u64 = 1 << 50;

/// What to analyze.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --cache a size is recommended: the smallest one with 95 % of what any size \
    would save.\nSizes and hit ratios are of an LRU cache of 4 KiB blocks that keeps every read that \
    missed; volumes marked ~ are estimates from a sample of their blocks.\n\n\
    Examples:\n  \
    cinnabar-lab analyze vm.csv.zst\n  \
    cinnabar-lab analyze host.csv.zst --cache 64GiB --ssd-budget 500GiB/day\n  \
    cinnabar-lab analyze db.vscsi web.vscsi --cache 16GiB --html report.html\n  \
    cinnabar-lab analyze host.csv.zst --cache 64GiB --min db=8GiB --weight db=2\n  \
    cinnabar-lab analyze trace.csv --exact --cache 1GiB --allocator eci --interval 1min --json\n  \
    cinnabar-lab analyze host.csv.zst --compare --interval 1min --html compared.html\n  \
    cinnabar-lab analyze host.csv.zst --compare --allocator eci,centaur --model papers --json"
)]
pub(in crate::cli) struct Args {
    /// Traces of a host or of single volumes: canonical, MSR, vscsi, oracleGeneral, blkparse, ..., told by
    /// content; plain, gz, xz or zst; `-` is stdin. Several are read side by side, each from its own
    /// beginning
    #[arg(required = true, value_name = "TRACE", value_parser = trace_path())]
    pub(super) traces: Vec<PathBuf>,
    /// The cache to divide [default: recommend a size]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
    /// Who divides it: urd, eci, centaur, s-cave, vcacheshare, cloudcache, equal, proportional, fixed or
    /// shared;
    /// with --compare several, also none (no cache) and all [default: urd; all with --compare]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = choice)]
    pub(super) allocator: Vec<Choice>,
    /// Plan again after so much time, or so many references to blocks: 10min, 100000refs
    /// [default: 10min; 100000refs for traces without times]
    #[arg(long, value_name = "TIME|Nrefs", value_parser = every)]
    interval: Option<Every>,
    /// What an interval counts in the plan of the next one, from 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 0.5, value_parser = part)]
    decay: f64,
    /// Look at every block [default: at a sample]
    #[arg(long, conflicts_with_all = ["sample_blocks", "sample_rate"])]
    exact: bool,
    /// Look at so many blocks of each volume at most; a smaller volume is looked at whole
    #[arg(long, value_name = "N", default_value_t = SAMPLE_DEFAULT, conflicts_with = "sample_rate",
          value_parser = clap::value_parser!(u32).range(1..=SAMPLE_MAX))]
    sample_blocks: u32,
    /// Look at this part of the blocks, above 0 to 1 [default: --sample-blocks]
    #[arg(long, value_name = "R", value_parser = rate)]
    sample_rate: Option<f64>,
    /// Which blocks are in a sample
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A demand reaches this part of the hits; 1 is the maximum reuse distance, as published
    #[arg(long, value_name = "PART", default_value_t = 0.99, value_parser = part)]
    reach_part: f64,
    /// For cloudcache: a block counts after so many reuses in an interval
    #[arg(long, value_name = "N", default_value_t = 1)]
    reuses: u8,
    /// For eci: above this part of writes among the reuses, a volume's writes are not cached
    #[arg(long, value_name = "PART", default_value_t = 0.5, value_parser = part)]
    eci_threshold: f64,
    /// For vcacheshare: how the intensity of reuse counts; 0 leaves it out
    #[arg(long, value_name = "A", default_value_t = 0.0, value_parser = factor)]
    reuse_intensity: f64,
    /// For urd at least, for fixed exactly so much for a volume [default: nothing]
    #[arg(long, value_name = "VOLUME=SIZE", value_parser = at_volume(size))]
    min: Vec<(String, u64)>,
    /// For urd: at most so much for a volume [default: no limit]
    #[arg(long, value_name = "VOLUME=SIZE", value_parser = at_volume(size))]
    max: Vec<(String, u64)>,
    /// How much a volume counts, for urd, vcacheshare and proportional [default: 1]
    #[arg(long, value_name = "VOLUME=X", value_parser = at_volume(factor))]
    weight: Vec<(String, f64)>,
    /// For urd: what may be written to the SSD in a day [default: no limit]
    #[arg(long, value_name = "SIZE/day", value_parser = amount_a_day)]
    ssd_budget: Option<u64>,
    #[command(flatten)]
    pub(super) latencies: Latencies,
    #[command(flatten)]
    pub(super) compare: CompareArgs,
    /// Volumes shown, those with most accesses; the rest in one row
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) volumes: u32,
    /// Write a report with charts [default: don't]
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Print a JSON object, with the curves and the plan of each interval [default: a table]
    #[arg(long)]
    pub(super) json: bool,
}

/// What reads and writes take, and what they count.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Latencies {
    /// A read of the SSD takes
    #[arg(long, value_name = "TIME", default_value = "88us", value_parser = price)]
    ssd_read: f64,
    /// A write of the SSD takes
    #[arg(long, value_name = "TIME", default_value = "21us", value_parser = price)]
    ssd_write: f64,
    /// A read of the storage behind the cache takes
    #[arg(long, value_name = "TIME", default_value = "927us", value_parser = price)]
    backend_read: f64,
    /// A write of the storage behind the cache takes
    #[arg(long, value_name = "TIME", default_value = "141us", value_parser = price)]
    backend_write: f64,
    /// What the waiting of a write counts, that of a read being 1; above 0 urd may write back
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = factor)]
    omega: f64,
    /// For urd: the price of a block written to the SSD, as a time [default: --ssd-write]
    #[arg(long, value_name = "TIME", value_parser = price)]
    lambda: Option<f64>,
    /// For urd: the price of a block destaged to the storage, as a time
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = price)]
    mu: f64,
}

impl Latencies {
    /// As `urd` wants them.
    pub(super) fn prices(&self) -> Prices {
        Prices {
            ssd_read_us: self.ssd_read,
            ssd_write_us: self.ssd_write,
            backend_read_us: self.backend_read,
            backend_write_us: self.backend_write,
            omega: self.omega,
            lambda_us: self.lambda.unwrap_or(self.ssd_write),
            mu_us: self.mu,
        }
    }
}

impl Args {
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let look = match (self.exact, self.sample_rate) {
            (true, _) => Look::Exact,
            (false, Some(rate)) => Look::Sampled(Sampling::Rate(rate)),
            (false, None) => {
                let blocks = NonZeroU32::new(self.sample_blocks).unwrap_or(NonZeroU32::MIN);
                Look::Sampled(Sampling::Blocks(blocks))
            }
        };
        let bounds = self.bounds()?;
        let compares = self.compare.compare;
        let allocator = if compares { Allocator::default() } else { single(&self.allocator)? };
        Ok(Settings {
            traces: self.traces.clone(),
            look,
            seed: self.seed,
            decay: self.decay,
            reuses_min: self.reuses,
            every: self.interval,
            intervals: self.json || self.html.is_some(),
            cache_blocks: self.cache_blocks(&bounds)?,
            rules: Rules {
                allocator,
                prices: self.latencies.prices(),
                ssd_blocks_per_s: self
                    .ssd_budget
                    .map(|bytes| bytes as f64 / BLOCK_BYTES as f64 / 86_400.0),
                written_part_max: self.eci_threshold,
                intensity: self.reuse_intensity,
                reach_part: self.reach_part,
                steadiness: Steadiness::default(),
            },
            bounds,
        })
    }

    fn cache_blocks(&self, bounds: &BTreeMap<String, Bounds>) -> Result<Option<u64>, Failure> {
        let Some(bytes) = self.cache else { return Ok(None) };
        let wrong = |why: &str, hint: &str| {
            Err(Failure::of_usage(format!("--cache {}: {why}", show_size(bytes)), hint))
        };
        if bytes < BLOCK_BYTES {
            return wrong(
                "not even a block of 4 KiB",
                "leave --cache out, and a size is recommended",
            );
        }
        if bytes > CACHE_MAX {
            return wrong("more than 1 PiB", "give what an SSD can have, such as 64GiB");
        }
        let blocks = bytes / BLOCK_BYTES;
        let needed =
            bounds.values().fold(0, |sum: u64, bounds| sum.saturating_add(bounds.min_blocks));
        if needed > blocks {
            let needed = show_size(needed.saturating_mul(BLOCK_BYTES));
            return wrong(
                &format!("the minima of the volumes need {needed}"),
                "lower a --min, or give a larger --cache",
            );
        }
        Ok(Some(blocks))
    }

    fn bounds(&self) -> Result<BTreeMap<String, Bounds>, Failure> {
        let mut found: BTreeMap<String, Bounds> = BTreeMap::new();
        for (name, bytes) in &self.min {
            found.entry(name.clone()).or_default().min_blocks =
                bytes.div_ceil(BLOCK_BYTES).min(CACHE_MAX / BLOCK_BYTES);
        }
        for (name, bytes) in &self.max {
            found.entry(name.clone()).or_default().max_blocks = bytes / BLOCK_BYTES;
        }
        for (name, weight) in &self.weight {
            found.entry(name.clone()).or_default().weight = *weight;
        }
        match found.iter().find(|(_, bounds)| bounds.min_blocks > bounds.max_blocks) {
            Some((name, _)) => Err(Failure::of_usage(
                format!("volume {name:?}: --min is above --max"),
                "swap them, or leave one out",
            )),
            None => Ok(found),
        }
    }
}
