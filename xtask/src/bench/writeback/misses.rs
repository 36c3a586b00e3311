//! A guest's reads past the cache, while what it has written goes to the back end: at a pace, and as fast
//! as the back end takes it.

use super::{BURST, Bench, DISK};
use crate::bench::middle;
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::{Fio, MIB};
use std::time::Instant;

/// Back ends, and what a write takes there.
const BACKENDS: [(&str, &str); 2] = [("hdd", "hdd"), ("filer, 1 ms a write", "filer,write=1ms")];
/// What is destaged meanwhile, and how.
const CASES: [(&str, bool, &str); 3] = [
    ("nothing", false, "destage_pace = true"),
    ("as fast as it goes", true, "destage_pace = false"),
    ("at a pace", true, "destage_pace = true"),
];
/// So long that it asks for nothing.
const RPO: &str = "rpo_s = 600";
/// Holds a burst several times.
const LOG: u64 = 256 * MIB;

#[derive(Clone, Copy, Debug)]
struct Reads {
    mean_us: f64,
    p99_us: f64,
    /// Blocks that reached the back end meanwhile, a second.
    destaged: f64,
}

/// Runs it.
pub(super) fn table(rounds: usize, seconds: u64) -> Result<String> {
    let mut samples = vec![[const { Vec::new() }; CASES.len()]; BACKENDS.len()];
    for (case, (name, writes, pace)) in CASES.into_iter().enumerate() {
        let bench = Bench::start_with(LOG, &[RPO, pace])?;
        for round in 0..rounds {
            for (cell, (backend, model)) in BACKENDS.into_iter().enumerate() {
                eprintln!("round {round}: misses, {backend}, {name} is destaged");
                samples[cell][case].push(bench.misses(model, writes, seconds, round)?);
            }
        }
        bench.daemon.stop()?;
    }
    let mut table = Table::new(&[
        "misses at QD4, while this is destaged",
        "mean us",
        "p99",
        "mean, x",
        "blocks destaged/s",
    ]);
    for ((backend, _), cases) in BACKENDS.into_iter().zip(&samples) {
        let quiet = middle(&cases[0], |reads| reads.mean_us);
        for ((name, writes, _), side) in CASES.into_iter().zip(cases) {
            let mean = middle(side, |reads| reads.mean_us);
            table.row(vec![
                format!("{backend}: {name}"),
                format!("{mean:.0}"),
                format!("{:.0}", middle(side, |reads| reads.p99_us)),
                format!("{:.2}", mean / quiet),
                if writes {
                    format!("{:.0}", middle(side, |reads| reads.destaged))
                } else {
                    "-".into()
                },
            ]);
        }
    }
    Ok(format!("\n{}", table.render()))
}

impl Bench {
    fn misses(&self, model: &str, writes: bool, seconds: u64, round: usize) -> Result<Reads> {
        self.with(model, ("write-back", "durable"), |uri| {
            if writes {
                // The flush at its end has the destage begin.
                Fio::nbd(uri)
                    .arg("rw", "randwrite")
                    .arg("bs", "4k")
                    .arg("size", DISK)
                    .arg("iodepth", 32)
                    .arg("number_ios", BURST)
                    .arg("randseed", round)
                    .arg("end_fsync", 1)
                    .flag("norandommap")
                    .run()?;
            }
            let (begun, before) = (Instant::now(), self.destaged()?);
            let outcome = Fio::nbd(uri)
                .arg("rw", "randread")
                .arg("bs", "4k")
                .arg("size", DISK)
                .arg("iodepth", 4)
                .arg("runtime", seconds)
                .arg("randseed", round + 1000)
                .run()?;
            let blocks = (self.destaged()? - before) / 4096;
            Ok(Reads {
                mean_us: outcome.read.mean_us,
                p99_us: outcome.read.p99_us,
                destaged: blocks as f64 / begun.elapsed().as_secs_f64(),
            })
        })
    }

    /// Bytes of the volume that its back end was brought.
    fn destaged(&self) -> Result<u64> {
        let status = self.daemon.glance()?;
        let volumes = status.0["volumes"].as_array().context("the status has volumes")?;
        let cell = volumes.iter().find(|volume| volume["name"] == "cell");
        let write_back = &cell.context("the volume is there")?["write_back"];
        write_back["destaged_bytes"].as_u64().context("it is in write-back mode")
    }
}
