//! What TLS costs an NBD client: the same disk, wholly cached, over TCP without it and with it, in turns under one
//! daemon.
//!
//! The client encrypts, too, on the same processors: operations a second are of both, processor time is the
//! daemon's.

use super::pages::warm;
use super::{heading, median, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Result, ensure};
use e2e::tls::{Authority, For};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::path::{Path, PathBuf};

/// Volumes: without TLS, and with it.
const NAMES: [&str; 2] = ["plain", "tls"];
/// Bytes a read, and reads at a time.
const LOADS: [(u64, u32); 3] = [(4 << 10, 1), (4 << 10, 32), (128 << 10, 8)];

/// How to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median counts
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of the disk, in MiB
    #[arg(long, default_value_t = 128)]
    size_mib: u64,
    /// Write the table to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    /// CPU time of the daemon, in us a read.
    cpu_us: f64,
    /// Mean latency as the client sees it.
    latency_us: f64,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO, tools::OPENSSL])?;
    e2e::binary::cinnabar()?;
    let site = Site::within(Path::new("/dev/shm"))?;
    let size = args.size_mib * MIB;
    site.filled("disk.raw", size, 1)?;
    let ours = Authority::new(&site, "ours")?;
    let server = ours.sign("cache.example", For::Server, &ours)?;
    let client = ours.sign("host-a", For::Client, &ours)?;
    let mut config = Config::new(size * 3 + 64 * MIB).section(&ours.section(&server));
    let [plain, tls] = [e2e::daemon::free_port()?, e2e::daemon::free_port()?];
    for (name, port, needs) in [(NAMES[0], plain, "none"), (NAMES[1], tls, "require")] {
        let volume = Volume::new(name, "file:disk.raw")
            .at(&format!("tcp:127.0.0.1:{port}"))
            .key("read_only = true")
            .key("bypass_sequential = \"0\"")
            .key(&format!("nbd_tls = \"{needs}\""));
        config = config.volume(volume);
    }
    let uris = [
        format!("nbd://127.0.0.1:{plain}/{}", NAMES[0]),
        format!("nbds://127.0.0.1:{tls}/{}?tls-certificates={}", NAMES[1], client.display()),
    ];
    let daemon = site.serve(&config)?;
    for (name, uri) in NAMES.into_iter().zip(&uris) {
        warm(&daemon, uri, name)?;
    }
    let mut samples = vec![[const { Vec::new() }; 2]; LOADS.len()];
    for _ in 0..args.rounds {
        for (load, row) in LOADS.into_iter().zip(&mut samples) {
            for (at, uri) in uris.iter().enumerate() {
                row[at].push(measure(&daemon, uri, NAMES[at], load, args.seconds)?);
            }
        }
    }
    daemon.stop()?;
    let what = format!(
        "random reads, all hits, over TCP, median of {} interleaved rounds of {} s",
        args.rounds, args.seconds
    );
    publish(&(heading(&what)? + "\n" + &table(&samples)), args.output.as_deref())
}

fn measure(daemon: &Daemon, uri: &str, name: &str, load: (u64, u32), s: u64) -> Result<Sample> {
    let misses = daemon.status()?.count(name, "misses")?;
    let cpu = daemon.running.cpu()?;
    let seen = Fio::nbd(uri)
        .arg("rw", "randread")
        .arg("bs", load.0)
        .arg("iodepth", load.1)
        .flag("time_based")
        .arg("runtime", s)
        .run()?;
    let cpu = daemon.running.cpu()?.saturating_sub(cpu);
    ensure!(daemon.status()?.count(name, "misses")? == misses, "a miss where all should be cached");
    let cpu_us = cpu.as_secs_f64() * 1e6 / seen.read.operations.max(1) as f64;
    Ok(Sample { iops: seen.read.iops, cpu_us, latency_us: seen.read.mean_us })
}

fn table(samples: &[[Vec<Sample>; 2]]) -> String {
    let mut table =
        Table::new(&["read", "at a time", "", "IOPS", "MB/s", "latency, us", "daemon, us a read"]);
    for ((bytes, depth), row) in LOADS.into_iter().zip(samples) {
        for (name, samples) in ["plain", "TLS"].into_iter().zip(row) {
            let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
            let iops = of(|sample| sample.iops);
            table.row(vec![
                format!("{} KiB", bytes >> 10),
                depth.to_string(),
                name.into(),
                format!("{iops:.0}"),
                format!("{:.0}", iops * bytes as f64 / 1e6),
                format!("{:.0}", of(|sample| sample.latency_us)),
                format!("{:.1}", of(|sample| sample.cpu_us)),
            ]);
        }
    }
    table.render()
}
