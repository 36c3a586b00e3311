//! What the cache does for a mixed workload on a slow disk, in two minutes.
//!
//! `cargo xtask demo`; with `--ceph` the disk is an RBD image on the slow pool of a throw-away cluster. With
//! `--screenshots` nothing is measured: the daemon's own demonstration runs, and the page is photographed.

use crate::install;
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::ceph::{self, Cluster};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, fio::Outcome, page, tools};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seconds for each of the two measurements
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds of the same workload to warm the cache up
    #[arg(long, default_value_t = 30)]
    warm_up: u64,
    /// Put the disk on a throw-away Ceph cluster instead of a modelled one
    #[arg(long)]
    ceph: bool,
    /// Instead, leave screenshots of the page of `serve --demo` in target/page-shots
    #[arg(long, conflicts_with = "ceph")]
    screenshots: bool,
}

const NAME: &str = "demo";
/// Twice the cache; the hot part of the workload fits.
const DISK: u64 = 512 * MIB;
/// Half of the disk.
const CACHE: u64 = 256 * MIB;
/// What the disk is behind.
const MODEL: &str = "sim:filer,seed=1";
/// How long the machines of the demonstration work before pictures are taken: shares have moved by then.
const WORK: Duration = Duration::from_secs(75);
/// How often the warm-up shows where it is.
const STEP: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.screenshots {
        return screenshots();
    }
    install::debian(&[tools::FIO])?;
    if args.ceph {
        install::debian(ceph::TOOLS)?;
    }
    println!("building the daemon");
    e2e::binary::cinnabar()?;
    let site = Site::new()?;
    // Not sparse: blocks that are scattered as they were written take a minute to delete.
    let disk = site.filled("disk.raw", DISK, 1)?;
    // Behind the daemon, so that it is there until the daemon has ended.
    let port = e2e::daemon::free_port()?;
    let (daemon, cluster) = if args.ceph {
        let (daemon, cluster) = serve_ceph(&site, &disk, port)?;
        (daemon, Some(cluster))
    } else {
        let volume = Volume::new(NAME, &format!("{MODEL}:file:disk.raw"));
        (site.serve(&config(port).volume(volume))?, None)
    };
    let status = daemon.status()?;
    println!(
        "the daemon: process {}, a disk of {} MiB ({}), a cache of {} MiB",
        daemon.running.pid(),
        status.count(NAME, "size_bytes")? / MIB,
        status.volume(NAME)?["backend"].as_str().unwrap_or_default(),
        status.cache("capacity_blocks")? * 4096 / MIB,
    );
    println!("its page, until this ends: http://127.0.0.1:{port}/ui/");
    println!("fio: 4 KiB at random (zipf 1.2), 70 % reads, 30 % writes, 16 at a time");

    println!("\nwithout cache (mode pass-through), {} s", args.seconds);
    set_mode(&daemon, "pass-through")?;
    let without = measure(&daemon, &site, args.seconds, 0)?;
    println!("\nwith cache (mode write-through), {} s after a warm-up", args.seconds);
    set_mode(&daemon, "write-through")?;
    let with = measure(&daemon, &site, args.seconds, args.warm_up)?;
    daemon.stop()?;
    drop(cluster);
    println!("\n{}", compare(&without, &with).render());
    println!(
        "A write is acknowledged when the disk has it (write-through): it gets faster only by"
    );
    println!("the reads that no longer stand in its way.");
    Ok(())
}

/// A cache, and the page at `port`.
fn config(port: u16) -> Config {
    Config::new(CACHE).http(port).control_key("api = true")
}

/// Runs the daemon's own demonstration for a while, and takes pictures of its page.
fn screenshots() -> Result<()> {
    install::debian(&[tools::PYTHON3, tools::CHROMIUM])?;
    println!("building the daemon");
    e2e::binary::cinnabar()?;
    let site = Site::in_memory()?;
    let daemon = site.serve_demo()?;
    println!("the demonstration at {}, for {} s", page::demo_address(&daemon)?, WORK.as_secs());
    thread::sleep(WORK);
    let folder = page::shots(&site, &page::demo_address(&daemon)?, "database")?;
    println!("pictures: {}", folder.display());
    daemon.stop()
}

