//! What the cache does for a mixed workload on a slow disk, in two minutes.
//!
//! Called by people: `cargo xtask demo`.

use anyhow::Result;

/// How long to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seconds for each of the two measurements
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    anyhow::bail!("{}", args.seconds)
}
