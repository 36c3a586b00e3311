//! Measurements, each against a yardstick in the same run.
//!
//! Called by people: `cargo xtask bench NAME`.

mod frontends;
mod servers;

use crate::shell::{cargo, show};
use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Bench {
    /// Our NBD server with 100 % hits against qemu-nbd, qemu-storage-daemon and nbdkit
    Frontends(frontends::Args),
    /// The engine alone: bytes of RAM a block, ns an operation
    Engine(Passed),
    /// Hit ratios and flash writes on recorded traces
    Hits(Passed),
}

/// Arguments for the program that measures.
#[derive(clap::Args, Debug)]
pub(crate) struct Passed {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs it.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Frontends(args) => frontends::run(args),
        Bench::Engine(passed) => example("engine_bench", &passed.args),
        Bench::Hits(passed) => example("hit_table", &passed.args),
    }
}

fn example(name: &str, args: &[String]) -> Result<()> {
    let run = ["run", "--release", "--locked", "--package", "cinnabar-sim", "--example", name];
    show(cargo(&run).arg("--").args(args)).map(|_| ())
}
