//! Writes of guests in write-back, acknowledged from the log's device or from memory, against
//! write-through, in one run.
//!
//! One daemon with its cache and its write log on the disk; volumes in RAM behind modelled back ends.
//! Each cell is a volume of its own, added for it and removed after it with what it left in the log, so
//! that no cell pays for another one's destage. Modes have their turns cell by cell.
//!
//! *Bursts* are short against the log: what write-back is for. *Overload* goes on until the log has
//! been filled several times, and counts until the back end has everything. *Misses* are a guest's reads
//! past the cache while what it has written is brought to the back end.

mod misses;

use crate::bench::{heading, in_turns, middle, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median of each cell counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each burst
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Writes in each overload, in MiB: the log has a quarter of that
    #[arg(long, default_value_t = 256)]
    overload_mib: u64,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// One short round: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// What can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Writes that are few for the log
    Bursts,
    /// Writes that are more than the back end takes
    Overload,
    /// Reads past the cache while writes reach the back end
    Misses,
}

/// Back ends, and what a write takes there.
const BACKENDS: [(&str, &str); 3] =
    [("hdd", "hdd"), ("filer", "filer"), ("filer, 1 ms a write", "filer,write=1ms")];
/// Modes, and when writes are acknowledged.
const MODES: [(&str, &str); 3] =
    [("write-through", "durable"), ("write-back", "durable"), ("write-back", "memory")];
const DISK: u64 = 512 * MIB;
/// Writes of a burst at most: far less than the log holds.
const BURST: u64 = 12_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Qd1,
    Qd32,
    /// A flush after each write.
    Flushed,
}

const LOADS: [Load; 3] = [Load::Qd1, Load::Qd32, Load::Flushed];

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Self::Qd1 => "QD1",
            Self::Qd32 => "QD32",
            Self::Flushed => "write + flush",
        }
    }

    fn job(self, uri: &str, round: usize) -> Fio {
        let job = Fio::nbd(uri)
            .arg("rw", "randwrite")
            .arg("bs", "4k")
            .arg("size", DISK)
            .arg("randseed", round)
            .arg("number_ios", BURST)
            .flag("norandommap");
        match self {
            Self::Qd1 => job.arg("iodepth", 1),
            Self::Qd32 => job.arg("iodepth", 32),
            Self::Flushed => job.arg("iodepth", 1).arg("fsync", 1),
        }
    }
}

/// One measurement of a burst, in us.
#[derive(Clone, Copy, Debug)]
struct Burst {
    mean_us: f64,
    p99_us: f64,
    /// Durable writes of the log's device for each flush of the guest.
    commits: f64,
}

#[derive(Clone, Copy, Debug)]
struct Overload {
    /// Writes a second, until the back end has all of them.
    per_second: f64,
    max_ms: f64,
}

struct Bench {
    daemon: Daemon,
    site: Site,
    disk: PathBuf,
    _disks: Site,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO])?;
    let (rounds, seconds, overload) = if args.quick {
        (1, 1, 32 * MIB)
    } else {
        (args.rounds, args.seconds, args.overload_mib * MIB)
    };
    let mut text = heading(&format!(
        "4 KiB random writes through fio's nbd engine, median of {rounds} interleaved rounds"
    ))?;
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    if wants(Part::Bursts) {
        text.push_str(&bursts(rounds, seconds)?);
    }
    if wants(Part::Overload) {
        text.push_str(&overloads(rounds, overload)?);
    }
    if wants(Part::Misses) {
        text.push_str(&misses::table(rounds, seconds)?);
    }
    publish(&text, args.output.as_deref())
}

fn bursts(rounds: usize, seconds: u64) -> Result<String> {
    let bench = Bench::start(1024 * MIB)?;
    let cells: Vec<(usize, Load)> =
        (0..BACKENDS.len()).flat_map(|backend| LOADS.map(|load| (backend, load))).collect();
    let samples = in_turns(rounds, cells.len(), |round, cell, mode| {
        let (((name, model), load), mode) = ((BACKENDS[cells[cell].0], cells[cell].1), MODES[mode]);
        eprintln!("round {round}: {name}, {}", load.name());
        bench.burst(model, mode, load, seconds, round).with_context(|| format!("{mode:?}"))
    })?;
    bench.daemon.stop()?;
    let mut table = Table::new(&[
        "bursts",
        "write-through, mean us",
        "p99",
        "write-back, mean us",
        "p99",
        "mean, x",
        "durable writes a commit",
        "from memory, mean us",
        "p99",
        "mean, x",
    ]);
    for ((backend, load), [through, back, memory]) in cells.iter().zip(&samples) {
        let (through_mean, back_mean) =
            (middle(through, |b| b.mean_us), middle(back, |b| b.mean_us));
        let memory_mean = middle(memory, |b| b.mean_us);
        table.row(vec![
            format!("{}, {}", BACKENDS[*backend].0, load.name()),
            format!("{through_mean:.0}"),
            format!("{:.0}", middle(through, |b| b.p99_us)),
            format!("{back_mean:.0}"),
            format!("{:.0}", middle(back, |b| b.p99_us)),
            format!("{:.3}", back_mean / through_mean),
            match load {
                Load::Flushed => format!("{:.2}", middle(back, |b| b.commits)),
                Load::Qd1 | Load::Qd32 => "-".to_owned(),
            },
            format!("{memory_mean:.0}"),
            format!("{:.0}", middle(memory, |b| b.p99_us)),
            format!("{:.3}", memory_mean / through_mean),
        ]);
    }
    Ok(format!("\n{}", table.render()))
}

