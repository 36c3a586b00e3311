//! What crash safety costs a guest's writes: the same load with and without it, in one run.
//!
//! Two daemons, one with `crash_safe = false`, each with a cache on the disk and volumes in RAM
//! behind modelled latencies. They have their turns one after the other, cell by cell, so that both
//! see the same noise.
//!
//! The disk is cached: a write meets a copy on the SSD, and waits for a durable record unless its
//! region is active. *Hot* writes fall into 64 MiB at random, *zipf* ones all over the disk by that
//! distribution, *wide* ones go to each block of it once. *Uncached* ones go to blocks without a copy,
//! and need nothing. The daemon's counters say how many waited.

use crate::bench::{heading, median, middle, publish, warm};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median of each cell counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of each disk, in MiB: as many blocks as are written once at most
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Size of each cache, in MiB: 0.5 % of it may be in active regions, and 8 MiB in any case
    #[arg(long, default_value_t = 16_384)]
    cache_mib: u64,
    /// Have each durable write of the SSD take so many milliseconds more, as without power-loss
    /// protection, with `io = "threads"`
    #[arg(long, default_value_t = 0)]
    durable_ms: u64,
    /// One short round on small disks: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// Service times of the back ends, as the `sim:` back end takes them.
const BACKENDS: [&str; 3] = ["100us", "1ms", "8ms"];
const DEPTHS: [u32; 2] = [1, 32];
/// What the harness calls the cache device.
const DEVICE: &str = "cache.img";
/// Share of the throughput that must be kept.
const UNCACHED_KEPT_MIN: f64 = 0.97;
const KEPT_MIN: f64 = 0.95;
const HOT_BYTES: u64 = 64 * MIB;
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// Where writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Uncached,
    Hot,
    Zipf,
    Wide,
}

const KINDS: [Kind; 4] = [Kind::Uncached, Kind::Hot, Kind::Zipf, Kind::Wide];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Uncached => "uncached",
            Self::Hot => "hot",
            Self::Zipf => "zipf",
            Self::Wide => "wide",
        }
    }

    /// A job of fio that writes a disk of this size so.
    fn job(self, job: Fio, size: u64) -> Fio {
        match self {
            // Each block once at most: one that has just been written is in RAM, and needs no mark.
            Self::Uncached | Self::Wide => job.arg("size", size),
            Self::Hot => {
                job.arg("size", size.min(HOT_BYTES)).flag("norandommap").flag("time_based")
            }
            Self::Zipf => job
                .arg("size", size)
                .arg("random_distribution", "zipf:1.1")
                .flag("norandommap")
                .flag("time_based"),
        }
    }

    /// Share of the throughput that is to be kept.
    fn bar(self) -> Option<f64> {
        match self {
            Self::Uncached => Some(UNCACHED_KEPT_MIN),
            Self::Hot | Self::Zipf => Some(KEPT_MIN),
            Self::Wide => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    mean_us: f64,
    /// Share of the writes that waited for a record.
    waited: f64,
}

struct Side {
    is_safe: bool,
    daemon: Daemon,
    cache: Site,
    /// Holds the volumes' files.
    _disks: Site,
}

/// The cells of a side, in the order of [`cells`].
type Samples = Vec<Vec<Sample>>;

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO])?;
    let (rounds, seconds, size, cache) = if args.quick {
        (1, 1, 64 * MIB, 512 * MIB)
    } else {
        (args.rounds, args.seconds, args.size_mib * MIB, args.cache_mib * MIB)
    };
    let sides = [false, true].map(|is_safe| Side::start(is_safe, size, cache, args.durable_ms));
    let [without, with] = sides;
    let sides = [without?, with?];
    let mut samples = [vec![Vec::new(); cells().count()], vec![Vec::new(); cells().count()]];
    let mut durable = Vec::new();
    for round in 0..rounds {
        for (cell, (backend, depth, kind)) in cells().enumerate() {
            eprintln!("round {round}: {}, QD{depth}, {}", BACKENDS[backend], kind.name());
            // The time of a durable write varies with the disk's other users.
            durable.push(durable_write_us(&sides[0].cache, 1)?);
            // Neither is always the first.
            for side in if round.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
                let word = if sides[side].is_safe { "with" } else { "without" };
                let sample = sides[side]
                    .measure(backend, depth, kind, seconds, size)
                    .with_context(|| format!("{word} crash safety"))?;
                samples[side][cell].push(sample);
            }
        }
    }
    for side in sides {
        side.daemon.stop()?;
    }
    let what = format!(
        "4 KiB random writes through fio's nbd engine, {} MiB a disk, a cache of {} MiB, median of \
         {rounds} interleaved rounds of {seconds} s, durable writes {} ms slower than the disk's",
        size / MIB,
        cache / MIB,
        args.durable_ms
    );
    let text = format!("{}\n{}", heading(&what)?, report(&samples, median(durable)));
    publish(&text, args.output.as_deref())
}

