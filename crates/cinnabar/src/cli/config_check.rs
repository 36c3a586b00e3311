//! `cinnabar config check`: is this configuration fine?

use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use std::io::Write;
use std::path::PathBuf;

/// What to do with a configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a file without opening what it names
    #[command(after_help = "Warnings go to stderr. Exit code 2 if something is wrong.\n\n\
        Examples:\n  cinnabar config check /etc/cinnabar/cinnabar.toml")]
    Check {
        /// Configuration file (TOML)
        file: PathBuf,
    },
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Check { file } = &args.command;
    let config = cinnabar_config::load(file)?;
    for warning in &config.warnings {
        let _gone = writeln!(std::io::stderr().lock(), "warning: {warning}");
    }
    let volumes = match config.volumes.len() {
        0 => "no volumes; add them while it runs".to_owned(),
        1 => "1 volume".to_owned(),
        count => format!("{count} volumes"),
    };
    let (file, device) = (file.display(), config.cache.device.display());
    output::text(&format!("{file}: fine (cache {device}, {volumes})\n"))
}
