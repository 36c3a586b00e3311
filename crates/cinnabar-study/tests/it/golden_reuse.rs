//! Reuse analysis of real traces, against counts of an independent program.

use crate::golden_policies::accesses;
use crate::traces::{fixture, shared_trace};
use cinnabar_policy::reuse::{Mix, ReadOnlyCurves, WriteBackCurves};
use cinnabar_policy::{Access, Policy, ReadOnly, WriteBack, Writes, simulate};
use cinnabar_trace::Record;
use std::num::NonZeroU32;

fn write_back(accesses: &[Access]) -> WriteBackCurves {
    let mut analysis = WriteBack::default();
    analysis.extend(accesses);
    analysis.finish()
}

fn read_only(accesses: &[Access]) -> ReadOnlyCurves {
    let mut analysis = ReadOnly::default();
    analysis.extend(accesses);
    analysis.finish()
}

fn classes(mix: &Mix) -> [u64; 4] {
    [mix.rar, mix.raw, mix.war, mix.waw]
}

#[test]
fn cp_vscsi_has_its_golden_curve_classes_and_distances() {
    let Some(trace) = shared_trace("cp_vscsi.canon.csv.zst") else { return };
    let accesses = accesses(&trace);
    let found = write_back(&accesses);
    assert_eq!(classes(&found.mix), [105_309, 319_702, 179_096, 268_552]);
    assert_eq!((found.total.max(), found.useful.max()), (Some(267_665), Some(266_319)));
    for (size, ratio) in [
        (2_692, "0.896869"),
        (13_460, "0.887102"),
        (26_921, "0.874098"),
        (67_302, "0.741718"),
        (134_605, "0.473261"),
    ] {
        let found = found.misses(size) as f64 / accesses.len() as f64;
        assert_eq!(format!("{found:.6}"), ratio, "{size} blocks");
    }
}

#[test]
fn self_loop4_wants_opposite_policies_for_its_volumes() {
    let Some(trace) = shared_trace("self_loop4.canon.csv.zst") else { return };
    let all = write_back(&accesses(&trace)).mix;
    assert_eq!(classes(&all), [1_558_779, 196_151, 42_880, 1_971_288]);
    let of_volume = |volume| {
        let records: Vec<Record> = trace.iter().copied().filter(|r| r.volume == volume).collect();
        write_back(&accesses(&records)).mix
    };
    // Git overwrites: 99.6 % WAW. A compiler reads again: 95.5 % RAR.
    assert_eq!(classes(&of_volume(1)), [45, 4_669, 3, 1_094_723]);
    assert_eq!(classes(&of_volume(3)), [1_447_998, 29_065, 5, 38_573]);
}

/// A short trace, so that its longest distances are in it as they are.
#[test]
fn msr_hm_0_has_its_golden_classes_and_distances() {
    let Some(trace) = shared_trace("raw_msr_hm_0_sample1000.csv.xz") else { return };
    let found = write_back(&accesses(&trace));
    assert_eq!(classes(&found.mix), [88, 0, 7, 461]);
    assert_eq!((found.total.max(), found.useful.max()), (Some(1_500), Some(199)));
}

/// The part of `self_loop4` that every clone has.
#[test]
fn the_trace_in_the_tree_has_its_golden_classes_and_distances() {
    let found = write_back(&accesses(&fixture()));
    assert_eq!(classes(&found.mix), [203_598, 64_545, 6_396, 270_643]);
    assert_eq!((found.total.max(), found.useful.max()), (Some(225_561), Some(225_561)));
}

/// The curves on real data are what caches of those sizes do, one by one.
#[test]
fn curves_are_those_of_simulated_caches() {
    let accesses = accesses(&fixture());
    let (back, only) = (write_back(&accesses), read_only(&accesses));
    for size in [1, 100, 1_024, 8_192, 32_768, 200_000] {
        let capacity = NonZeroU32::new(size).expect("a size");
        let lru = |writes| simulate(Policy::Lru, capacity, writes, &accesses);
        let (counts, size) = (lru(Writes::Back), u64::from(size));
        assert_eq!(back.misses(size), counts.misses, "misses, {size} blocks");
        assert_eq!(back.read_misses(size), counts.read_misses, "read misses, {size} blocks");
        assert_eq!(back.destages.at(size), counts.backend_writes, "destages, {size} blocks");
        assert_eq!(back.dirty.at(size), counts.dirty, "dirty, {size} blocks");
        let counts = lru(Writes::Around);
        assert_eq!(only.read_misses(size), counts.read_misses, "read-only, {size} blocks");
    }
}