/// A cache that has been in use for a while, or a block device, has no holes. In a file that has, each
/// durable write also waits until the file system has recorded what the log has grown by.
pub(super) fn write_out(file: &Path, bytes: u64) -> Result<()> {
    let mut out = std::fs::File::create_new(file)?;
    let zeros = vec![0; MIB as usize];
    for _ in 0..bytes.div_ceil(MIB) {
        out.write_all(&zeros)?;
    }
    out.set_len(bytes)?;
    out.sync_all().context("writing the cache's file out")
}

/// A library that makes durable writes of who loads it slower: the model of another SSD.
fn slow_durable_writes(site: &Site, ms: u64) -> Result<PathBuf> {
    let (source, library) = (site.path("slow.c"), site.path("slow.so"));
    std::fs::write(&source, SLOW)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", &format!("-DMS={ms}"), "-o"]);
    e2e::output(compiler.arg(&library).arg(&source))?;
    Ok(library)
}

const SLOW: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>
typedef ssize_t write_fn(int, const struct iovec *, int, off_t, int);
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    static write_fn *real;
    if (!real) real = (write_fn *)dlsym(RTLD_NEXT, \"pwritev2\");
    ssize_t written = real(fd, parts, count, at, flags);
    if (flags & RWF_DSYNC) usleep(MS * 1000);
    return written;
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return pwritev2(fd, parts, count, at, flags);
}
";

/// All cells: back end, depth, kind.
fn cells() -> impl Iterator<Item = (usize, u32, Kind)> {
    (0..BACKENDS.len()).flat_map(|backend| {
        DEPTHS.into_iter().flat_map(move |depth| KINDS.map(|kind| (backend, depth, kind)))
    })
}

/// The baseline: a durable 4 KiB write on the disk that the caches are on, one at a time.
fn durable_write_us(site: &Site, seconds: u64) -> Result<f64> {
    let job = Fio::engine("psync")
        .arg("filename", site.path("baseline").display())
        .arg("size", 64 * MIB)
        .arg("rw", "write")
        .arg("direct", 1);
    // Not into holes: those cost more.
    job.clone().arg("bs", "1M").run()?;
    let job = job.arg("sync", "dsync").arg("runtime", seconds).flag("time_based");
    Ok(job.run()?.write.mean_us)
}

impl Side {
    fn start(is_safe: bool, size: u64, bytes: u64, durable_ms: u64) -> Result<Self> {
        let cache = Site::new()?;
        let disks = Site::within(Path::new("/dev/shm"))?;
        let needed = size * BACKENDS.len() as u64 * 2;
        ensure!(
            bytes >= needed,
            "everything must fit twice, that nothing is evicted: {needed} bytes"
        );
        write_out(&cache.path(DEVICE), bytes)?;
        let mut config = Config::new(bytes)
            .cache_key(&format!("crash_safe = {is_safe}"))
            // What is in RAM needs no mark.
            .cache_key("probation = \"1MiB\"");
        for (seed, time) in (1..).zip(BACKENDS) {
            let disk = disks.filled(&format!("{time}.raw"), size, seed)?;
            let model = format!("ssd,read={time},write={time},flush={time},depth=0,bandwidth=0");
            let volume = Volume::new(time, &format!("sim:{model}:file:{}", disk.display()))
                .key("bypass_sequential = \"0\"")
                .key("bypass_large = \"0\"");
            config = config.volume(volume);
        }
        if durable_ms > 0 {
            config = config.cache_key("io = \"threads\"");
        }
        let daemon = cache.serve_under(&config, |command| {
            if durable_ms > 0 {
                command.env("LD_PRELOAD", slow_durable_writes(&cache, durable_ms)?);
            }
            Ok(())
        })?;
        Ok(Self { is_safe, daemon, cache, _disks: disks })
    }

