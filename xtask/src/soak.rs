//! Searches longer than `ci` has time for.
//!
//! Called by people and by nightly runs: `cargo xtask soak --seeds 100000 --fuzz-minutes 60`.

use crate::fuzz;
use crate::shell::{cargo, show};
use crate::stage::{Done, Stage, run_all};
use std::process::ExitCode;
use std::time::Duration;

/// How long to search.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seeds for each of the simulator's tests
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Minutes that the fuzz targets share
    #[arg(long, default_value_t = 60)]
    fuzz_minutes: u64,
    /// Only these stages (seeds, fuzz)
    stages: Vec<String>,
}

/// Runs the stages.
pub(crate) fn run(args: &Args) -> ExitCode {
    let seeds = format!("0..{}", args.seeds);
    let minutes = args.fuzz_minutes;
    let stages = [
        Stage::new("seeds", move || {
            let test = ["test", "--release", "--locked", "--package", "cinnabar-sim"];
            show(cargo(&test).env("CINNABAR_SEEDS", &seeds)).map(Done::Passed)
        }),
        Stage::new("fuzz", move || fuzz::run(Duration::from_mins(minutes))),
    ];
    run_all("soak", &stages, &args.stages)
}
