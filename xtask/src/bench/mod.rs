//! Measurements, each against a baseline in the same run.
//!
//! `cargo xtask bench NAME`.

mod baseline;
mod compare;
mod frontends;
mod hits;
mod hybrid;
mod marks;
mod rbd;
mod restart;
mod shares;
mod simulate;
mod spc1;
mod tenants;
mod timed;
mod tls;
mod validate;
mod writeback;

use crate::shell::{cargo, show};
use anyhow::{Context, Result, bail};
use e2e::Daemon;
use std::path::Path;
use std::process::Command;

/// Passes over a disk until it is wholly cached.
const WARMING_PASSES_MAX: u32 = 40;

/// What to measure.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Bench {
    /// Another benchmark, of this tree and of an earlier commit in turns
    Compare(compare::Args),
    /// Our NBD server and vhost-user device with 100 % hits against the file itself and their peers
    Frontends(frontends::Args),
    /// Guests' writes with crash safety against without, on back ends of 0.1, 1 and 8 ms
    Marks(marks::Args),
    /// Images on a throw-away Ceph cluster, through the cache and through librbd alone
    Rbd(rbd::Args),
    /// MOBBS's experiment on a throw-away Ceph cluster: hybrid volumes beside all-SSD and all-HDD ones
    Hybrid(hybrid::Args),
    /// Time from start to first reply and to full index, with a cache of 100 GB
    Restart(restart::Args),
    /// The SPC-1-like workload: the engine's own cost, modelled disks with and without a cache, desktops
    Spc1(spc1::Args),
    /// A volume's reads beside hostile clients of other volumes: rate, p99, longest wait
    Tenants(tenants::Args),
    /// NBD over TLS against NBD without it: what encryption costs a client and the daemon
    Tls(tls::Args),
    /// The timed simulator: block I/Os a second, RAM, and all published figures
    Timed(timed::Args),
    /// The timed simulator against the real thing: the same traces, hits and mean latencies
    Validate(validate::Args),
    /// Guests' writes in write-back against write-through, in bursts and beyond what the back end takes
    Writeback(writeback::Args),
    /// The engine alone: bytes of RAM a block, ns an operation
    Engine(Passed),
    /// The scheduler of back ends: ns a request, with 1 to 4,000 volumes that wait; hits of a daemon
    /// with a reservation and a limit against hits without
    Qos(QosArgs),
    /// The manager: what it costs a hit, and how long plans of 16 to 1,000 volumes take
    Manager,
    /// Policies and curves without a cache: references a second, beside libCacheSim
    Simulate(simulate::Args),
    /// Hit ratios and flash writes on recorded traces
    Hits(hits::Args),
    /// The engine beside simple policies: workloads of one habit each, caches of 1 to 150 % of what they touch
    Families(hits::FamiliesArgs),
    /// Allocators: urd against centaur by the engine, latency, SSD writes and room over sizes and seeds
    Shares(shares::Args),
    /// The engine after shifts of the workload: accesses until it is as good as the best way of admission
    Phases,
}

/// Arguments for the program that measures.
#[derive(clap::Args, Debug)]
pub(crate) struct Passed {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// How the scheduler of back ends is measured.
#[derive(clap::Args, Debug)]
pub(crate) struct QosArgs {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<QosPart>,
    /// Rounds of the daemon's part; the median of each cell counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each measurement of the daemon's part
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of the disk of the daemon's part, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
}

/// A part of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum QosPart {
    /// The scheduler alone
    Scheduler,
    /// Hits of a daemon with a reservation, a limit and a weight, and without
    Daemon,
}

fn qos(args: &QosArgs) -> Result<()> {
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    if wants(QosPart::Scheduler) {
        example_of("cinnabar-driver", "qos_bench", &[])?;
    }
    if wants(QosPart::Daemon) {
        frontends::qos::run(args.rounds, args.seconds, args.size_mib)?;
    }
    Ok(())
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    e2e::binary::build_to_measure();
    match bench {
        Bench::Compare(args) => compare::run(args),
        Bench::Frontends(args) => frontends::run(args),
        Bench::Marks(args) => marks::run(args),
        Bench::Rbd(args) => rbd::run(args),
        Bench::Hybrid(args) => hybrid::run(args),
        Bench::Restart(args) => restart::run(args),
        Bench::Spc1(args) => spc1::run(args),
        Bench::Tenants(args) => tenants::run(args),
        Bench::Timed(args) => timed::run(args),
        Bench::Tls(args) => tls::run(args),
        Bench::Simulate(args) => simulate::run(args),
        Bench::Validate(args) => validate::run(args),
        Bench::Writeback(args) => writeback::run(args),
        Bench::Engine(passed) => example("engine_bench", &passed.args),
        Bench::Qos(args) => qos(args),
        Bench::Manager => example_of("cinnabar-lab", "manager_bench", &[]),
        Bench::Hits(args) => hits::run(args),
        Bench::Families(args) => hits::families(args),
        Bench::Shares(args) => shares::run(args),
        Bench::Phases => hits::phases(),
    }
}

fn example(name: &str, args: &[String]) -> Result<()> {
    example_of("cinnabar-study", name, args)
}

fn example_of(package: &str, name: &str, args: &[String]) -> Result<()> {
    let run = ["run", "--profile", "dist", "--locked", "--package", package, "--example", name];
    show(cargo(&run).arg("--").args(args)).map(|_| ())
}

/// Prints a report, and writes it to a file, too, if there is to be one.
fn publish(text: &str, output: Option<&Path>) -> Result<()> {
    println!("{text}");
    if let Some(file) = output {
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Date, machine and profile of the build, and what is measured: the first line of a report.
fn heading(what: &str) -> Result<String> {
    let date = e2e::output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let kernel = e2e::output(Command::new("uname").arg("-sr"))?;
    let cpus = std::thread::available_parallelism()?;
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, model)| model);
    let profile = e2e::binary::profile();
    let (date, kernel) = (date.trim(), kernel.trim());
    Ok(format!("{date}, {kernel}, {cpus} cores ({model}), profile {profile}; {what}\n"))
}

/// The middle one of the values, or the upper of two; no number if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The middle one of what samples have of something.
fn middle<T>(samples: &[T], value: impl Fn(&T) -> f64) -> f64 {
    median(samples.iter().map(value).collect())
}

/// Measures each cell on each side, round by round: no side is always the first. By cell, then by side.
fn in_turns<T, const SIDES: usize>(
    rounds: usize,
    cells: usize,
    mut measure: impl FnMut(usize, usize, usize) -> Result<T>,
) -> Result<Vec<[Vec<T>; SIDES]>> {
    let mut samples: Vec<_> = (0..cells).map(|_| [const { Vec::new() }; SIDES]).collect();
    for round in 0..rounds {
        for (cell, sides) in samples.iter_mut().enumerate() {
            for turn in 0..SIDES {
                let side = (round + turn) % SIDES;
                sides[side].push(measure(round, cell, side)?);
            }
        }
    }
    Ok(samples)
}

/// Reads a volume until nothing is missed: while the SSD is busy fills are skipped.
fn warm(daemon: &Daemon, name: &str, pass: impl Fn() -> Result<()>) -> Result<()> {
    let misses = || daemon.status()?.count(name, "misses");
    for _ in 0..WARMING_PASSES_MAX {
        let before = misses()?;
        pass()?;
        if misses()? == before {
            return Ok(());
        }
    }
    bail!("{name} still misses after it was read {WARMING_PASSES_MAX} times")
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn median_is_the_middle() {
        assert!((median(vec![3.0, 100.0, 1.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }
}
