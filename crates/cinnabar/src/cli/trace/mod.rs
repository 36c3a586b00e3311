//! `cinnabar trace`: block traces recorded here; all else that is done with them is the laboratory's.

mod record;

use super::lab;
use cinnabar_text::Failure;

/// What to do with traces.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Record what the guests of a running daemon's volumes ask for
    Record(record::Args),
    /// Look at traces: format, requests, footprint, volumes [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("trace info vm1.csv.zst"))]
    Info(lab::Args),
    /// Print the first requests of a trace [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("trace head vm1.csv.zst"))]
    Head(lab::Args),
    /// Write a trace in another format, or a part of it [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("trace convert vm1.csv.zst --out vm1.fio"))]
    Convert(lab::Args),
    /// Make a block trace from a seed [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("trace generate zipf --out z.csv"))]
    Generate(lab::Args),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Record(args) => record::run(args),
        Command::Info(_) | Command::Head(_) | Command::Convert(_) | Command::Generate(_) => {
            Err(lab::run())
        }
    }
}
