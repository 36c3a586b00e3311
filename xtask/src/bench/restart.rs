//! How long a start takes with a large cache: to the first reply, and until the whole index is there.
//!
//! The cache device is synthetic, but everything that a start reads is there: `cinnabar-study`'s
//! example `restart_image` drives the production engine over a sparse file, without data, and leaves
//! it as a crash would, just before a checkpoint was due. Beside each start stands the time that the
//! disk takes to read as many bytes in sequence, in the same round.

use crate::bench::{example, heading, middle, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result, bail, ensure};
use e2e::nbd::Client;
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Starts of each kind; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the cache, in millions of bytes; the default has 24.4 million blocks
    #[arg(long, default_value_t = 102_200)]
    size_mb: u64,
    /// Folder for the cache device, which takes a sixth of its size [default: the system's temporary
    /// folder]
    #[arg(long, value_name = "DIR", hide_default_value = true)]
    dir: Option<PathBuf>,
    /// One start of each kind with a small cache: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the table to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

const NAME: &str = "bench";
const DEVICE: &str = "cache.img";
/// The longest that the whole index may take, after a crash and after a clean stop.
const BARS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(500)];
/// The longest until the first reply.
const REPLY_BAR: Duration = Duration::from_millis(100);
/// A start that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct Start {
    /// From the start of the process to the answer of a read.
    first_reply_ms: f64,
    /// From there, too, until the whole index was loaded.
    full_index_ms: f64,
    blocks: u64,
    pages: u64,
    /// The disk alone: as many pages, read in sequence.
    disk_ms: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO])?;
    let (rounds, bytes) =
        if args.quick { (1, 2_000_000_000) } else { (args.rounds, args.size_mb * 1_000_000) };
    let site = match &args.dir {
        Some(dir) => Site::within(dir)?,
        None => Site::new()?,
    };
    let config = prepare(&site, bytes)?;
    let mut starts = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        eprintln!("start {round} after a crash");
        // Killed as soon as it is whole, it leaves the device as it was: with an old checkpoint.
        starts[0].push(measure(&site, &config, "crashed", Daemon::crash)?);
    }
    site.serve(&config)?.stop()?;
    for round in 0..rounds {
        eprintln!("start {round} after a clean stop");
        starts[1].push(measure(&site, &config, "clean", Daemon::stop)?);
    }
    let what = format!(
        "a cache of {:.0} GB, from the start of the process, median of {rounds} starts",
        bytes as f64 / 1e9
    );
    let text = format!("{}\n{}", heading(&what)?, report(&starts));
    publish(&text, args.output.as_deref())
}

/// Makes the cache device and what belongs to it.
fn prepare(site: &Site, bytes: u64) -> Result<Config> {
    let device = site.path(DEVICE);
    // More than is ever read into the cache; nothing of it is ever written.
    let size = bytes / MIB * MIB * 3;
    site.sparse("disk.raw", size)?;
    let volume = Volume::new(NAME, "file:disk.raw").key("exclusive = true");
    let config = Config::new(bytes).volume(volume);
    let image = |args: &[String]| example("restart_image", args);
    let path = device.display().to_string();
    image(&["format".into(), path.clone(), bytes.to_string()])?;
    // The daemon records the volume on the device and on the host; both must hold the same
    // generation of it.
    site.serve(&config)?.stop()?;
    let generation = generation(&device)?.to_string();
    image(&["fill".into(), path, NAME.into(), size.to_string(), generation])?;
    Ok(config)
}

/// The volume's generation as the device has it.
fn generation(device: &Path) -> Result<u64> {
    let mut dump = Command::new(e2e::binary::cinnabar()?);
    let text =
        e2e::output(dump.args(["cache", "dump", "--json", "--what", "volumes"]).arg(device))?;
    // One object a line.
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|volume| volume["name"] == NAME)
        .and_then(|volume| volume["generation"].as_u64())
        .with_context(|| format!("no generation of {NAME} in {text}"))
}

