//! Images on a throw-away Ceph cluster, through the cache and through librbd alone, in one run.
//!
//! One image for each side, all alike, on the same pool, none with librbd's own cache; sides have their turns cell by cell. The peer is
//! fio's rbd engine, which calls librbd in its own process; ours are reached over NBD. *Misses* are
//! reads of blocks that were not read before, *warm* ones of a region that the cache holds.

use super::{heading, in_turns, middle, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Result, ensure};
use e2e::ceph::{self, Cluster};
use e2e::fio::Direction;
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::path::PathBuf;

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median of each cell counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of each of the three images, in MiB
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Only this pool (ssd or hdd)
    #[arg(long)]
    pool: Option<String>,
    /// One short round on small images: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Librbd,
    Through,
    Back,
}

const SIDES: [Side; 3] = [Side::Librbd, Side::Through, Side::Back];

impl Side {
    const fn image(self) -> &'static str {
        match self {
            Self::Librbd => "direct",
            Self::Through => "through",
            Self::Back => "back",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Miss,
    Warm,
    Write,
}

/// Part of an image that is warm, in per cent.
const WARM_PERCENT: u64 = 12;
const DEPTHS: [u32; 2] = [1, 16];

struct Bench<'a> {
    cluster: &'a Cluster,
    site: Site,
    daemon: Daemon,
    pool: &'a str,
    size: u64,
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    of: Direction,
    /// Back-end reads and writes for each of the guest's; none for librbd alone.
    backend_ios: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(ceph::TOOLS)?;
    install::debian(&[tools::FIO])?;
    e2e::binary::cinnabar()?;
    let (rounds, seconds, size) =
        if args.quick { (1, 1, 64) } else { (args.rounds, args.seconds, args.size_mib) };
    let cluster = Cluster::start()?;
    let mut text = heading(&format!(
        "4 KiB through fio: its rbd engine (librbd), and its nbd engine against the cache on RBD; images of {size} MiB, median of {rounds} interleaved rounds of {seconds} s"
    ))?;
    for pool in [ceph::FAST, ceph::SLOW] {
        if args.pool.as_deref().is_none_or(|wanted| wanted == pool) {
            let bench = Bench::start(&cluster, pool, size * MIB, seconds)?;
            text.push_str(&bench.measure(rounds)?);
            bench.daemon.stop()?;
        }
    }
    publish(&text, args.output.as_deref())
}

impl<'a> Bench<'a> {
    fn start(cluster: &'a Cluster, pool: &'a str, size: u64, seconds: u64) -> Result<Self> {
        let site = Site::new()?;
        let config = Config::new(256 * MIB).cache_key("write_log = \"writes.img\"");
        let config = config.cache_key("write_log_size = \"256MiB\"");
        let image = |side: Side| format!("{pool}/{}", side.image());
        for side in SIDES {
            cluster.rbd(&["create", &image(side), "--size", &format!("{size}B")])?;
            eprintln!("filling {}: {} MiB", image(side), size / MIB);
            if side == Side::Librbd {
                // Else it acknowledges writes that are in its own memory.
                cluster.rbd(&["config", "image", "set", &image(side), "rbd_cache", "false"])?;
            }
            let job = rbd(cluster, pool, side).arg("rw", "write").arg("iodepth", 8);
            job.arg("bs", "1m").arg("size", size).run()?;
        }
        let volume = |side: Side| {
            let volume = Volume::new(side.image(), &cluster.backend(&image(side)));
            // Warming reads a region from end to end.
            volume.key("bypass_sequential = \"0\"").key("bypass_large = \"0\"")
        };
        let claim = site.path("back.claim");
        let back = volume(Side::Back)
            .key("mode = \"write-back\"")
            .key(&format!("claim = \"{}\"", claim.display()));
        let daemon = site.serve(&config.volume(volume(Side::Through)).volume(back))?;
        Ok(Self { cluster, site, daemon, pool, size, seconds })
    }

