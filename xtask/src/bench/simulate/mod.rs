//! Policies, curves, samples and divisions without a cache: references a second, beside libCacheSim.
//!
//! A process for each measurement, on one thread; Cinnabar and libCacheSim run alternately, on the
//! same file of oracleGeneral, and must find the same misses. Time is CPU time, and the best of the
//! rounds counts: other work makes a measurement slower, never faster.

mod analysis;
mod peer;
mod policies;

use crate::bench::heading;
use crate::shell::{cargo, root, show};
use crate::traces;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the best of each cell counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Folder of traces [default: those in the tree, and those in the folder that `CINNABAR_TRACES` names]
    #[arg(long, value_name = "FOLDER", hide_default_value = true)]
    traces: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', default_value = "policies,curves,errors,dividing")]
    part: Vec<Part>,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Policies against libCacheSim
    Policies,
    /// Exact and sampled curves
    Curves,
    /// What sampling gets wrong
    Errors,
    /// Dividing a cache
    Dividing,
}

/// The program that measures, and where its files go.
struct Bench {
    program: PathBuf,
    folder: PathBuf,
    /// Trace files by name.
    traces: Vec<(String, PathBuf)>,
    rounds: usize,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    misses: f64,
    references: f64,
    seconds: f64,
    peak_kib: f64,
}

impl Measured {
    /// Of a process that prints misses, references, seconds, KiB.
    fn of(command: &mut Command) -> Result<Self> {
        let [misses, references, seconds, peak_kib] = numbers(command)?;
        Ok(Self { misses, references, seconds, peak_kib })
    }

    fn rate(&self) -> f64 {
        self.references / self.seconds / 1e6
    }

    fn peak_mib(&self) -> f64 {
        self.peak_kib / 1024.0
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let bench = Bench::prepare(args)?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    let rounds = args.rounds;
    let what = format!("one thread, CPU time, best of {rounds}; load average {load} at the start");
    let mut text = heading(&what)?;
    for part in &args.part {
        text += "\n";
        text += &match part {
            Part::Policies => policies::table(&bench)?,
            Part::Curves => analysis::curves(&bench)?,
            Part::Errors => analysis::errors()?,
            Part::Dividing => analysis::dividing(&bench)?,
        };
    }
    println!("{text}");
    if let Some(path) = &args.output {
        std::fs::write(path, &text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

impl Bench {
    fn prepare(args: &Args) -> Result<Self> {
        let found = traces::find_some(&["cp_vscsi", "self_loop4"], args.traces.as_deref())?;
        let build = ["build", "--profile", "dist", "--locked", "--package", "cinnabar-study"];
        show(cargo(&build).args(["--example", "simulate_bench"]))?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root().join("target"), |folder| root().join(folder));
        let folder = target.join("bench-simulate");
        std::fs::create_dir_all(&folder)?;
        let program = target.join("release/examples/simulate_bench");
        Ok(Self { program, folder, traces: found, rounds: args.rounds.max(1) })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }
}

/// The `N` numbers that a process prints in one line.
fn numbers<const N: usize>(command: &mut Command) -> Result<[f64; N]> {
    let printed = e2e::output(command)?;
    let found: Vec<f64> =
        printed.split_whitespace().map(str::parse).collect::<Result<_, _>>().with_context(
            || format!("{}: {printed}", Path::new(command.get_program()).display()),
        )?;
    match found.try_into() {
        Ok(numbers) => Ok(numbers),
        Err(found) => bail!("{N} numbers are expected, not {found:?}"),
    }
}

fn met(met: bool) -> String {
    String::from(if met { "met" } else { "MISSED" })
}
