//! What pages that are open cost the data path: CPU time of a hit with viewers, and without.
//!
//! Viewers come and go under the same daemon, in turns. A viewer is a connection that takes what keeps a page live,
//! without a browser, which would take CPU time of its own.

use super::{heading, median, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const NAME: &str = "disk";
/// Until viewers that came are served as they will be.
const SETTLE: Duration = Duration::from_secs(1);
/// Passes over the disk until it is wholly cached.
const PASSES_MAX: u32 = 40;

/// How to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Pages that are open
    #[arg(long, default_value_t = 10)]
    pages: usize,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Requests at a time
    #[arg(long, default_value_t = 32)]
    depth: u32,
    /// Size of the disk, in MiB
    #[arg(long, default_value_t = 256)]
    size_mib: u64,
    /// Write the table to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    /// CPU time of the data threads, in us a hit.
    data_us: f64,
    /// Of the whole daemon.
    all_us: f64,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO])?;
    e2e::binary::cinnabar()?;
    let site = Site::within(Path::new("/dev/shm"))?;
    let size = args.size_mib * MIB;
    site.filled("disk.raw", size, 1)?;
    let port = e2e::daemon::free_port()?;
    let volume =
        Volume::new(NAME, "file:disk.raw").key("read_only = true").key("bypass_sequential = \"0\"");
    let config = Config::new(size * 2 + 64 * MIB).http(port).control_key("api = true");
    let daemon = site.serve(&config.volume(volume))?;
    warm(&daemon, &site)?;
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for _ in 0..args.rounds {
        for (row, pages) in [0, args.pages].into_iter().enumerate() {
            let viewers = Viewers::open(port, pages)?;
            thread::sleep(SETTLE);
            samples[row].push(measure(&daemon, &site, args)?);
            let bytes = viewers.close()?;
            ensure!(pages == 0 || bytes > 0, "viewers are told nothing");
        }
    }
    daemon.stop()?;
    let what = format!(
        "4 KiB random reads at depth {}, all hits, median of {} interleaved rounds of {} s",
        args.depth, args.rounds, args.seconds
    );
    publish(&(heading(&what)? + "\n" + &table(&samples, args.pages)), args.output.as_deref())
}

fn warm(daemon: &Daemon, site: &Site) -> Result<()> {
    for _ in 0..PASSES_MAX {
        let before = daemon.status()?.count(NAME, "misses")?;
        Fio::nbd(&site.uri(NAME)).arg("rw", "read").arg("bs", "128k").arg("iodepth", 8).run()?;
        if daemon.status()?.count(NAME, "misses")? == before {
            return Ok(());
        }
    }
    anyhow::bail!("still missing after the disk was read {PASSES_MAX} times")
}

fn measure(daemon: &Daemon, site: &Site, args: &Args) -> Result<Sample> {
    let misses = daemon.status()?.count(NAME, "misses")?;
    let (data, all) = (data_cpu(daemon)?, daemon.running.cpu()?);
    let seen = Fio::nbd(&site.uri(NAME))
        .arg("rw", "randread")
        .arg("iodepth", args.depth)
        .flag("time_based")
        .arg("runtime", args.seconds)
        .run()?;
    let data = data_cpu(daemon)?.saturating_sub(data);
    let all = daemon.running.cpu()?.saturating_sub(all);
    ensure!(daemon.status()?.count(NAME, "misses")? == misses, "a miss where all should be cached");
    let us = |time: Duration| time.as_secs_f64() * 1e6 / seen.read.operations.max(1) as f64;
    Ok(Sample { iops: seen.read.iops, data_us: us(data), all_us: us(all) })
}

/// CPU time of the data threads so far. Nanoseconds, where `stat` has ticks of 10 ms.
fn data_cpu(daemon: &Daemon) -> Result<Duration> {
    let tasks = PathBuf::from(format!("/proc/{}/task", daemon.running.pid()));
    let mut total_ns = 0;
    for task in std::fs::read_dir(&tasks)? {
        let task = task?.path();
        // A thread may end meanwhile.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        if name.starts_with("cinnabar-data") {
            let spent = std::fs::read_to_string(task.join("schedstat"))?;
            let first = spent.split_whitespace().next().context("schedstat is empty")?;
            total_ns += first.parse::<u64>()?;
        }
    }
    ensure!(total_ns > 0, "no data thread in {}", tasks.display());
    Ok(Duration::from_nanos(total_ns))
}

fn table(samples: &[Vec<Sample>; 2], pages: usize) -> String {
    let mut table = Table::new(&[
        "pages",
        "IOPS",
        "data threads, us a hit",
        "daemon, us a hit",
        "data threads",
    ]);
    let of =
        |row: usize, value: fn(&Sample) -> f64| median(samples[row].iter().map(value).collect());
    let without = of(0, |sample| sample.data_us);
    for (row, pages) in [0, pages].into_iter().enumerate() {
        let data = of(row, |sample| sample.data_us);
        table.row(vec![
            pages.to_string(),
            format!("{:.0}", of(row, |sample| sample.iops)),
            format!("{data:.3}"),
            format!("{:.3}", of(row, |sample| sample.all_us)),
            format!("{:+.1} %", (data / without - 1.0) * 100.0),
        ]);
    }
    table.render()
}

/// Connections that take what keeps the overview live.
struct Viewers(Vec<(TcpStream, JoinHandle<u64>)>);

impl Viewers {
    fn open(port: u16, count: usize) -> Result<Self> {
        let mut viewers = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            let request = "GET /ui/live?view=overview HTTP/1.1";
            write!(
                stream,
                "{request}\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n"
            )?;
            let mut reading = stream.try_clone()?;
            let thread = thread::spawn(move || {
                let (mut bytes, mut piece) = (0, vec![0; 65_536]);
                while let Ok(len @ 1..) = reading.read(&mut piece) {
                    bytes += len as u64;
                }
                bytes
            });
            viewers.push((stream, thread));
        }
        Ok(Self(viewers))
    }

    /// All of them go; gives how many bytes they were sent.
    fn close(self) -> Result<u64> {
        let mut bytes = 0;
        for (stream, thread) in self.0 {
            stream.shutdown(Shutdown::Both)?;
            bytes += thread.join().ok().context("a viewer ended early")?;
        }
        Ok(bytes)
    }
}
