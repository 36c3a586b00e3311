//! A cache that becomes larger and smaller under load: how long it takes, what of the hits stays, and what
//! a guest's read waits at most meanwhile.
//!
//! Two volumes behind one daemon, all on one disk. *read* holds a pattern that says where a block
//! belongs; it is read at random, so its hits are in proportion to the cache, and each read is compared.
//! *rewritten* is written and read back with checksums all the time, so that a stale block would show.

use super::{heading, publish};
use crate::install;
use crate::table::Table;
use anyhow::Result;
use e2e::{Config, Daemon, Fio, MIB, Site, Status, Volume, tools};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Size of the cache to begin with, in MiB; then twice that, then half of it. The volumes take three
    /// times as much room beside it
    #[arg(long, default_value_t = 8192)]
    size_mib: u64,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Write the table to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// Parts of the first size, in per cent.
const READ_PERCENT: u64 = 250;
const REWRITTEN_PERCENT: u64 = 25;
/// Most bytes of a round: it is read back at its end.
const REWRITTEN_BYTES_MAX: u64 = 512 * MIB;

/// Reads of some time.
#[derive(Clone, Copy, Debug)]
struct Window {
    hit_share: f64,
    longest_ms: f64,
}

struct Load {
    daemon: Daemon,
    site: Site,
    read_bytes: u64,
    rewritten_bytes: u64,
    seconds: u64,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO])?;
    let first = args.size_mib;
    let load = Load::start(first, args.seconds)?;
    load.fill()?;
    let ends = AtomicBool::new(false);
    let table = thread::scope(|scope| {
        let rewrites = scope.spawn(|| {
            let mut rounds = 0;
            while !ends.load(Ordering::Relaxed) {
                load.rewrite(rounds)?;
                rounds += 1;
            }
            anyhow::Ok(rounds)
        });
        let table = load.measure(&[first, 2 * first, first / 2]);
        ends.store(true, Ordering::Relaxed);
        let rounds = rewrites.join().expect("the job does not panic")?;
        anyhow::Ok(format!("{}\n{rounds} rounds of writes verified meanwhile\n", table?))
    })?;
    load.daemon.stop()?;
    let what = "4 KiB random reads at QD16 through fio's nbd engine, each compared, beside writes read back";
    let text = format!("{}\n{table}", heading(what)?);
    publish(&text, args.output.as_deref())
}

impl Load {
    fn start(first: u64, seconds: u64) -> Result<Self> {
        let site = Site::new()?;
        let read_bytes = first * MIB * READ_PERCENT / 100;
        let rewritten_bytes = first * MIB * REWRITTEN_PERCENT / 100;
        site.sparse("read.raw", read_bytes)?;
        site.sparse("rewritten.raw", rewritten_bytes)?;
        let config = Config::new(first * MIB)
            .cache_key(&format!("size_max = \"{}MiB\"", 2 * first))
            .volume(Volume::new("read", "file:read.raw"))
            .volume(Volume::new("rewritten", "file:rewritten.raw"));
        let daemon = site.serve(&config)?;
        Ok(Self { daemon, site, read_bytes, rewritten_bytes, seconds })
    }

    /// The pattern, written once.
    fn fill(&self) -> Result<()> {
        eprintln!("filling {} MiB", self.read_bytes / MIB);
        let job = Fio::engine("psync").arg("filename", self.site.path("read.raw").display());
        let job = patterned(job).arg("rw", "write").arg("size", self.read_bytes);
        job.arg("do_verify", 0).run()?;
        Ok(())
    }

    fn reader(&self) -> Fio {
        Fio::nbd(&self.site.uri("read"))
            .arg("rw", "randread")
            .arg("size", self.read_bytes)
            .arg("iodepth", 16)
    }

    fn rewrite(&self, round: u64) -> Result<()> {
        Fio::nbd(&self.site.uri("rewritten"))
            .arg("rw", "randwrite")
            .arg("size", self.rewritten_bytes)
            .arg("io_size", self.rewritten_bytes.min(REWRITTEN_BYTES_MAX))
            .arg("bsrange", "4k-64k")
            .arg("rate", "20m")
            .arg("iodepth", 4)
            .arg("verify", "crc32c")
            .arg("verify_fatal", 1)
            .arg("verify_backlog", 256)
            .arg("randseed", round)
            .run()?;
        Ok(())
    }

    /// Blocks of *read* that were read, and found.
    fn counts(&self) -> Result<(u64, u64)> {
        let status: Status = self.daemon.glance()?;
        Ok((status.count("read", "blocks_read")?, status.count("read", "read_hits")?))
    }

    fn window(&self) -> Result<Window> {
        let before = self.counts()?;
        let job = patterned(self.reader())
            .arg("runtime", self.seconds)
            .flag("time_based")
            .flag("norandommap");
        let outcome = job.run()?;
        let after = self.counts()?;
        let hit_share = (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64;
        Ok(Window { hit_share, longest_ms: outcome.read.max_us / 1000.0 })
    }

    /// All of it, three times: what was missed has earned its place.
    fn warm(&self) -> Result<()> {
        for _ in 0..3 {
            self.reader().arg("bs", "64k").run()?;
        }
        Ok(())
    }

    fn measure(&self, sizes: &[u64]) -> Result<String> {
        let mut table = Table::new(&[
            "cache",
            "resized in, s",
            "longest read meanwhile, ms",
            "room for",
            "hits before",
            "hits after",
            "hits, warm",
        ]);
        for (number, size) in sizes.iter().enumerate() {
            let before = if number == 0 { None } else { Some(self.window()?) };
            eprintln!("{size} MiB");
            let (took, meanwhile) = thread::scope(|scope| {
                let reads = scope.spawn(|| self.window());
                thread::sleep(Duration::from_secs(1));
                let begun = Instant::now();
                self.daemon.command(&["cache", "resize", &format!("{size}MiB")])?;
                let took = begun.elapsed().as_secs_f64();
                let reads = reads.join().expect("the job does not panic")?;
                anyhow::Ok((took, reads))
            })?;
            let after = self.window()?;
            self.warm()?;
            let warm = self.window()?;
            let room = (size * MIB) as f64 / (self.read_bytes + self.rewritten_bytes) as f64;
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            table.row(vec![
                format!("{size} MiB"),
                format!("{took:.2}"),
                format!("{:.1}", meanwhile.longest_ms),
                percent(room.min(1.0)),
                before.map_or("-".to_owned(), |window| percent(window.hit_share)),
                percent(after.hit_share),
                percent(warm.hit_share),
            ]);
        }
        Ok(table.render())
    }
}

/// Each block holds its own offset.
fn patterned(job: Fio) -> Fio {
    job.arg("verify", "pattern")
        .arg("verify_pattern", "%o")
        .arg("verify_interval", 4096)
        .arg("verify_fatal", 1)
}
