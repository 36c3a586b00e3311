//! What an analysis found, for programs: `docs/design/analysis-json.md` tells every key.
//!
//! The form is versioned: keys are added, never changed.

use super::rows::bytes_a_day;
use super::words;
use cinnabar_policy::monitor::Sampling;
use cinnabar_policy::reuse::Mix;
use cinnabar_policy::sizing::{Prices, WritePolicy};
use cinnabar_study::analysis::{
    Analysis, Curves, Every, Expected, Found, Look, Part, Planned, PlannedVolume, Settings, Verdict,
};
use serde::Serialize;

/// What the document says of itself.
const FORMAT: &str = "cinnabar-analysis";
/// Raised when a key changes its meaning.
const VERSION: u32 = 1;
/// Sizes of a curve: half of them equally far apart, half in equal ratios.
const SIZES: u32 = 200;

/// The document; `docs/design/analysis-json.md` has every key.
#[derive(Debug, Serialize)]
pub struct Document {
    format: &'static str,
    version: u32,
    settings: SettingsOut,
    traces: Vec<TraceOut>,
    first_us: u64,
    last_us: u64,
    requests: u64,
    references: u64,
    cache_blocks: u64,
    recommended: RecommendedOut,
    helps: &'static str,
    saved_ratio: f64,
    answer: Vec<String>,
    notes: Vec<String>,
    total: Outcome,
    volumes: Vec<VolumeOut>,
    intervals: Vec<IntervalOut>,
}

#[derive(Debug, Serialize)]
struct SettingsOut {
    allocator: &'static str,
    cache_blocks: Option<u64>,
    exact: bool,
    sample_blocks: Option<u32>,
    sample_rate: Option<f64>,
    seed: u64,
    interval_us: Option<u64>,
    interval_references: Option<u64>,
    decay: f64,
    reach_part: f64,
    reuses_min: u8,
    eci_threshold: f64,
    reuse_intensity: f64,
    #[serde(flatten)]
    prices: Prices,
    ssd_budget_bytes_per_day: Option<f64>,
    gain_min: f64,
    step_max: f64,
}

#[derive(Debug, Serialize)]
struct TraceOut {
    path: String,
    format: &'static str,
}

#[derive(Debug, Serialize)]
struct RecommendedOut {
    cache_blocks: u64,
    most_blocks: u64,
}

#[derive(Debug, Serialize)]
struct Outcome {
    read_hits: f64,
    read_hit_ratio: f64,
    backend_reads: f64,
    backend_writes: f64,
    backend_saved_ratio: f64,
    ssd_writes: f64,
    ssd_write_bytes_per_day: Option<f64>,
}

#[derive(Debug, Serialize)]
struct VolumeOut {
    name: String,
    weight: f64,
    min_blocks: u64,
    max_blocks: Option<u64>,
    sample_rate: f64,
    is_coarse: bool,
    #[serde(flatten)]
    classes: Mix,
    working_set_blocks: u64,
    reuse_working_set_blocks: u64,
    trd_blocks: u64,
    urd_blocks: u64,
    trd_max_blocks: u64,
    urd_max_blocks: u64,
    share_blocks: Option<u64>,
    policy: Option<String>,
    outcome: Option<Outcome>,
    curve: Vec<PointOut>,
}

#[derive(Debug, Serialize)]
struct PointOut {
    size_blocks: u64,
    read_hits: f64,
    read_only_hits: f64,
    destages: f64,
}

#[derive(Debug, Serialize)]
struct IntervalOut {
    number: u64,
    start_us: u64,
    end_us: u64,
    requests: u64,
    references: u64,
    digest: String,
    volumes: Vec<IntervalVolumeOut>,
}

#[derive(Debug, Serialize)]
struct IntervalVolumeOut {
    volume: usize,
    #[serde(flatten)]
    classes: Mix,
    working_set_blocks: u64,
    reuse_working_set_blocks: u64,
    trd_blocks: u64,
    urd_blocks: u64,
    sample_rate: f64,
    share_blocks: Option<u64>,
    policy: Option<String>,
}

/// All of it.
pub fn document(analysis: &Analysis, settings: &Settings) -> Document {
    let prices = &settings.rules.prices;
    let seconds = analysis.seconds();
    let volume = |found: &Found| VolumeOut::new(found, settings, seconds);
    Document {
        format: FORMAT,
        version: VERSION,
        settings: SettingsOut::new(settings, analysis.every),
        traces: analysis
            .files
            .iter()
            .map(|(path, format)| TraceOut {
                path: path.display().to_string(),
                format: format.name(),
            })
            .collect(),
        first_us: analysis.first_us,
        last_us: analysis.last_us,
        requests: analysis.requests,
        references: analysis.references,
        cache_blocks: analysis.cache_blocks,
        recommended: RecommendedOut {
            cache_blocks: analysis.recommended.blocks,
            most_blocks: analysis.recommended.most_blocks,
        },
        helps: match analysis.verdict(prices) {
            Verdict::Helps => "yes",
            Verdict::HelpsLittle => "little",
            Verdict::HelpsNot => "no",
        },
        saved_ratio: rounded(analysis.saved_part(prices)),
        answer: words::answer(analysis, settings),
        notes: words::notes(analysis),
        total: Outcome::new(analysis.expected(prices), analysis.mix(), seconds),
        volumes: analysis.volumes.iter().map(volume).collect(),
        intervals: analysis.intervals.iter().map(IntervalOut::new).collect(),
    }
}