/// A cluster, an image on its slow pool that holds what `disk` does, and a daemon with the image.
fn serve_ceph(site: &Site, disk: &Path, port: u16) -> Result<(Daemon, Cluster)> {
    println!("starting a Ceph cluster: one monitor, two quick OSDs, two slow ones");
    let cluster = Cluster::start()?;
    let image = format!("{}/{NAME}", ceph::SLOW);
    println!("filling {image}: {} MiB", DISK / MIB);
    cluster.rbd(&["import", "--no-progress", disk.to_str().context("plain text")?, &image])?;
    let volume = Volume::new(NAME, &cluster.backend(&image));
    let daemon = site.serve(&config(port).volume(volume))?;
    Ok((daemon, cluster))
}

fn set_mode(daemon: &Daemon, mode: &str) -> Result<()> {
    daemon.command(&["volume", "set", NAME, "--mode", mode]).map(|_| ())
}

struct Side {
    load: Outcome,
    blocks_read: u64,
    hits: u64,
    backend_reads: u64,
}

/// Counters of the daemon at one moment: blocks read, of those from the cache, back-end reads.
#[derive(Clone, Copy)]
struct Counters([u64; 3]);

impl Counters {
    fn now(daemon: &Daemon) -> Result<Self> {
        let status = daemon.status()?;
        let count = |key| status.count(NAME, key);
        Ok(Self([count("blocks_read")?, count("read_hits")?, count("backend_reads")?]))
    }

    fn since(self, earlier: Self) -> [u64; 3] {
        std::array::from_fn(|index| self.0[index] - earlier.0[index])
    }
}

/// One fio process for warm-up and measurement: its hot blocks stay the same, its requests don't.
fn measure(daemon: &Daemon, site: &Site, seconds: u64, warm_up: u64) -> Result<Side> {
    let job = Fio::nbd(&site.uri(NAME))
        .arg("rw", "randrw")
        .arg("rwmixread", 70)
        .arg("random_distribution", "zipf:1.2")
        .arg("randseed", 1)
        .arg("iodepth", 16)
        .flag("time_based")
        .arg("ramp_time", warm_up)
        .arg("runtime", seconds);
    let fio = thread::spawn(move || job.run());
    let start = Instant::now();
    let mut before = Counters::now(daemon)?;
    while start.elapsed() < Duration::from_secs(warm_up) {
        thread::sleep(STEP.min(Duration::from_secs(warm_up).saturating_sub(start.elapsed())));
        let now = Counters::now(daemon)?;
        let [read, hits, _] = now.since(before);
        println!("  warming up: {:.1} % hits", percent(hits, read));
        before = now;
    }
    let load = fio.join().ok().context("fio's thread ended early")??;
    let [blocks_read, hits, backend_reads] = Counters::now(daemon)?.since(before);
    Ok(Side { load, blocks_read, hits, backend_reads })
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn compare(without: &Side, with: &Side) -> Table {
    let mut table = Table::new(&["", "without cache", "with cache", "change"]);
    let mut row = |name: &str, digits: usize, value: &dyn Fn(&Side) -> f64| {
        let (before, after) = (value(without), value(with));
        let change = match before {
            0.0 => String::new(),
            _ => format!("{:+.0} %", (after / before - 1.0) * 100.0),
        };
        let cells = [before, after].map(|value| format!("{value:.digits$}"));
        table.row([vec![name.to_owned()], cells.to_vec(), vec![change]].concat());
    };
    row("latency of all, mean (us)", 0, &|side| side.load.mean_us());
    row("reads, mean (us)", 0, &|side| side.load.read.mean_us);
    row("reads, p99 (us)", 0, &|side| side.load.read.p99_us);
    row("writes, mean (us)", 0, &|side| side.load.write.mean_us);
    row("writes, p99 (us)", 0, &|side| side.load.write.p99_us);
    row("IOPS", 0, &|side| side.load.iops());
    row("back-end reads in 100 blocks read", 1, &|side| {
        percent(side.backend_reads, side.blocks_read)
    });
    row("hit ratio of reads (%)", 1, &|side| percent(side.hits, side.blocks_read));
    table
}
