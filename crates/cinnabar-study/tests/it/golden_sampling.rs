//! Sampled curves of real traces, against exact ones: at 100 sizes, from 1 to 100 % of the footprint.
//!
//! `cargo test -p cinnabar-study --test it golden_sampling -- --nocapture` shows the table, with the
//! worst sizes. A mean error says nothing about small sizes, where one may be wrong by a lot.

use crate::golden_policies::intern;
use crate::traces::{fixture, shared_trace};
use cinnabar_policy::reuse::{ReadOnlyCurves, WriteBackCurves};
use cinnabar_policy::{ReadOnly, Sampled, WriteBack};
use cinnabar_trace::{Record, references};

const SEEDS: u64 = 5;
const SIZES: u64 = 100;
/// Of the mean absolute error of a miss ratio, the median over seeds.
const ERROR_MAX: f64 = 0.01;
const TRACES: [&str; 12] = [
    "cp_vscsi.canon.csv.zst",
    "ms_dtrs.canon.csv.zst",
    "self_loop4.canon.csv.zst",
    "tencent_cbs_50k.canon.csv.zst",
    "arc_OLTP.lis.zst",
    "raw_cloudphysics_cpio.vscsi.xz",
    "raw_evelii_java_blkparse.txt.xz",
    "raw_mqsim_tpcc-small.ssdsim.xz",
    "raw_msr_hm_0_sample1000.csv.xz",
    "raw_self_loop4_tracefs_rq_issue_first200k.txt.xz",
    "raw_systor17_sample999.csv.xz",
    "raw_tencent_cbs_sample50k.csv.xz",
];

struct Exact {
    references: Vec<(u64, bool)>,
    back: WriteBackCurves,
    only: ReadOnlyCurves,
}

fn exact(trace: &[Record]) -> Exact {
    let all = references(trace.iter().copied().map(Ok));
    let all = all.map(|reference| reference.expect("a valid trace"));
    let references: Vec<_> = all.map(|reference| (reference.key, reference.write)).collect();
    let accesses = intern(references.iter().copied());
    let (mut back, mut only) = (WriteBack::default(), ReadOnly::default());
    back.extend(&accesses);
    only.extend(&accesses);
    Exact { references, back: back.finish(), only: only.finish() }
}

/// Mean absolute error of a seed, and the worst size, in % of the footprint, with its error.
#[derive(Clone, Copy)]
struct Errors {
    mean: f64,
    worst: (u64, f64),
}

fn errors(of_size: impl Fn(u64) -> f64) -> Errors {
    let mut errors = Errors { mean: 0.0, worst: (0, 0.0) };
    for percent in 1..=SIZES {
        let error = of_size(percent).abs();
        errors.mean += error / SIZES as f64;
        if error > errors.worst.1 {
            errors.worst = (percent, error);
        }
    }
    errors
}

/// Errors of write-back, read-only and destages; all three as parts of reads or writes.
fn compare(exact: &Exact, mut sampled: Sampled) -> [Errors; 3] {
    sampled.extend(exact.references.iter().copied());
    let found = sampled.curves();
    let (back, only) = (&exact.back, &exact.only);
    let part = |found: f64, exact: u64, all: u64| (found - exact as f64) / all.max(1) as f64;
    let size = |percent| back.blocks * percent / SIZES;
    [
        errors(|at| part(found.read_misses(size(at)), back.read_misses(size(at)), back.mix.reads)),
        errors(|at| {
            part(found.read_only_misses(size(at)), only.read_misses(size(at)), back.mix.reads)
        }),
        errors(|at| part(found.destages.at(size(at)), back.destages.at(size(at)), back.mix.writes)),
    ]
}

/// Medians of the mean errors; prints a row for each curve.
fn medians(name: &str, exact: &Exact, sampler: impl Fn(u64) -> Sampled) -> [f64; 3] {
    let runs: Vec<_> = (0..SEEDS).map(|seed| compare(exact, sampler(seed))).collect();
    let curves = ["write-back", "read-only", "destages"];
    std::array::from_fn(|curve| {
        let mut of_curve: Vec<Errors> = runs.iter().map(|run| run[curve]).collect();
        of_curve.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let worst = of_curve.iter().map(|errors| errors.worst);
        let worst: Vec<_> = worst.map(|(at, error)| format!("{error:.3} at {at} %")).collect();
        let median = of_curve[of_curve.len() / 2].mean;
        let last = of_curve[of_curve.len() - 1].mean;
        println!("{name} | {} | {median:.4} | {last:.4} | {}", curves[curve], worst.join(", "));
        median
    })
}

fn check(name: &str, exact: &Exact, sampler: impl Fn(u64) -> Sampled) {
    let [back, only, destages] = medians(name, exact, sampler);
    assert!(back <= ERROR_MAX, "{name}, write-back: {back}");
    assert!(only <= ERROR_MAX, "{name}, read-only: {only}");
    // No cache would be sized by this curve: twice the error is enough.
    assert!(destages <= 2.0 * ERROR_MAX, "{name}, destages: {destages}");
}

#[test]
fn a_sample_of_8192_blocks_has_the_curves_of_all() {
    println!("trace | curve | median of mean errors | worst seed | each seed's worst size");
    let fixed = |seed| Sampled::fixed_size(Sampled::BLOCKS, seed);
    check("self_loop4_first100k", &exact(&fixture()), fixed);
    for name in TRACES {
        if let Some(trace) = shared_trace(name) {
            check(name, &exact(&trace), fixed);
        }
    }
}

#[test]
fn a_tenth_of_the_blocks_has_the_curves_of_all() {
    let tenth = |seed| Sampled::fixed_rate(0.1, seed);
    check("self_loop4_first100k", &exact(&fixture()), tenth);
    if let Some(trace) = shared_trace("cp_vscsi.canon.csv.zst") {
        check("cp_vscsi", &exact(&trace), tenth);
    }
}

/// A sample that has every block estimates nothing.
#[test]
fn a_small_trace_is_analyzed_exactly() {
    let Some(trace) = shared_trace("raw_msr_hm_0_sample1000.csv.xz") else { return };
    let exact = exact(&trace);
    for curve in compare(&exact, Sampled::fixed_size(Sampled::BLOCKS, 0)) {
        assert!(curve.worst.1 < 1e-9, "{:?}", curve.worst);
    }
}
