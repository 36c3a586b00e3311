//! Policies on real traces, against counts of independent simulators.

use crate::traces::{fixture, shared_trace};
use cinnabar_policy::{Access, Interner, Policy, Writes, simulate};
use cinnabar_trace::{Op, Record, references};
use std::num::NonZeroU32;

/// Misses of LRU, FIFO, CLOCK, SIEVE, S3-FIFO, ARC and Belady; 0 where no independent count exists.
type Row = (u32, [u64; 7]);
const POLICIES: [Policy; 7] = [
    Policy::Lru,
    Policy::Fifo,
    Policy::Clock,
    Policy::Sieve,
    Policy::S3Fifo,
    Policy::Arc,
    Policy::Belady,
];

const CP_VSCSI: [Row; 3] = [
    (1024, [1_028_965, 1_030_563, 1_028_863, 1_040_034, 1_028_435, 1_029_175, 1_006_033]),
    (8192, [1_016_977, 1_017_501, 1_017_274, 1_010_914, 1_004_832, 1_000_227, 932_277]),
    (65536, [857_352, 819_697, 883_946, 817_365, 786_676, 888_400, 567_314]),
];
const TENCENT: [Row; 1] = [(8192, [369_067, 370_210, 368_280, 363_614, 361_796, 362_974, 348_239])];
/// S3-FIFO's are libCacheSim's, 0.3.5.
const SELF_LOOP4: [Row; 2] = [
    (8192, [3_814_717, 3_856_660, 3_811_402, 3_862_474, 3_067_516, 0, 2_876_596]),
    (65536, [1_725_248, 2_345_955, 1_582_452, 1_531_533, 1_223_244, 0, 915_064]),
];
const MS_DTRS: [Row; 1] =
    [(65536, [1_758_376, 1_758_413, 1_758_357, 1_758_146, 1_718_522, 1_758_146, 1_602_457])];
const ARC_OLTP: [Row; 3] = [
    (1024, [610_480, 650_595, 606_939, 614_835, 538_604, 556_130, 421_849]),
    (8192, [376_069, 409_354, 374_259, 382_679, 358_040, 369_032, 258_501]),
    (65536, [220_567, 236_959, 221_703, 225_830, 220_183, 219_774, 186_880]),
];
/// The part of `self_loop4` that is in the tree, by libCacheSim 0.3.5.
const FIXTURE: [Row; 3] = [
    (1024, [768_210, 768_752, 767_966, 760_962, 754_754, 757_140, 707_314]),
    (8192, [734_308, 738_701, 733_133, 730_238, 649_441, 656_108, 564_059]),
    (32768, [613_692, 638_099, 604_336, 571_228, 465_099, 530_176, 367_146]),
];

pub(crate) fn accesses(trace: &[Record]) -> Vec<Access> {
    let all = references(trace.iter().copied().map(Ok));
    let all = all.map(|reference| reference.expect("a valid trace"));
    intern(all.map(|reference| (reference.key, reference.write)))
}

pub(crate) fn intern(references: impl Iterator<Item = (u64, bool)>) -> Vec<Access> {
    let (mut interner, mut accesses) = (Interner::default(), Vec::new());
    interner.extend(references, &mut accesses).expect("few enough blocks");
    accesses
}

fn misses(policy: Policy, size: u32, accesses: &[Access]) -> u64 {
    let size = NonZeroU32::new(size).expect("a size");
    simulate(policy, size, Writes::AsReads, accesses).misses
}

fn check(name: &str, accesses: &[Access], rows: &[Row]) {
    for (size, golden) in rows {
        for (policy, golden) in POLICIES.into_iter().zip(golden).filter(|(_, golden)| **golden > 0)
        {
            assert_eq!(misses(policy, *size, accesses), *golden, "{policy}, {name}, {size} blocks");
        }
    }
}

fn check_shared(name: &str, references: usize, rows: &[Row]) {
    let Some(trace) = shared_trace(name) else { return };
    let accesses = accesses(&trace);
    assert_eq!(accesses.len(), references, "{name}");
    check(name, &accesses, rows);
}

#[test]
fn misses_of_get_or_insert_on_the_trace_in_the_tree() {
    let accesses = accesses(&fixture());
    assert_eq!(accesses.len(), 781_757);
    check("fixture", &accesses, &FIXTURE);
}

#[test]
fn misses_of_get_or_insert_on_arc_oltp() {
    let Some(trace) = shared_trace("arc_OLTP.lis.zst") else { return };
    assert!(trace.iter().all(|record| record.op == Op::Read), "every reference is a read");
    check_shared("arc_OLTP.lis.zst", 914_145, &ARC_OLTP);
}

#[test]
fn misses_of_get_or_insert_on_cp_vscsi() {
    check_shared("cp_vscsi.canon.csv.zst", 1_141_869, &CP_VSCSI);
}

#[test]
fn misses_of_get_or_insert_on_tencent_cbs() {
    check_shared("tencent_cbs_50k.canon.csv.zst", 378_253, &TENCENT);
}

#[test]
fn misses_of_get_or_insert_on_self_loop4() {
    check_shared("self_loop4.canon.csv.zst", 4_178_174, &SELF_LOOP4);
}

#[test]
fn misses_of_get_or_insert_on_ms_dtrs() {
    check_shared("ms_dtrs.canon.csv.zst", 1_759_180, &MS_DTRS);
}

/// Write-through CLOCK with real reads and writes, by the simulator that gave the engine's tests
/// their baseline.
#[test]
fn write_through_clock_reads_and_writes_as_the_independent_simulator() {
    for (name, read_misses, flash_writes) in [
        ("cp_vscsi.canon.csv.zst", 345_423, 1_001_592),
        ("self_loop4.canon.csv.zst", 412_140, 2_835_364),
    ] {
        let Some(trace) = shared_trace(name) else { continue };
        let size = NonZeroU32::new(65_536).expect("a size");
        let counts = simulate(Policy::Clock, size, Writes::Through, &accesses(&trace));
        assert_eq!(
            (counts.read_misses, counts.flash_writes),
            (read_misses, flash_writes),
            "{name}"
        );
    }
}
