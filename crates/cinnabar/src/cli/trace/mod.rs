//! `cinnabar trace`: block traces made, looked at, turned into other formats.
//!
//! Called by the command line.

mod generate;

use super::failure::Failure;

/// What to do with traces.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a block trace from a seed: the same settings and seed give the same trace anywhere
    #[command(subcommand)]
    Generate(generate::Command),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Generate(what) => generate::run(what),
    }
}
