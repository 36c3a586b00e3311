//! `cinnabar-lab trace`: block traces made, looked at, turned into other formats.
//!
//! One file a command; what they share is in [`input`] (reading) and [`choice`] (of volumes).
//! Recordings are made by `cinnabar trace record`.

mod choice;
mod convert;
mod generate;
mod head;
mod info;
mod input;

use cinnabar_text::Failure;

/// What to do with traces.
#[derive(Debug, clap::Args)]
#[command(after_help = "A running daemon's volumes are recorded by cinnabar trace record.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look at traces: format, requests, footprint, volumes
    Info(info::Args),
    /// Print the first requests of a trace
    Head(head::Args),
    /// Write a trace in another format, or a part of it
    Convert(convert::Args),
    /// Make a block trace from a seed: the same settings and seed give the same trace anywhere
    #[command(subcommand)]
    Generate(generate::Command),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Info(args) => info::run(args),
        Command::Head(args) => head::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Generate(what) => generate::run(what),
    }
}
