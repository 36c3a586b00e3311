//! `cinnabar cache`: the cache device itself, of a running daemon or of none.
//!
//! Called by the command line.

mod live;

use super::failure::Failure;

/// What to do with a cache device.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Let a running daemon go on with another cache device
    Replace(live::ReplaceArgs),
    /// Let a running daemon go on without a cache device
    Abandon(live::AbandonArgs),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Replace(args) => live::replace(args),
        Command::Abandon(args) => live::abandon(args),
    }
}
