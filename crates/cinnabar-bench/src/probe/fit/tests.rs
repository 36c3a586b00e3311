//! Devices that are known, measured on a clock of their own: what is fitted must measure the same.

use super::*;
use crate::probe::plan::{Pattern, Plan};
use crate::probe::predict::predict;
use std::time::Duration;

const GIB: u64 = 1 << 30;

fn plan(write: bool) -> Plan {
    Plan {
        sizes: [4, 16, 64, 256, 1024].map(|kib| kib << 10).into(),
        depths: vec![1, 4, 16, 32],
        pattern: Pattern::Random,
        time: Duration::from_secs(1),
        seed: 0,
        write,
    }
}

fn measure(spec: &SimSpec, write: bool) -> Vec<Measured> {
    let cells = plan(write).cells().into_iter();
    cells.map(|cell| predict(spec, cell, Pattern::Random, GIB)).collect()
}

fn known(text: &str) -> SimSpec {
    SimSpec::parse(text, None).expect(text)
}

/// How far the fitted model is from the one that was measured: means at depth 1, and operations a
/// second at any depth, the worst of all cells.
fn worst(text: &str, write: bool) -> (f64, f64, SimSpec) {
    let measured = measure(&known(text), write);
    let fitted = fit(&measured).expect("there are reads of a block");
    let again = measure(&fitted, write);
    let off = |fitted: f64, measured: f64| (fitted / measured - 1.0).abs();
    let pairs = || again.iter().zip(&measured);
    let means = pairs().filter(|(_, measured)| measured.cell.depth == 1);
    let mean = means.map(|(one, other)| off(one.mean_ns(), other.mean_ns())).fold(0.0, f64::max);
    let iops = pairs().map(|(one, other)| off(one.iops(), other.iops())).fold(0.0, f64::max);
    (mean, iops, fitted)
}

#[test]
fn presets_are_found_again() {
    // Bounds on the mean latency at depth 1 and on operations a second in any cell.
    for (text, write, mean_max, iops_max) in [
        ("ssd", false, 0.01, 0.05),
        ("ssd", true, 0.01, 0.05),
        ("hdd", false, 0.03, 0.05),
        ("filer", false, 0.06, 0.10),
        ("network", false, 0.01, 0.05),
        ("ssd,read=lognormal/88us/0.4,depth=8,bandwidth=2GB", false, 0.03, 0.08),
        ("ssd,read=70us,read_block=3us,depth=16,bandwidth=3GB", false, 0.01, 0.08),
    ] {
        let (mean, iops, fitted) = worst(text, write);
        assert!(mean < mean_max, "{text}: mean off by {mean}: {fitted:?}");
        assert!(iops < iops_max, "{text}: IOPS off by {iops}: {fitted:?}");
    }
}

#[test]
fn parameters_are_what_they_are_called() {
    let fitted = fit(&measure(&known("ssd,depth=8,bandwidth=400MB"), false)).expect("reads");
    assert_eq!(fitted.depth, 8);
    assert!((fitted.bandwidth as f64 / 4e8 - 1.0).abs() < 0.02, "{fitted:?}");
    assert!(fitted.read_block_ns < 100, "the bandwidth explains it: {fitted:?}");
    let fitted = fit(&measure(&known("hdd"), false)).expect("reads");
    assert_eq!((fitted.depth, fitted.seek), (1, cinnabar_model::Seek::default()));
    assert!((fitted.bandwidth as f64 / 1.5e8 - 1.0).abs() < 0.1, "{fitted:?}");
    // A block costs 3 us of its own beside the 2 us that the bandwidth takes.
    let text = "ssd,read=70us,read_block=3us,depth=32,bandwidth=2048MB";
    let fitted = fit(&measure(&known(text), false)).expect("reads");
    assert!((2800..3200).contains(&fitted.read_block_ns), "{fitted:?}");
}

#[test]
fn writes_and_flushes_are_their_own_or_as_reads() {
    let device = known("ssd,flush=uniform/1ms/2ms");
    let with = fit(&measure(&device, true)).expect("reads");
    let Latency::Constant(write_ns) = with.write else { panic!("{with:?}") };
    assert!(write_ns.abs_diff(21_000) < 50, "{write_ns}");
    let Latency::Percentiles(flush) = &with.flush else { panic!("{with:?}") };
    let ends = [flush.first(), flush.last()].map(|point| point.expect("two at least").1);
    assert!(ends[0] < 1_010_000 && ends[1] > 1_990_000 && ends[1] < 2_010_000, "{with:?}");
    let without = fit(&measure(&device, false)).expect("reads");
    assert_eq!((&without.write, &without.flush), (&without.read, &without.read));
}

#[test]
fn lines_go_through_the_first_point() {
    let exact = |blocks: f64| (blocks, 100.0 + 8.0 * blocks);
    let line = slope(100.0, [1.0, 15.0, 255.0].into_iter().map(exact));
    assert!((line - 8.0).abs() < 1e-9, "{line}");
    // A point counts by its relative error: one that is 10 % off moves the line by a part of it.
    let points = [exact(3.0), exact(15.0), (255.0, (100.0 + 8.0 * 255.0) * 1.1)];
    let line = slope(100.0, points.into_iter());
    assert!(line > 8.0 && line < 8.9, "{line}");
    assert!(slope(100.0, [(15.0, 90.0)].into_iter()).abs() < 1e-9, "never below zero");
    assert!(slope(100.0, std::iter::empty()).abs() < 1e-9);
}

#[test]
fn too_little_is_refused() {
    let mut measured = measure(&known("ssd"), false);
    measured.retain(|one| one.cell.depth > 1);
    assert!(matches!(fit(&measured), Err(Unfit)));
    assert!(matches!(fit(&[]), Err(Unfit)));
}