    /// Measures one cell, and checks that it was what it should be.
    fn measure(
        &self,
        backend: usize,
        depth: u32,
        kind: Kind,
        seconds: u64,
        size: u64,
    ) -> Result<Sample> {
        let name = BACKENDS[backend];
        match kind {
            Kind::Uncached => self.daemon.command(&["volume", "invalidate", name]).map(drop)?,
            Kind::Hot | Kind::Zipf | Kind::Wide => self.warm_up(name, size)?,
        }
        let before = self.counts(name)?;
        let job = Fio::nbd(&self.cache.uri(name)).arg("rw", "randwrite").arg("iodepth", depth);
        let job = kind.job(job, size).arg("runtime", seconds);
        let outcome = job.run()?;
        let after = self.counts(name)?;
        let [written, hits, waited, spared, journal] =
            std::array::from_fn(|index| after[index] - before[index]);
        let most = |count: u64| count * 100 >= written * 95;
        let story = format!(
            "{written} blocks written, {hits} were cached, {waited} writes waited for a record, \
             {spared} in active regions did not, {journal} writes of the journal"
        );
        match kind {
            Kind::Uncached => ensure!(waited == 0 && spared == 0, "{story}"),
            Kind::Hot | Kind::Zipf => ensure!(hits > 0, "{story}"),
            Kind::Wide => ensure!(most(hits), "{story}"),
        }
        match (self.is_safe, kind) {
            (true, Kind::Wide) => ensure!(most(waited + spared) && journal > 0, "{story}"),
            (true, _) => {}
            (false, _) => ensure!(journal == 0, "{story}"),
        }
        let waited = waited as f64 / written as f64;
        Ok(Sample { iops: outcome.write.iops, mean_us: outcome.write.mean_us, waited })
    }

    /// Blocks written so far, of those cached; writes that met a copy on the SSD and waited for a
    /// record, or did not; writes of the journal.
    fn counts(&self, name: &str) -> Result<[u64; 5]> {
        let status = self.daemon.status()?;
        let count = |key| status.count(name, key);
        // Daemons of before there were regions have no such counter.
        let spared = count("region_writes").unwrap_or(0);
        let journal = status.cache("journal_writes")?;
        let [written, hits] = [count("blocks_written")?, count("write_hits")?];
        Ok([written, hits, count("invalidation_waits")?, spared, journal])
    }

    /// Reads a disk until nothing is missed, and waits until all of it is on the SSD.
    fn warm_up(&self, name: &str, size: u64) -> Result<()> {
        let job = Fio::nbd(&self.cache.uri(name)).arg("rw", "read").arg("size", size);
        let job = job.arg("bs", "128k").arg("iodepth", 16);
        warm(&self.daemon, name, || job.clone().run().map(drop))?;
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let status = self.daemon.status()?;
            let (ram, all) = (status.cache("ram_blocks")?, status.cache("cached_blocks")?);
            if ram * 100 <= all * 2 {
                return Ok(());
            }
            ensure!(start.elapsed() < SETTLE_LIMIT, "{ram} of {all} blocks stay in RAM");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn report(samples: &[Samples; 2], durable_us: f64) -> String {
    let mut table = Table::new(&[
        "back end, load, blocks",
        "IOPS, off",
        "IOPS, on",
        "kept",
        "mean us, off",
        "mean us, on",
        "waited",
        "bar",
        "",
    ]);
    for (cell, (backend, depth, kind)) in cells().enumerate() {
        let middle = |side: usize, value: fn(&Sample) -> f64| middle(&samples[side][cell], value);
        let [off, on] = [0, 1].map(|side| middle(side, |sample| sample.iops));
        let [off_us, on_us] = [0, 1].map(|side| middle(side, |sample| sample.mean_us));
        let (kept, waited) = (on / off, middle(1, |sample| sample.waited));
        let (bar, verdict) = kind.bar().map_or((String::new(), ""), |bar| {
            (format!(">= {:.0} %", bar * 100.0), if kept >= bar { "met" } else { "MISSED" })
        });
        table.row(vec![
            format!("{}, QD{depth}, {}", BACKENDS[backend], kind.name()),
            format!("{off:.0}"),
            format!("{on:.0}"),
            format!("{:.1} %", kept * 100.0),
            format!("{off_us:.0}"),
            format!("{on_us:.0}"),
            format!("{:.1} %", waited * 100.0),
            bar,
            verdict.to_owned(),
        ]);
    }
    format!(
        "{}\nA durable 4 KiB write on the cache's disk, one at a time, same run: {durable_us:.0} us.\n",
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::{Kind, Sample, cells, report};

    #[test]
    fn bars_are_judged_cell_by_cell() {
        let with = |iops| vec![vec![Sample { iops, mean_us: 50.0, waited: 0.1 }]; cells().count()];
        let verdicts = |text: &str| {
            let ends = |word| text.lines().filter(|line| line.trim_end().ends_with(word)).count();
            (ends("met |"), ends("MISSED |"))
        };
        let judged = cells().filter(|(_, _, kind)| *kind != Kind::Wide).count();
        let same = report(&[with(100.0), with(98.0)], 80.0);
        assert_eq!(verdicts(&same), (judged, 0), "{same}");
        let slow = report(&[with(100.0), with(50.0)], 80.0);
        assert_eq!(verdicts(&slow), (0, judged), "{slow}");
        // 95 % is enough for writes of cached blocks only.
        let between = report(&[with(100.0), with(95.0)], 80.0);
        assert_eq!(verdicts(&between), (judged * 2 / 3, judged / 3), "{between}");
    }
}