/// Starts the daemon, waits until its index is whole, and ends it.
fn measure(
    site: &Site,
    config: &Config,
    after: &str,
    end: fn(Daemon) -> Result<()>,
) -> Result<Start> {
    let begun = Instant::now();
    let daemon = site.launch(config)?;
    let first_reply_ms = first_reply(site, begun).with_context(|| daemon.running.log())?;
    let status = loop {
        // The disk may answer a moment before the control socket calls the daemon ready.
        match daemon.glance() {
            Ok(status) if !status.is_loading()? => break status,
            Ok(status) => ensure!(begun.elapsed() < LIMIT, "still loading: {}", status.0),
            Err(error) => ensure!(begun.elapsed() < LIMIT, "no status: {error:#}"),
        }
        thread::sleep(POLL);
    };
    let full_index_ms = begun.elapsed().as_secs_f64() * 1e3;
    end(daemon)?;
    let loaded = &status.0["cache"]["loaded"];
    ensure!(loaded["start"] == after, "not the start after {after}: {loaded}");
    let count = |key: &str| loaded[key].as_u64().with_context(|| format!("no {key} in {loaded}"));
    let (blocks, pages) = (count("blocks")?, count("pages")?);
    let capacity = status.cache("capacity_blocks")?;
    ensure!(blocks * 100 >= capacity * 95, "{blocks} of {capacity} blocks: {loaded}");
    let replayed = count("replayed_blocks")?;
    let is_old = replayed * 100 >= capacity * 8;
    ensure!(is_old == (after == "crashed"), "{replayed} blocks are newer than the checkpoint");
    let disk_ms = read_in_sequence_ms(&site.path(DEVICE), pages * 4096)?;
    Ok(Start { first_reply_ms, full_index_ms, blocks, pages, disk_ms })
}

/// Connects and reads, as often as it takes.
fn first_reply(site: &Site, begun: Instant) -> Result<f64> {
    let socket = site.path(&format!("{NAME}.sock"));
    loop {
        let read = Client::connect(&socket, NAME).and_then(|mut client| client.read(0, 4096));
        match read {
            Ok(_) => return Ok(begun.elapsed().as_secs_f64() * 1e3),
            Err(error) if begun.elapsed() > LIMIT => bail!("no reply: {error:#}"),
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// Time that the disk takes to read the first `bytes` of the device, where its metadata are.
fn read_in_sequence_ms(device: &Path, bytes: u64) -> Result<f64> {
    let size = bytes.next_multiple_of(MIB);
    let job = Fio::engine("io_uring").arg("filename", device.display()).arg("rw", "read");
    let job = job.arg("bs", "1M").arg("iodepth", 8).arg("direct", 1).arg("size", size);
    let requests = (size / MIB) as f64;
    Ok(requests / job.run()?.read.iops * 1e3)
}

fn report(starts: &[Vec<Start>; 2]) -> String {
    let mut table = Table::new(&[
        "start after",
        "first reply, ms",
        "reply bar, ms",
        "",
        "full index, ms",
        "worst, ms",
        "blocks",
        "metadata, MiB",
        "disk alone, ms",
        "bar, ms",
        "",
    ]);
    let verdict = |ms: f64, bar: f64| if ms <= bar { "met" } else { "MISSED" }.to_owned();
    for ((name, bar), starts) in ["a crash", "a clean stop"].into_iter().zip(BARS).zip(starts) {
        let middle = |value: fn(&Start) -> f64| middle(starts, value);
        let full = middle(|start| start.full_index_ms);
        let worst = starts.iter().map(|start| start.full_index_ms).fold(0.0, f64::max);
        let first = middle(|start| start.first_reply_ms);
        let (bar_ms, reply_bar_ms) = (bar.as_secs_f64() * 1e3, REPLY_BAR.as_secs_f64() * 1e3);
        table.row(vec![
            name.to_owned(),
            format!("{first:.0}"),
            format!("{reply_bar_ms:.0}"),
            verdict(first, reply_bar_ms),
            format!("{full:.0}"),
            format!("{worst:.0}"),
            format!("{:.0}", middle(|start| start.blocks as f64)),
            format!("{:.0}", middle(|start| start.pages as f64 / 256.0)),
            format!("{:.0}", middle(|start| start.disk_ms)),
            format!("{bar_ms:.0}"),
            verdict(full, bar_ms),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::{Start, report};

    #[test]
    fn each_kind_of_start_has_its_bars() {
        let start = |first_reply_ms, full_index_ms| Start {
            first_reply_ms,
            full_index_ms,
            blocks: 1000,
            pages: 512,
            disk_ms: 10.0,
        };
        let text = report(&[vec![start(101.0, 999.0)], vec![start(99.0, 501.0)]]);
        assert_eq!(text.matches(" met |").count(), 2, "{text}");
        assert_eq!(text.matches("MISSED").count(), 2, "{text}");
        assert_eq!(text.matches("|             2 |").count(), 2, "{text}");
    }
}
