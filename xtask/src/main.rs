//! Chores of the workspace: checks, demonstration, benchmarks, long searches.
//!
//! Started as `cargo xtask NAME` (see `.cargo/config.toml`).

mod bench;
mod ceph;
mod ci;
mod demo;
mod faults;
mod found_by;
mod fuzz;
mod install;
mod lanes;
mod layers;
mod package;
mod programs;
mod ratchet;
mod shell;
mod slow;
mod soak;
mod stage;
mod table;
mod tidy;
mod tier;
mod tiers;
mod traces;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the workspace")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// What a newcomer runs: build, and all quick tests
    Test(ci::Args),
    /// What must pass before a change is taken: that, lints, slower tests, real clients
    Ci(ci::Args),
    /// Every check and test there is (hours)
    Nightly(ci::Args),
    /// Show what the cache does for a mixed workload on a slow disk (about 2 minutes)
    Demo(demo::Args),
    /// Start a throw-away Ceph cluster and keep it until Ctrl-D
    Ceph,
    /// Measure
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Search longer: fault simulations on and on, or all searches for some minutes
    Soak(soak::Args),
    /// Build a Debian package
    Package(package::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Test(args) => return ci::test(&args),
        Chore::Ci(args) => return ci::ci(&args),
        Chore::Nightly(args) => return ci::nightly(&args),
        Chore::Demo(args) => demo::run(&args),
        Chore::Ceph => ceph::run(),
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Package(args) => package::run(&args),
        Chore::Soak(args) => return soak::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
