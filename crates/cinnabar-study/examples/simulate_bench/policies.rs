//! A policy on a file of oracleGeneral, as libCacheSim reads it: time 4, key 8, size 4, next use 8,
//! little endian.

use crate::{cpu_seconds, peak_kib};
use cinnabar_policy::{Interner, Policy, Simulation, Writes};
use cinnabar_trace::write_oracle::Writer;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::num::NonZeroU32;
use std::path::Path;

const RECORD_BYTES: usize = 24;
const STRIDE_RECORDS: usize = 1 << 16;

/// Writes a trace as oracleGeneral.
pub(crate) fn convert(trace: &str, file: &str) -> Vec<f64> {
    let spool = format!("{file}.spool");
    let open = || {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).open(&spool)
    };
    let mut writer = Writer::new(open().expect("a spool"));
    for record in cinnabar_trace::open(Path::new(trace)).expect("the trace opens") {
        writer.write(&record.expect("a sound trace")).expect("there is room");
    }
    let mut output = BufWriter::new(File::create(file).expect("a file"));
    let records = writer.finish(&mut output).expect("there is room");
    output.flush().expect("there is room");
    std::fs::remove_file(spool).expect("it was made here");
    vec![records as f64]
}

/// Reads the file and runs the policy, key look-ups included.
pub(crate) fn measure(name: &str, path: &str, blocks: &str) -> Vec<f64> {
    let policy: Policy = name.parse().expect("the name of a policy");
    let capacity: NonZeroU32 = blocks.parse().expect("a number of blocks");
    let start = cpu_seconds();
    let mut file = File::open(path).expect("the file is there");
    let mut simulation = Simulation::new(policy, capacity, Writes::AsReads).expect("not belady");
    let (mut interner, mut accesses) = (Interner::default(), Vec::new());
    let mut stride = vec![0; STRIDE_RECORDS * RECORD_BYTES];
    loop {
        let mut filled = 0;
        while filled < stride.len() {
            match file.read(&mut stride[filled..]).expect("it can be read") {
                0 => break,
                bytes => filled += bytes,
            }
        }
        let keys = stride[..filled].chunks_exact(RECORD_BYTES).map(|record| {
            (u64::from_le_bytes(record[4..12].try_into().expect("eight bytes")), false)
        });
        accesses.clear();
        interner.extend(keys, &mut accesses).expect("few enough blocks");
        simulation.feed(&accesses);
        if filled < stride.len() {
            break;
        }
    }
    let counts = simulation.finish();
    let seconds = cpu_seconds() - start;
    vec![counts.misses as f64, counts.references as f64, seconds, peak_kib()]
}