fn overloads(rounds: usize, bytes: u64) -> Result<String> {
    let bench = Bench::start((bytes / 4).max(16 * MIB))?;
    let cells = [("no flush", None), ("a flush every 32 writes", Some(32))];
    let samples = in_turns(rounds, cells.len(), |round, cell, mode| {
        let ((name, fsync), mode) = (cells[cell], MODES[mode]);
        eprintln!("round {round}: overload, {name}");
        bench.overload(mode, fsync, bytes, round).with_context(|| format!("{mode:?}"))
    })?;
    bench.daemon.stop()?;
    let mut table = Table::new(&[
        "overload, filer with 1 ms a write, QD32",
        "write-through, writes/s",
        "longest ms",
        "write-back, writes/s",
        "longest ms",
        "writes/s, x",
        "from memory, writes/s",
        "longest ms",
        "writes/s, x",
    ]);
    for ((name, _), [through, back, memory]) in cells.iter().zip(&samples) {
        let rates = [through, back, memory].map(|side| middle(side, |o| o.per_second));
        table.row(vec![
            (*name).to_owned(),
            format!("{:.0}", rates[0]),
            format!("{:.0}", middle(through, |o| o.max_ms)),
            format!("{:.0}", rates[1]),
            format!("{:.0}", middle(back, |o| o.max_ms)),
            format!("{:.2}", rates[1] / rates[0]),
            format!("{:.0}", rates[2]),
            format!("{:.0}", middle(memory, |o| o.max_ms)),
            format!("{:.2}", rates[2] / rates[0]),
        ]);
    }
    Ok(format!("\n{}", table.render()))
}

impl Bench {
    fn start(log_bytes: u64) -> Result<Self> {
        Self::start_with(log_bytes, &[])
    }

    /// With these lines in `[cache]`.
    fn start_with(log_bytes: u64, keys: &[&str]) -> Result<Self> {
        let (site, disks) = (Site::new()?, Site::within(Path::new("/dev/shm"))?);
        let disk = disks.sparse("disk.raw", DISK)?;
        // No holes in either: a durable write into one also waits for the file system's records.
        super::marks::write_out(&site.path("cache.img"), 1024 * MIB)?;
        super::marks::write_out(&site.path("writes.img"), log_bytes)?;
        let memory = disks.path("log.memory");
        let config = Config::new(1024 * MIB)
            .cache_key("write_log = \"writes.img\"")
            .cache_key(&format!("write_memory = \"{}\"", memory.display()));
        let config = keys.iter().fold(config, |config, key| config.cache_key(key));
        // Some volume must be there.
        let idle = disks.sparse("idle.raw", MIB)?;
        let config = config.volume(Volume::new("idle", &format!("file:{}", idle.display())));
        let daemon = site.serve(&config)?;
        Ok(Self { daemon, site, disk, _disks: disks })
    }

    /// With a volume for one measurement.
    fn with<T>(
        &self,
        model: &str,
        (mode, ack): (&str, &str),
        work: impl Fn(&str) -> Result<T>,
    ) -> Result<T> {
        let backend = format!("sim:{model}:file:{}", self.disk.display());
        let socket = format!("unix:{}", self.site.path("cell.sock").display());
        self.daemon.command(&[
            "volume",
            "add",
            "cell",
            "--backend",
            &backend,
            "--mode",
            mode,
            "--ack",
            ack,
            "--nbd",
            &socket,
        ])?;
        let result = work(&self.site.uri("cell"));
        self.daemon.command(&["volume", "remove", "cell", "--force", "--discard-dirty"])?;
        result
    }

    fn burst(
        &self,
        model: &str,
        mode: (&str, &str),
        load: Load,
        seconds: u64,
        round: usize,
    ) -> Result<Burst> {
        self.with(model, mode, |uri| {
            let before = self.commits()?;
            let outcome = load.job(uri, round).arg("runtime", seconds).run()?;
            let (mut mean_us, p99_us) = (outcome.write.mean_us, outcome.write.p99_us);
            let commits = (self.commits()? - before) as f64 / outcome.write.operations as f64;
            if load == Load::Flushed {
                // A write and its flush, one after the other.
                mean_us = 1e6 / outcome.write.iops;
            }
            Ok(Burst { mean_us, p99_us, commits })
        })
    }

    /// Durable writes of the log's device so far; the records of what back ends have are not commits.
    fn commits(&self) -> Result<u64> {
        let status = self.daemon.glance()?;
        let of = |key: &str| status.0["cache"]["write_log"][key].as_u64().context("no such count");
        Ok(of("durable_chunks")? + of("flushes")?)
    }

    fn overload(
        &self,
        mode: (&str, &str),
        fsync: Option<u64>,
        bytes: u64,
        round: usize,
    ) -> Result<Overload> {
        self.with("filer,write=1ms", mode, |uri| {
            let mut job = Fio::nbd(uri)
                .arg("rw", "randwrite")
                .arg("bs", "4k")
                .arg("size", DISK)
                .arg("io_size", bytes)
                .arg("iodepth", 32)
                .arg("randseed", round)
                .flag("norandommap");
            if let Some(writes) = fsync {
                job = job.arg("fsync", writes);
            }
            let begun = Instant::now();
            let outcome = job.run()?;
            self.daemon.command(&["volume", "flush", "cell"])?;
            let took_s = begun.elapsed().as_secs_f64();
            Ok(Overload {
                per_second: outcome.write.operations as f64 / took_s,
                max_ms: outcome.write.max_us / 1000.0,
            })
        })
    }
}
