//! `cinnabar-lab bench`: what storage does.

mod cache_args;
mod replay;
mod reports;
mod spc1;

use cinnabar_text::Failure;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the SPC-1-like benchmark, or find the highest load within 30 ms
    Spc1(Box<spc1::Args>),
    /// Replay a block trace on storage, with and without the cache
    Replay(Box<replay::Args>),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Spc1(args) => spc1::run_command(args),
        Command::Replay(args) => replay::run(args),
    }
}
