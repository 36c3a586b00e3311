//! What a hostile tenant costs its neighbour: reads of 4 KiB, all hits, one at a time, beside clients that take what
//! they can get.
//!
//! Hostile clients use disks of their own, and come back as often as they are thrown out. They take CPU time of
//! the same machine: what two busy loops leave of the reads is a fair share of that.

mod beside;
mod front_end;
mod hostile;

use super::{heading, middle, publish};
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use beside::{BackEnds, Pipe};
use clap::ValueEnum;
use e2e::nbd::Client;
use e2e::{Config, MIB, Site, Volume};
use hostile::{Attack, Hostile};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VICTIM: &str = "victim";
/// Disks of the hostile tenant.
pub(super) const HOSTILE_DISKS: usize = 8;
const DISK: u64 = 64 * MIB;
const READ: usize = 4096;
/// Until an attack has all it can get.
const SETTLE: Duration = Duration::from_secs(2);
/// The victim's client connects again after that.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only these attacks [default: all]
    #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true)]
    only: Vec<Attack>,
    /// Rounds; the median of each figure counts, and the longest wait of all
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Write the table to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What the victim saw in one measurement; times in ms.
#[derive(Clone, Copy, Debug)]
struct Sample {
    reads_a_second: f64,
    p99: f64,
    longest_read: f64,
    longest_connect: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.seconds > 0, "there is nothing to measure");
    e2e::binary::cinnabar()?;
    let site = Site::within(Path::new("/dev/shm"))?;
    let attacks =
        if args.only.is_empty() { Attack::value_variants().to_vec() } else { args.only.clone() };
    let mut samples = vec![Vec::new(); attacks.len()];
    for _ in 0..args.rounds {
        for (attack, samples) in attacks.iter().zip(&mut samples) {
            samples.push(measure(&site, *attack, Duration::from_secs(args.seconds))?);
        }
    }
    let what = format!(
        "4 KiB reads one at a time, all hits, over a unix socket; median of {} rounds of {} s",
        args.rounds, args.seconds
    );
    publish(&(heading(&what)? + "\n" + &table(&attacks, &samples)), args.output.as_deref())
}

/// A daemon of its own for each: nothing of an earlier attack is left.
fn measure(site: &Site, attack: Attack, time: Duration) -> Result<Sample> {
    site.filled("victim.raw", DISK, 1)?;
    let disk = |name: &str| {
        Volume::new(name, &format!("file:{name}.raw")).key("bypass_sequential = \"0\"")
    };
    let mut config = Config::new((HOSTILE_DISKS as u64 + 1) * 2 * DISK).volume(disk(VICTIM));
    for number in 0..HOSTILE_DISKS {
        let name = hostile::disk(number);
        site.filled(&format!("{name}.raw"), DISK, 2 + number as u64)?;
        let volume = disk(&name);
        let is_vhost = attack.is_vhost() && number == 0;
        let socket = site.path(&format!("{name}.sock"));
        config = config.volume(if is_vhost { volume.vhost_user(&socket) } else { volume });
    }
    let back_ends = (attack == Attack::HungBackEnds).then(BackEnds::start).transpose()?;
    if let Some(back_ends) = &back_ends {
        config = back_ends.add_to(config, site, HOSTILE_DISKS + 1)?;
    }
    let pipe = (attack == Attack::StuckLog).then(|| Pipe::new(site)).transpose()?;
    let daemon = site.serve_under(&config, |command| {
        if let Some(pipe) = &pipe {
            pipe.take_log_of(command);
        }
        Ok(())
    })?;
    let socket = |name: &str| site.path(&format!("{name}.sock"));
    warm(&socket(VICTIM), VICTIM)?;
    if !attack.is_vhost() {
        warm(&socket(&hostile::disk(0)), &hostile::disk(0))?;
    }
    back_ends.as_ref().map_or(Ok(()), BackEnds::hang)?;
    pipe.as_ref().inspect(|pipe| pipe.fill());
    let attacker = Hostile::start(attack, socket);
    std::thread::sleep(SETTLE);
    let seen = victim(&socket(VICTIM), time);
    attacker.end();
    if let Some(back_ends) = back_ends {
        back_ends.end()?;
    }
    match attack {
        // One that hangs with its log or its back ends does not end.
        Attack::StuckLog | Attack::HungBackEnds => daemon.crash()?,
        _ => daemon.stop().context("the daemon after the attack")?,
    }
    Ok(seen)
}

/// Reads a disk until it is cached: a block earns its place by being used again.
fn warm(socket: &Path, name: &str) -> Result<()> {
    let mut client = Client::connect(socket, name)?;
    for _ in 0..3 {
        for offset in (0..DISK).step_by(MIB as usize) {
            client.read(offset, MIB as usize)?;
        }
    }
    Ok(())
}

fn victim(socket: &Path, time: Duration) -> Sample {
    let (mut reads, mut connects) = (Vec::new(), Vec::new());
    let (mut offset, mut refused_since) = (0, None);
    let began = Instant::now();
    while began.elapsed() < time {
        // One that is turned away tries again: all of that is its wait.
        let connecting = *refused_since.get_or_insert_with(Instant::now);
        let Ok(mut client) = Client::connect(socket, VICTIM) else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        refused_since = None;
        connects.push(connecting.elapsed());
        let connected = Instant::now();
        while connected.elapsed() < RECONNECT_EVERY && began.elapsed() < time {
            // A stride that comes by all blocks.
            offset = (offset + 7919 * READ as u64) % DISK;
            let reading = Instant::now();
            let done = client.read(offset, READ);
            reads.push(reading.elapsed());
            if done.is_err() {
                break;
            }
        }
    }
    connects.extend(refused_since.map(|since| since.elapsed()));
    reads.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Sample {
        reads_a_second: reads.len() as f64 / began.elapsed().as_secs_f64(),
        p99: reads.get(reads.len().saturating_sub(1) * 99 / 100).copied().map_or(f64::NAN, ms),
        longest_read: reads.last().copied().map_or(f64::NAN, ms),
        longest_connect: connects.into_iter().max().map_or(f64::NAN, ms),
    }
}

fn table(attacks: &[Attack], samples: &[Vec<Sample>]) -> String {
    let mut table =
        Table::new(&["beside it", "reads/s", "p99, ms", "longest read, ms", "longest connect, ms"]);
    for (attack, samples) in attacks.iter().zip(samples) {
        let longest =
            |value: fn(&Sample) -> f64| samples.iter().map(value).fold(f64::NAN, f64::max);
        table.row(vec![
            attack.says().to_owned(),
            format!("{:.0}", middle(samples, |sample| sample.reads_a_second)),
            format!("{:.2}", middle(samples, |sample| sample.p99)),
            format!("{:.1}", longest(|sample| sample.longest_read)),
            format!("{:.1}", longest(|sample| sample.longest_connect)),
        ]);
    }
    table.render()
}
