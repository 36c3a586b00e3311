//! The command line: what can be asked for, and how errors and exit codes look.
//!
//! stdout is data, stderr is talk. Exit codes: 0 well, 1 failed at run time, 2 usage or
//! configuration. The last line of an error is a hint.

mod api;
mod cache;
mod client;
mod config_check;
mod connection;
mod demo;
mod extents;
#[cfg(test)]
mod guide_tests;
mod history;
mod hybrid;
mod lab;
mod migrate;
mod patience;
mod policy;
mod reload;
mod report;
mod serve;
mod status;
mod status_notes;
#[cfg(test)]
mod tests;
mod trace;
mod volume;
mod windows;

use cinnabar_engine::metadata::superblock::FORMAT_VERSION;
use cinnabar_text::Failure;
use cinnabar_text::cli::{man, program};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::process::ExitCode;

/// Persistent SSD cache for virtual-machine disks on shared storage
#[derive(Debug, Parser)]
#[command(name = "cinnabar", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 well, 1 failed at run time, 2 usage or configuration.\n\n\
    Examples:\n  \
    cinnabar serve --demo\n  \
    cinnabar serve --config cinnabar.toml\n  \
    cinnabar status --socket control.sock --watch\n\n\
    Commands marked [cinnabar-lab] are run by the laboratory, a program of its own.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the volumes of a configuration, or a demonstration, until a signal comes
    Serve(serve::Args),
    /// Show what the cache and its volumes do
    Status(status::Args),
    /// Show what the cache or a volume did over the last hour or day
    History(history::Args),
    /// Have a running daemon read its configuration file again
    Reload(reload::Args),
    /// List, add, remove, change and invalidate volumes of a running daemon
    Volume(volume::Args),
    /// Move volumes to another host and back, with a guest that goes on
    Migrate(migrate::Args),
    /// See how the cache is divided, and why, and overrule it
    Policy(policy::Args),
    /// Check, dump, repair, replace or give up a cache device
    Cache(cache::Args),
    /// Make, look at and check volumes over a fast and a slow pool
    Hybrid(hybrid::Args),
    /// Collect what those who help need to know, without guests' data and secrets
    Report(report::Args),
    /// Check a configuration file
    Config(config_check::Args),
    /// Describe the control API for programs
    Api(api::Args),
    /// Record block traces; look at them, convert and make them [the latter: cinnabar-lab]
    Trace(trace::Args),
    /// Would a cache help, how large, and with which policy? Ask a block trace [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("analyze vm1.csv.zst"))]
    Analyze(lab::Args),
    /// Run the cache under a virtual clock, with everything that can go wrong [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("simulate faults"))]
    Simulate(lab::Args),
    /// Measure storage: an SPC-1-like benchmark, trace replay [cinnabar-lab]
    #[command(disable_help_flag = true, after_help = lab::help!("bench replay vm1.csv.zst --target /mnt/nfs/test.raw"))]
    Bench(lab::Args),
    /// Print the version
    #[command(after_help = "Examples:\n  cinnabar version\n  cinnabar version --json")]
    Version {
        /// Print a JSON object [default: plain text]
        #[arg(long)]
        json: bool,
    },
    /// Print the completions of a shell
    #[command(after_help = "Examples:\n  \
        cinnabar completions bash > /etc/bash_completion.d/cinnabar\n  \
        cinnabar completions zsh > ~/.zfunc/_cinnabar")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(
        after_help = "One page for the program and one for each command of it, cinnabar-config.1 \
        for example.\n\nExamples:\n  \
        cinnabar man /usr/local/share/man/man1\n  \
        cinnabar man . && man ./cinnabar-volume-add.1"
    )]
    Man(man::Args),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    program::main(|cli: Cli| {
        let done = run(cli.command);
        cinnabar_backend::finish_closing();
        done
    })
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::History(args) => history::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Volume(args) => volume::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Hybrid(args) => hybrid::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Config(args) => config_check::run(&args),
        Command::Api(args) => api::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Analyze(_) | Command::Simulate(_) | Command::Bench(_) => Err(lab::run()),
        Command::Version { json } => program::version(&Cli::command(), FORMAT_VERSION, json),
        Command::Completions { shell } => program::completions(shell, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}
