//! What TLS costs an NBD client: the same disk, wholly cached, over TCP without it and with it, in turns under one
//! daemon.
//!
//! The client encrypts, too, on the same processors: operations a second are of both, processor time is the
//! daemon's.

use super::{heading, middle, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Result, ensure};
use e2e::tls::{Authority, For};
use e2e::{Config, Daemon, MIB, Site, Volume, output, tools};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Volumes: without TLS, and with it.
const NAMES: [&str; 2] = ["plain", "tls"];
/// Passes over the disk until it is wholly cached.
const PASSES_MAX: u32 = 40;
/// Bytes a read, reads at a time, and times that the disk is read.
type Load = (u64, u32, u32);
const LOADS: [Load; 3] = [(4 << 10, 1, 1), (4 << 10, 32, 1), (128 << 10, 8, 8)];

/// How to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median counts
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the disk, in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: u64,
    /// Write the table to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    /// CPU time of the daemon, in us a read.
    cpu_us: f64,
    misses: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::NBDCOPY, tools::OPENSSL])?;
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
        let mut passes = 0;
        while copy(&daemon, uri, name, (128 << 10, 8, 1))?.misses > 0 {
            passes += 1;
            ensure!(passes < PASSES_MAX, "still missing after {name} was read {passes} times");
        }
    }
    let mut samples = vec![[const { Vec::new() }; 2]; LOADS.len()];
    for _ in 0..args.rounds {
        for (load, row) in LOADS.into_iter().zip(&mut samples) {
            for (at, uri) in uris.iter().enumerate() {
                let sample = copy(&daemon, uri, NAMES[at], load)?;
                ensure!(sample.misses == 0, "a miss where all should be cached");
                row[at].push(sample);
            }
        }
    }
    daemon.stop()?;
    let what = format!(
        "nbdcopy reads {} MiB over TCP, all hits, median of {} interleaved rounds",
        args.size_mib, args.rounds
    );
    publish(&(heading(&what)? + "\n" + &table(&samples)), args.output.as_deref())
}

/// Reads the whole disk so many times.
fn copy(daemon: &Daemon, uri: &str, name: &str, load: Load) -> Result<Sample> {
    let (bytes, depth, times) = load;
    let before = daemon.status()?;
    let cpu = daemon.running.cpu()?;
    let begun = Instant::now();
    for _ in 0..times {
        let mut command = Command::new("nbdcopy");
        command.args(["--connections=1", "--threads=1", "--no-extents"]);
        command.arg(format!("--requests={depth}")).arg(format!("--request-size={bytes}"));
        output(command.arg(uri).arg("null:"))?;
    }
    let took = begun.elapsed();
    let cpu = daemon.running.cpu()?.saturating_sub(cpu);
    let after = daemon.status()?;
    let count =
        |key: &str| Ok::<_, anyhow::Error>(after.count(name, key)? - before.count(name, key)?);
    let reads = count("reads")?.max(1) as f64;
    Ok(Sample {
        iops: reads / took.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / reads,
        misses: count("misses")?,
    })
}

fn table(samples: &[[Vec<Sample>; 2]]) -> String {
    let mut table = Table::new(&["read", "at a time", "", "IOPS", "MB/s", "daemon, us a read"]);
    for ((bytes, depth, _), row) in LOADS.into_iter().zip(samples) {
        for (name, samples) in ["plain", "TLS"].into_iter().zip(row) {
            let iops = middle(samples, |sample| sample.iops);
            table.row(vec![
                format!("{} KiB", bytes >> 10),
                depth.to_string(),
                name.into(),
                format!("{iops:.0}"),
                format!("{:.0}", iops * bytes as f64 / 1e6),
                format!("{:.1}", middle(samples, |sample| sample.cpu_us)),
            ]);
        }
    }
    table.render()
}
