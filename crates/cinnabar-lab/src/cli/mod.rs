//! The laboratory's command line: everything that reads or makes traces, simulates or measures.
//!
//! stdout is data, stderr is talk. Exit codes: 0 well, 1 failed at run time, 2 usage or
//! configuration. The last line of an error is a hint.

mod analyze;
mod bench;
mod demo_load;
mod parse;
mod simulate;
#[cfg(test)]
mod tests;
mod trace;

use cinnabar_engine::metadata::superblock::FORMAT_VERSION;
use cinnabar_text::Failure;
use cinnabar_text::cli::{man, program};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::process::ExitCode;

/// The laboratory of Cinnabar, an SSD cache for virtual-machine disks: traces, simulation, benchmarks
#[derive(Debug, Parser)]
#[command(name = "cinnabar-lab", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 well, 1 failed at run time, 2 usage or configuration.\n\n\
    Examples:\n  \
    cinnabar-lab analyze vm1.csv.zst\n  \
    cinnabar-lab simulate hits vm1.csv.zst --policy lru,arc,engine --size 1GiB,4GiB\n  \
    cinnabar-lab bench replay vm1.csv.zst --target /mnt/nfs/test.raw")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Would a cache help, how large, and with which policy? Ask a block trace
    Analyze(Box<analyze::Args>),
    /// Run the cache under a virtual clock, with everything that can go wrong
    Simulate(simulate::Args),
    /// Measure storage: an SPC-1-like benchmark, trace replay
    Bench(bench::Args),
    /// Look at block traces, convert and make them
    Trace(trace::Args),
    /// Be the four machines of a demonstration that cinnabar serves, until stdin ends
    #[command(hide = true)]
    DemoLoad(demo_load::Args),
    /// Print the version
    #[command(after_help = "Examples:\n  cinnabar-lab version\n  cinnabar-lab version --json")]
    Version {
        /// Print a JSON object [default: plain text]
        #[arg(long)]
        json: bool,
    },
    /// Print the completions of a shell
    #[command(after_help = "Examples:\n  \
        cinnabar-lab completions bash > /etc/bash_completion.d/cinnabar-lab\n  \
        cinnabar-lab completions zsh > ~/.zfunc/_cinnabar-lab")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = "One page for the program and one for each command of it, \
        cinnabar-lab-analyze.1 for example.\n\nExamples:\n  \
        cinnabar-lab man /usr/local/share/man/man1\n  \
        cinnabar-lab man . && man ./cinnabar-lab-trace-info.1")]
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
        Command::Analyze(args) => analyze::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::DemoLoad(args) => demo_load::run(&args),
        Command::Version { json } => program::version(&Cli::command(), FORMAT_VERSION, json),
        Command::Completions { shell } => program::completions(shell, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}
