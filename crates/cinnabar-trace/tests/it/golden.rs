//! Golden counts: reader, expansion and reference simulators against published numbers.

use crate::reference::{Counts, clock, load, lru};
use crate::{fixture, shared_trace};
use cinnabar_trace::Op;

/// Counted once with a throw-away script in another language.
#[test]
fn the_fixture_counts_what_it_counts() {
    let mut by_op = [0_u64; 4];
    for record in cinnabar_trace::open(&fixture()).expect("the fixture opens") {
        by_op[record.expect("a valid line").op as usize] += 1;
    }
    assert_eq!(by_op[Op::Read as usize], 19_895);
    assert_eq!(by_op[Op::Write as usize], 80_041);
    assert_eq!(by_op[Op::Flush as usize], 64);
    assert_eq!(by_op[Op::Discard as usize], 0);
}

#[test]
fn the_fixture_misses_what_it_misses() {
    let trace = load(&fixture());
    assert_eq!(trace.len(), FIXTURE_REFERENCES);
    assert_eq!(lru(&trace, 8192).misses(), FIXTURE_LRU_8192);
    assert_eq!(clock(&trace, 8192).misses(), FIXTURE_CLOCK_8192);
    assert_eq!(lru(&trace, 65536).misses(), FIXTURE_LRU_65536);
    assert_eq!(clock(&trace, 65536).misses(), FIXTURE_CLOCK_65536);
}

const FIXTURE_REFERENCES: usize = 781_757;
const FIXTURE_LRU_8192: u64 = 734_308;
const FIXTURE_CLOCK_8192: u64 = 733_133;
const FIXTURE_LRU_65536: u64 = 450_082;
const FIXTURE_CLOCK_65536: u64 = 392_827;

#[test]
fn cp_vscsi_at_65536_blocks() {
    let Some(path) = shared_trace("cp_vscsi.canon.csv.zst") else { return };
    let trace = load(&path);
    assert_eq!(trace.len(), 1_141_869);
    assert_eq!(lru(&trace, 65536).misses(), 857_352);
    let counts = clock(&trace, 65536);
    assert_eq!(counts.misses(), 883_946);
    write_through_clock(counts, 345_423, 1_001_592);
}

#[test]
fn self_loop4_at_65536_blocks() {
    let Some(path) = shared_trace("self_loop4.canon.csv.zst") else { return };
    let trace = load(&path);
    assert_eq!(trace.len(), 4_178_174);
    assert_eq!(lru(&trace, 65536).misses(), 1_725_248);
    let counts = clock(&trace, 65536);
    assert_eq!(counts.misses(), 1_582_452);
    write_through_clock(counts, 412_140, 2_835_364);
}

/// The baseline of real reads and writes: both get-or-insert, a write hit rewrites its block.
fn write_through_clock(counts: Counts, read_misses: u64, flash_blocks: u64) {
    assert_eq!(counts.read_misses, read_misses);
    assert_eq!(counts.write_through_flash_blocks(), flash_blocks);
}
