//! References a second of each policy on one file, key lookups included, on one thread.
//!
//! Called by hand: `policy_bench FILE SIZE...`, the file being
//! libCacheSim's oracleGeneral (24 bytes a reference: time 4, key 8, size 4, next use 8, little
//! endian), so that both read the same. Reading the file is part of the time, as it is there.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures")]

use cinnabar_policy::{Access, Interner, Policy, ReadOnly, WriteBack, Writes, simulate};
use std::num::NonZeroU32;
use std::time::Instant;

const RECORD_BYTES: usize = 24;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("policy_bench FILE SIZE...");
    let sizes: Vec<NonZeroU32> =
        arguments.map(|size| size.parse().expect("a size is a number of blocks")).collect();
    println!("| policy | blocks | misses | M references/s |\n|---|---|---|---|");
    for policy in Policy::ALL {
        for &size in &sizes {
            let start = Instant::now();
            let accesses = load(&path);
            let misses = simulate(policy, size, Writes::AsReads, &accesses).misses;
            let rate = accesses.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("| {policy} | {size} | {misses} | {rate:.1} |");
        }
    }
    for (name, analyze) in ANALYSES {
        let start = Instant::now();
        let accesses = load(&path);
        let reads = analyze(&accesses);
        let rate = accesses.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("| {name} | all | {reads} reads | {rate:.1} |");
    }
}

/// Gives the reads it counted.
type Analysis = fn(&[Access]) -> u64;
/// The exact curves.
const ANALYSES: [(&str, Analysis); 2] = [
    ("write-back curves", |accesses| {
        let mut write_back = WriteBack::default();
        write_back.extend(accesses);
        write_back.finish().mix.reads
    }),
    ("all curves", |accesses| {
        let (mut write_back, mut read_only) = (WriteBack::default(), ReadOnly::default());
        write_back.extend(accesses);
        read_only.extend(accesses);
        write_back.finish().mix.reads.max(read_only.finish().reads)
    }),
];

fn load(path: &str) -> Vec<Access> {
    let bytes = std::fs::read(path).expect("the file is there");
    let (mut interner, mut accesses) = (Interner::default(), Vec::new());
    let keys = bytes.chunks_exact(RECORD_BYTES).map(|record| {
        let key = record[4..12].try_into().expect("eight bytes");
        // The format has no writes: every other key's accesses stand for them.
        let key = u64::from_le_bytes(key);
        (key, key & 1 == 1)
    });
    interner.extend(keys, &mut accesses).expect("few enough blocks");
    accesses
}