impl SettingsOut {
    fn new(settings: &Settings, every: Every) -> Self {
        let rules = &settings.rules;
        let sampling = match settings.look {
            Look::Exact => None,
            Look::Sampled(sampling) => Some(sampling),
        };
        let (interval_us, interval_references) = match every {
            Every::Time(length) => (Some(length), None),
            Every::References(count) => (None, Some(count)),
            Every::Never => (None, None),
        };
        let a_day = |blocks_per_s| bytes_a_day(blocks_per_s, 1.0);
        Self {
            allocator: rules.allocator.name(),
            cache_blocks: settings.cache_blocks,
            exact: settings.look == Look::Exact,
            sample_blocks: match sampling {
                Some(Sampling::Blocks(blocks)) => Some(blocks.get()),
                _ => None,
            },
            sample_rate: match sampling {
                Some(Sampling::Rate(rate)) => Some(rate),
                _ => None,
            },
            seed: settings.seed,
            interval_us,
            interval_references,
            decay: settings.decay,
            reach_part: rules.reach_part,
            reuses_min: settings.reuses_min,
            eci_threshold: rules.written_part_max,
            reuse_intensity: rules.intensity,
            prices: rules.prices,
            ssd_budget_bytes_per_day: rules.ssd_blocks_per_s.map(a_day),
            gain_min: rules.steadiness.gain_min,
            step_max: rules.steadiness.step_max,
        }
    }
}

impl Outcome {
    fn new(expected: Expected, mix: Mix, seconds: Option<f64>) -> Self {
        let Expected { read_hits, ssd_writes, backend_reads, backend_writes, .. } = expected;
        let all = (mix.reads + mix.writes) as f64;
        Self {
            read_hits: rounded(read_hits),
            read_hit_ratio: rounded(read_hits / mix.reads.max(1) as f64),
            backend_reads: rounded(backend_reads),
            backend_writes: rounded(backend_writes),
            backend_saved_ratio: rounded((all - backend_reads - backend_writes) / all.max(1.0)),
            ssd_writes: rounded(ssd_writes),
            ssd_write_bytes_per_day: seconds
                .map(|seconds| bytes_a_day(ssd_writes, seconds).round()),
        }
    }
}

impl VolumeOut {
    fn new(found: &Found, settings: &Settings, seconds: Option<f64>) -> Self {
        let (curves, bounds) = (&found.curves, &found.bounds);
        let expected = found.expected(&settings.rules.prices);
        let (share_blocks, policy) = share(found.part);
        Self {
            name: found.name.clone(),
            weight: bounds.weight,
            min_blocks: bounds.min_blocks,
            max_blocks: (bounds.max_blocks < u64::MAX).then_some(bounds.max_blocks),
            sample_rate: curves.rate(),
            is_coarse: words::is_coarse(found),
            classes: curves.mix(),
            working_set_blocks: curves.working_set(),
            reuse_working_set_blocks: curves.reuse_working_set(),
            trd_blocks: curves.reach(settings.rules.reach_part),
            urd_blocks: curves.useful_reach(settings.rules.reach_part),
            trd_max_blocks: curves.reach(1.0),
            urd_max_blocks: curves.useful_reach(1.0),
            share_blocks,
            policy,
            outcome: expected.map(|expected| Outcome::new(expected, curves.mix(), seconds)),
            curve: sizes(curves.flat_from()).into_iter().map(|size| point(curves, size)).collect(),
        }
    }
}

impl IntervalOut {
    fn new(planned: &Planned) -> Self {
        let Planned { number, start_us, end_us, requests, references, .. } = *planned;
        let volumes = planned.volumes.iter().map(IntervalVolumeOut::new).collect();
        let digest = format!("{:016x}", planned.digest);
        Self { number, start_us, end_us, requests, references, digest, volumes }
    }
}

impl IntervalVolumeOut {
    fn new(planned: &PlannedVolume) -> Self {
        let (share_blocks, policy) = share(planned.part);
        Self {
            volume: planned.volume,
            classes: planned.mix,
            working_set_blocks: planned.working_set,
            reuse_working_set_blocks: planned.reuse_working_set,
            trd_blocks: planned.reach,
            urd_blocks: planned.useful_reach,
            sample_rate: planned.rate,
            share_blocks,
            policy,
        }
    }
}

fn share(part: Option<Part>) -> (Option<u64>, Option<String>) {
    (part.map(|part| part.blocks), part.map(|part| part.policy.to_string()))
}

fn point(curves: &Curves, size_blocks: u64) -> PointOut {
    let destages = curves.backend_writes(WritePolicy::Back, size_blocks);
    PointOut {
        size_blocks,
        read_hits: rounded(curves.read_hits(WritePolicy::Back, size_blocks)),
        read_only_hits: rounded(curves.read_hits(WritePolicy::ReadOnly, size_blocks)),
        destages: rounded(destages),
    }
}

/// Sizes to look at, up to one from which on nothing changes, in blocks.
#[allow(clippy::cast_sign_loss, reason = "a power of a size is above 0")]
pub(crate) fn sizes(end: u64) -> Vec<u64> {
    let half = SIZES / 2;
    let even = (1..=half).map(|at| end.saturating_mul(u64::from(at)) / u64::from(half));
    let ratio = |at: u32| (end as f64).powf(f64::from(at) / f64::from(half)).round() as u64;
    let mut sizes: Vec<u64> = even.chain((0..half).map(ratio)).collect();
    sizes.retain(|size| (1..=end).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// To six decimals: more would be noise, and differ from machine to machine.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_few_points_and_their_ends() {
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(5), [1, 2, 3, 4, 5]);
        for end in [199, 201, 8192, 1 << 40] {
            let found = sizes(end);
            assert!(found.len() <= SIZES as usize && found.len() >= SIZES as usize / 2, "{end}");
            assert_eq!((found[0], found.last()), (1, Some(&end)));
        }
    }
}
