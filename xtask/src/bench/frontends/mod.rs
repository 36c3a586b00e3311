//! Our front ends against their peers on the same medium, interleaved.
//!
//! Nothing absolute repeats on a shared machine: what counts is the ratio within a run.

mod clients;
mod misses;
mod nbd;
pub(super) mod qos;
mod servers;
mod vhost;
mod volumes;

use crate::bench::{heading, publish};
use crate::install;
use anyhow::Result;
use e2e::{MIB, tools};
use std::path::{Path, PathBuf};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median of each cell counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of the disk, in MiB
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// One short round on a small disk: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Only this medium (tmpfs or disk)
    #[arg(long)]
    medium: Option<String>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// Write the tables to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Our vhost-user-blk device, and NBD beside it, with one thread and two
    Vhost,
    /// Our NBD server against others
    Nbd,
    /// Four volumes at a time, with one thread and two
    Volumes,
    /// Misses on the model of a file server
    Misses,
}

/// How long and how often, on which disk.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
    seconds: u64,
    /// Bytes of the disk.
    size: u64,
}

const DEPTHS: [u32; 3] = [1, 32, 128];

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO, tools::QEMU_NBD, tools::QEMU_STORAGE_DAEMON, tools::NBDKIT])?;
    // Before anything runs that a compiler would disturb.
    e2e::binary::cinnabar()?;
    clients::loadgen_binary()?;
    let plan = if args.quick {
        Plan { rounds: 1, seconds: 1, size: 64 * MIB }
    } else {
        Plan { rounds: args.rounds, seconds: args.seconds, size: args.size_mib * MIB }
    };
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let Plan { rounds, seconds, size } = plan;
    let mut text = heading(&format!(
        "4 KiB random reads, {} MiB, median of {rounds} interleaved rounds of {seconds} s",
        size / MIB
    ))?;
    let temporary = std::env::temp_dir();
    let media = [("tmpfs", Path::new("/dev/shm")), ("disk", temporary.as_path())];
    for (medium, folder) in media {
        if args.medium.as_deref().is_some_and(|wanted| wanted != medium) {
            continue;
        }
        if wants(Part::Vhost) {
            text.push_str(&vhost::measure(medium, folder, plan)?);
        }
        if wants(Part::Nbd) {
            text.push_str(&nbd::measure(medium, folder, plan)?);
        }
        if wants(Part::Volumes) {
            text.push_str(&volumes::measure(medium, folder, plan)?);
        }
    }
    if wants(Part::Misses) {
        text.push_str(&misses::measure(Path::new("/dev/shm"), plan)?);
    }
    publish(&text, args.output.as_deref())
}