    fn measure(&self, rounds: usize) -> Result<String> {
        let cells: Vec<(Load, u32)> = [Load::Miss, Load::Warm, Load::Write]
            .into_iter()
            .flat_map(|load| DEPTHS.map(|depth| (load, depth)))
            .collect();
        let samples = in_turns(rounds, cells.len(), |round, cell, side| {
            let (load, depth) = cells[cell];
            eprintln!("{}, round {round}: {load:?} at QD{depth}", self.pool);
            self.sample(SIDES[side], load, depth)
        })?;
        Ok(self.table(&cells, &samples))
    }

    fn sample(&self, side: Side, load: Load, depth: u32) -> Result<Sample> {
        let warm = self.size * WARM_PERCENT / 100 / MIB * MIB;
        if load == Load::Warm && side != Side::Librbd {
            for _ in 0..3 {
                let job = self.job(side).arg("rw", "read").arg("bs", "64k").arg("iodepth", 8);
                job.arg("size", warm).run()?;
            }
        }
        if load == Load::Miss && side != Side::Librbd {
            // What earlier rounds have read is not to be found.
            self.daemon.command(&["volume", "invalidate", side.image()])?;
        }
        let (rw, size) = match load {
            Load::Miss => ("randread", self.size),
            Load::Warm => ("randread", warm),
            Load::Write => ("randwrite", self.size),
        };
        let before = self.counts(side)?;
        let job = self.job(side).arg("rw", rw).arg("size", size).arg("iodepth", depth);
        let job = job.arg("runtime", self.seconds);
        let job = if load == Load::Warm { job.flag("time_based") } else { job };
        let outcome = job.run()?;
        if side == Side::Back && load == Load::Write {
            // The next cell is not to pay for this one's destage.
            self.daemon.command(&["volume", "flush", side.image()])?;
        }
        let after = self.counts(side)?;
        let of = if load == Load::Write { outcome.write } else { outcome.read };
        ensure!(of.operations > 0, "{side:?} has done nothing");
        let backend_ios = (after - before) as f64 / of.operations as f64;
        Ok(Sample { of, backend_ios })
    }

    fn job(&self, side: Side) -> Fio {
        match side {
            Side::Librbd => rbd(self.cluster, self.pool, side),
            Side::Through | Side::Back => Fio::nbd(&self.site.uri(side.image())),
        }
    }

    /// Reads and writes of a volume's back end so far.
    fn counts(&self, side: Side) -> Result<u64> {
        if side == Side::Librbd {
            return Ok(0);
        }
        let status = self.daemon.glance()?;
        let of = |key| status.count(side.image(), key);
        Ok(of("backend_reads")? + of("backend_writes")?)
    }

    fn table(&self, cells: &[(Load, u32)], samples: &[[Vec<Sample>; SIDES.len()]]) -> String {
        let mut table = Table::new(&[
            self.pool,
            "librbd, IOPS",
            "mean us",
            "p99",
            "write-through, IOPS",
            "mean us",
            "p99",
            "IOPS, x",
            "back-end I/Os a request",
            "write-back, IOPS",
            "mean us",
            "p99",
            "IOPS, x",
            "back-end I/Os a request",
        ]);
        for ((load, depth), sides) in cells.iter().zip(samples) {
            let of = |side: usize, value: fn(&Sample) -> f64| middle(&sides[side], value);
            let iops = [0, 1, 2].map(|side| of(side, |sample| sample.of.iops));
            let mut row = vec![format!("{load:?}, QD{depth}")];
            for side in 0..SIDES.len() {
                row.push(format!("{:.0}", iops[side]));
                row.push(format!("{:.0}", of(side, |sample| sample.of.mean_us)));
                row.push(format!("{:.0}", of(side, |sample| sample.of.p99_us)));
                if side > 0 {
                    row.push(format!("{:.2}", iops[side] / iops[0]));
                    row.push(format!("{:.2}", of(side, |sample| sample.backend_ios)));
                }
            }
            table.row(row);
        }
        format!("\n{}", table.render())
    }
}

/// fio's own client of an image.
fn rbd(cluster: &Cluster, pool: &str, side: Side) -> Fio {
    Fio::engine("rbd")
        .arg("clientname", "admin")
        .arg("pool", pool)
        .arg("rbdname", side.image())
        .ceph_conf(cluster.conf())
}
