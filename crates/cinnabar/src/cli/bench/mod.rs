//! `cinnabar bench`: what storage does.
//!
//! Called by the command line.

mod probe;

use super::failure::Failure;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Measure the latency of a device or back end by size, operation and depth
    Probe(probe::Args),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Probe(args) => probe::run(args),
    }
}
