//! `cinnabar simulate`: what would happen, without storage: one file a question.
//!
//! Called by the command line.

mod faults;
mod hits;

use super::failure::Failure;

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Crashes, power cuts, rot and worse: search seeds for a read that is not what it must be
    #[command(
        after_help = "A seed fixes everything that happens in its run: guests, faults, restarts. \
        Each seed leaves some kinds of faults out. The same program and seed give the same run.\n\
        Exit code 1 if a seed fails; its history and the command that repeats it are printed.\n\n\
        Examples:\n  \
        cinnabar simulate faults\n  \
        cinnabar simulate faults --seeds 10000 --jobs 2 --all-kinds\n  \
        cinnabar simulate faults --seed 4711\n  \
        cinnabar simulate faults --seeds 100 --json | jq .faults"
    )]
    Faults(faults::Args),
    /// Hit ratios and flash writes of caches of many sizes, on a trace, with each policy
    Hits(hits::Args),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Faults(args) => faults::run(args),
        Command::Hits(args) => hits::run(args),
    }
}
