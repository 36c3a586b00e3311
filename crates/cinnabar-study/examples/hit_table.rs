//! Hit ratio and flash writes of the engine on real traces, beside CLOCK's golden counts.
//!
//! Started by `cargo xtask bench hits`. Arguments: files of the traces below, which are known by their
//! names. Prints the table that `docs/benchmarks.md` keeps.

use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Config, Eviction};
use cinnabar_policy::Writes;
use cinnabar_study::hits::EngineCache;
use cinnabar_trace::{Reference, TraceError, open, references};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

/// Name, CLOCK's misses of get-or-insert, write-through CLOCK's read misses and flash blocks.
const TRACES: [(&str, u64, u64, u64); 2] =
    [("cp_vscsi", 883_946, 345_423, 1_001_592), ("self_loop4", 1_582_452, 412_140, 2_835_364)];
const SIZE_BLOCKS: NonZeroU32 = NonZeroU32::new(65_536).expect("a size");

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<(), String> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        return Err("no trace is named\nhint: cargo xtask bench hits".to_owned());
    }
    println!("| trace | run | misses | x CLOCK | flash blocks | x CLOCK | carried | seconds |");
    println!("|---|---|---|---|---|---|---|---|");
    for path in files {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let known = TRACES.iter().find(|row| Some(row.0) == file.strip_suffix(".canon.csv.zst"));
        let Some(&(name, clock, read_misses, flash)) = known else {
            return Err(format!("{}: no counts to compare with are known", path.display()));
        };
        let failed = |error: TraceError| format!("{}: {error}", path.display());
        let all: Vec<Reference> =
            references(open(&path).map_err(failed)?).collect::<Result<_, _>>().map_err(failed)?;
        let probation = Config::default();
        let plain = Config { eviction: Eviction::Clock, ..probation };
        row(name, "(a) get-or-insert", &all, probation, false, (clock, clock));
        row(name, "(b) reads and writes", &all, probation, true, (read_misses, flash));
        row(name, "(c) plain CLOCK", &all, plain, false, (clock, clock));
    }
    Ok(())
}

fn row(trace: &str, run: &str, all: &[Reference], config: Config, writes: bool, bar: (u64, u64)) {
    let start = std::time::Instant::now();
    let writes = if writes { Writes::Through } else { Writes::AsReads };
    let mut cache = EngineCache::with(SIZE_BLOCKS, writes, config).expect("there is such a cache");
    for reference in all {
        let (volume, block) = (reference.key >> 40, reference.key & ((1 << 40) - 1));
        let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
        cache.request(volume as u32, reference.write, span).expect("few volumes");
    }
    let counts = cache.counts();
    let (misses, flash) = (counts.read_misses, counts.flash_writes);
    println!(
        "| {trace} | {run} | {misses} | {:.3} | {flash} | {:.3} | {} | {:.1} |",
        misses as f64 / bar.0 as f64,
        flash as f64 / bar.1 as f64,
        cache.cache_counters().reinserted_blocks,
        start.elapsed().as_secs_f64(),
    );
}
