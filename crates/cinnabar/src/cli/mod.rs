//! The command line: what can be asked for, and how errors and exit codes look.
//!
//! stdout is data, stderr is talk. Exit codes: 0 well, 1 failed at run time, 2 usage or
//! configuration. The last line of an error is a hint.

mod analyze;
mod api;
mod bench;
mod cache;
mod client;
mod config_check;
mod demo;
mod extents;
mod failure;
mod history;
mod hybrid;
mod logging;
mod man;
mod migrate;
mod output;
mod parse;
mod policy;
mod progress;
mod reload;
mod report;
mod report_file;
mod serve;
mod simulate;
mod status;
mod status_notes;
#[cfg(test)]
mod tests;
mod trace;
mod volume;
mod windows;

use cinnabar_text::Failure;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

/// Persistent SSD cache for virtual-machine disks on shared storage
#[derive(Debug, Parser)]
#[command(name = "cinnabar", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 well, 1 failed at run time, 2 usage or configuration.\n\n\
    Examples:\n  \
    cinnabar serve --demo\n  \
    cinnabar serve --config cinnabar.toml\n  \
    cinnabar status --socket control.sock --watch")]
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
    /// Run the cache under a virtual clock, with everything that can go wrong
    Simulate(simulate::Args),
    /// Would a cache help, how large, and with which policy? Ask a block trace
    Analyze(Box<analyze::Args>),
    /// Look at block traces, convert, make and record them
    Trace(trace::Args),
    /// Measure storage: an SPC-1-like benchmark, trace replay, device latency
    Bench(bench::Args),
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
    Man(man::Args),
}

/// A panic of any thread ends the process, in each profile as in a release: what it left half done is nobody's to use.
fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        std::process::abort();
    }));
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    abort_on_panic();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = run(cli.command);
    cinnabar_backend::finish_closing();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure::print(&failure);
            ExitCode::from(failure.code)
        }
    }
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
        Command::Simulate(args) => simulate::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Version { json } => version(json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "cinnabar", &mut script);
            output::bytes(&script)
        }
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}

fn version(json: bool) -> Result<(), Failure> {
    let (version, format) =
        (env!("CARGO_PKG_VERSION"), cinnabar_engine::metadata::superblock::FORMAT_VERSION);
    if json {
        return output::json(&serde_json::json!({ "version": version, "format_version": format }));
    }
    output::text(&format!("cinnabar {version} (cache format {format})\n"))
}

/// Prints what clap has to say: help to stdout, complaints to stderr with a hint as the last line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone away is no reason to complain.
        let _gone = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render();
    let text =
        if output::colour(&std::io::stderr()) { text.ansi().to_string() } else { text.to_string() };
    let (complaint, more) = match text.find("\nFor more information") {
        Some(at) => (&text[..at], "cinnabar help lists the commands; --help after one, its flags"),
        None => (text.as_str(), "choose one of these commands"),
    };
    let mut stderr = std::io::stderr().lock();
    let _gone = writeln!(stderr, "{}\nhint: {more}", complaint.trim_end());
    ExitCode::from(2)
}
