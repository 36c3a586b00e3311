//! What crash safety costs a guest's writes: the same load with and without it, in one run.
//!
//! Two daemons, one with `crash_safe = false`, each with a cache on the disk and volumes in RAM
//! behind modelled latencies. They have their turns one after the other, cell by cell, so that both
//! see the same noise.
//!
//! *Write hits* go to blocks with a copy on the SSD: each needs a durable mark before it is sent to
//! the back end. *Uncached* writes go to blocks without such a copy, and need none. The daemon's
//! counters verify both.

use crate::bench::{heading, median, middle, publish, warm};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::io::Write;
use std::path::{Path, PathBuf};
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
    /// One short round on small disks: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// Service times of the back ends, as the `sim:` back end takes them.
const BACKENDS: [&str; 3] = ["100us", "1ms", "8ms"];
/// The one whose write hits have a bar of their own.
const SLOWEST: usize = 2;
const DEPTHS: [u32; 2] = [1, 32];
/// What the harness calls the cache device.
const DEVICE: &str = "cache.img";
/// Share of the throughput that must be kept.
const UNCACHED_KEPT_MIN: f64 = 0.97;
const HITS_KEPT_MIN: f64 = 0.90;
/// More latency, in durable writes of the SSD, where a back end is quick.
const DURABLE_WRITES_MAX: f64 = 3.0;
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// Whom a write meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hits,
    Uncached,
}

const KINDS: [Kind; 2] = [Kind::Uncached, Kind::Hits];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Hits => "write hits",
            Self::Uncached => "uncached",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    mean_us: f64,
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
    let (rounds, seconds, size) = if args.quick {
        (1, 1, 64 * MIB)
    } else {
        (args.rounds, args.seconds, args.size_mib * MIB)
    };
    let sides = [Side::start(false, size)?, Side::start(true, size)?];
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
        "4 KiB random writes through fio's nbd engine, {} MiB a disk, median of {rounds} \
         interleaved rounds of {seconds} s",
        size / MIB
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
    fn start(is_safe: bool, size: u64) -> Result<Self> {
        let cache = Site::new()?;
        let disks = Site::within(Path::new("/dev/shm"))?;
        // Everything fits twice, that nothing is evicted.
        let bytes = size * BACKENDS.len() as u64 * 2 + 64 * MIB;
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
        let daemon = cache.serve(&config)?;
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
            Kind::Hits => self.warm_up(name, size)?,
            Kind::Uncached => self.daemon.command(&["volume", "invalidate", name]).map(drop)?,
        }
        let before = self.counts(name)?;
        // In an order that meets each block once at most: a block that has just been written is in
        // RAM, and needs no mark.
        let outcome = Fio::nbd(&self.cache.uri(name))
            .arg("rw", "randwrite")
            .arg("iodepth", depth)
            .arg("size", size)
            .arg("runtime", seconds)
            .run()?;
        let after = self.counts(name)?;
        let [written, hits, marked, journal] =
            std::array::from_fn(|index| after[index] - before[index]);
        let most = |count: u64| count * 100 >= written * 95;
        let story = format!(
            "{written} blocks written, {hits} were cached, {marked} writes marked, {journal} writes \
             of the journal"
        );
        match kind {
            Kind::Hits => ensure!(most(hits), "{story}"),
            Kind::Uncached => ensure!(hits == 0 && marked == 0, "{story}"),
        }
        match (self.is_safe, kind) {
            (true, Kind::Hits) => ensure!(most(marked) && journal > 0, "{story}"),
            (true, Kind::Uncached) => {}
            (false, _) => ensure!(journal == 0, "{story}"),
        }
        Ok(Sample { iops: outcome.write.iops, mean_us: outcome.write.mean_us })
    }

    /// Blocks written so far, of those cached, writes that met a copy on the SSD, and writes of the
    /// journal that marks are in.
    fn counts(&self, name: &str) -> Result<[u64; 4]> {
        let status = self.daemon.status()?;
        let count = |key| status.count(name, key);
        let journal = status.cache("journal_writes")?;
        Ok([count("blocks_written")?, count("write_hits")?, count("invalidation_waits")?, journal])
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
        "more, in durable writes",
        "bar",
        "",
    ]);
    for (cell, (backend, depth, kind)) in cells().enumerate() {
        let middle = |side: usize, value: fn(&Sample) -> f64| middle(&samples[side][cell], value);
        let [off, on] = [0, 1].map(|side| middle(side, |sample| sample.iops));
        let [off_us, on_us] = [0, 1].map(|side| middle(side, |sample| sample.mean_us));
        let (kept, more) = (on / off, (on_us - off_us) / durable_us);
        let (bar, is_met) = match kind {
            Kind::Uncached => at_least(kept, UNCACHED_KEPT_MIN),
            Kind::Hits if backend == SLOWEST => at_least(kept, HITS_KEPT_MIN),
            Kind::Hits => (format!("<= {DURABLE_WRITES_MAX:.0} more"), more <= DURABLE_WRITES_MAX),
        };
        table.row(vec![
            format!("{}, QD{depth}, {}", BACKENDS[backend], kind.name()),
            format!("{off:.0}"),
            format!("{on:.0}"),
            format!("{:.1} %", kept * 100.0),
            format!("{off_us:.0}"),
            format!("{on_us:.0}"),
            format!("{more:.2}"),
            bar,
            if is_met { "met" } else { "MISSED" }.to_owned(),
        ]);
    }
    format!(
        "{}\nA durable 4 KiB write on the cache's disk, one at a time, same run: {durable_us:.0} us.\n",
        table.render()
    )
}

fn at_least(kept: f64, least: f64) -> (String, bool) {
    (format!(">= {:.0} %", least * 100.0), kept >= least)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Sample, cells, report};

    #[test]
    fn bars_are_judged_cell_by_cell() {
        let with = |iops, mean_us| vec![vec![Sample { iops, mean_us }]; cells().count()];
        let verdicts = |text: &str| {
            let ends = |word| text.lines().filter(|line| line.trim_end().ends_with(word)).count();
            (ends("met |"), ends("MISSED |"))
        };
        let same = report(&[with(100.0, 50.0), with(98.0, 51.0)], 80.0);
        assert_eq!(verdicts(&same), (cells().count(), 0), "{same}");
        let slow = report(&[with(100.0, 50.0), with(50.0, 350.0)], 80.0);
        assert_eq!(verdicts(&slow), (0, cells().count()), "{slow}");
        // 95 % is enough for hits only.
        let hits = cells().filter(|(_, _, kind)| *kind == Kind::Hits).count();
        let between = report(&[with(100.0, 50.0), with(95.0, 52.0)], 80.0);
        assert_eq!(verdicts(&between), (hits, cells().count() - hits), "{between}");
    }
}
