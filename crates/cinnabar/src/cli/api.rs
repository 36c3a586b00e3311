//! `cinnabar api`: what programs need to use the control API.

use cinnabar_control::describe;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;

/// What to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the description of the control API for client generators; no daemon is needed
    #[command(after_help = "A daemon serves its own at GET /v1/openapi.json.\n\n\
        Examples:\n  cinnabar api describe > openapi.json")]
    Describe,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match args.command {
        Command::Describe => output::text(&format!("{}\n", describe::text())),
    }
}
