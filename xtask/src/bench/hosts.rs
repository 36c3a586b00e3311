//! Several daemons, each with its image on one Ceph cluster: what the warm-up of one costs the others.
//!
//! All hosts but the last one have work that the cache mostly holds, at a pace that the cluster keeps up
//! with. The last one's cache is empty: its guest reads as fast as it can, first without a limit, then
//! with one. The peer of the same run: the same guests without a cache, through librbd. All share this
//! machine's processors, which is part of what is measured.

use super::{heading, publish};
use crate::install;
use crate::table::Table;
use anyhow::{Result, ensure};
use e2e::ceph::{self, Cluster};
use e2e::fio::Outcome;
use e2e::{Config, Daemon, Fio, MIB, Site, Volume, tools};
use std::path::PathBuf;
use std::thread;

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Daemons, the one that warms up included
    #[arg(long, default_value_t = 10)]
    hosts: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Size of each image, in MiB
    #[arg(long, default_value_t = 128)]
    size_mib: u64,
    /// Reads a second of each guest whose cache is warm
    #[arg(long, default_value_t = 60)]
    pace: u64,
    /// Reads a second of the one that warms up, in the part with a limit
    #[arg(long, default_value_t = 100)]
    limit: u64,
    /// The pool (ssd or hdd)
    #[arg(long, default_value = ceph::FAST)]
    pool: String,
    /// Few hosts, small images, short parts: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the table to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// Of a guest's reads, those that go to the hot part, and how large that is, both in per cent.
const HOT_READS: u64 = 90;
const HOT_BYTES: u64 = 10;
/// The image of the one that warms up is so many times as large as others.
const LAST_TIMES: u64 = 8;

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(ceph::TOOLS)?;
    install::debian(&[tools::FIO])?;
    e2e::binary::cinnabar()?;
    let (hosts, seconds, size) =
        if args.quick { (3, 2, 16) } else { (args.hosts, args.seconds, args.size_mib) };
    ensure!(hosts > 1, "one host has no neighbours: --hosts 2 or more");
    let cluster = Cluster::start()?;
    let mut text = heading(&format!(
        "{hosts} daemons, each with an image of {size} MiB on pool {}; {} guests read 4 KiB at {} a second, {HOT_READS} % of it from {HOT_BYTES} % of the image; parts of {seconds} s",
        args.pool,
        hosts - 1,
        args.pace
    ))?;
    let fleet = Fleet::start(&cluster, args, hosts, size * MIB, seconds)?;
    text.push_str(&fleet.measure(args)?);
    fleet.stop()?;
    publish(&text, args.output.as_deref())
}

/// One host.
struct Host {
    site: Site,
    daemon: Daemon,
    image: String,
}

struct Fleet<'a> {
    cluster: &'a Cluster,
    hosts: Vec<Host>,
    pool: &'a str,
    pace: u64,
    seconds: u64,
}

/// What the guests of warm caches saw.
struct Seen {
    mean_us: f64,
    /// The median and the largest of the guests' 99th percentiles.
    p99_us: (f64, f64),
    iops: f64,
    hits: Option<f64>,
    /// Reads a second of the one that warms up.
    warms_up: f64,
}

impl<'a> Fleet<'a> {
    fn start(
        cluster: &'a Cluster,
        args: &'a Args,
        hosts: usize,
        size: u64,
        seconds: u64,
    ) -> Result<Self> {
        let pool = args.pool.as_str();
        let mut all = Vec::new();
        for host in 0..hosts {
            // The last one's is not read through within a part.
            let size = if host + 1 == hosts { size * LAST_TIMES } else { size };
            let image = format!("host{host}");
            let place = format!("{pool}/{image}");
            cluster.rbd(&["create", &place, "--size", &format!("{size}B")])?;
            // As our own back end: without memory of the client's own.
            cluster.rbd(&["config", "image", "set", &place, "rbd_cache", "false"])?;
            eprintln!("filling {place}: {} MiB", size / MIB);
            let fill = rbd(cluster, pool, &image).arg("rw", "write").arg("iodepth", 8);
            fill.arg("bs", "1m").arg("size", size).run()?;
            let site = Site::new()?;
            let volume = Volume::new(&image, &cluster.backend(&place));
            // Warming reads from end to end.
            let volume = volume.key("bypass_sequential = \"0\"").key("bypass_large = \"0\"");
            let daemon = site.serve(&Config::new(2 * size).volume(volume))?;
            all.push(Host { site, daemon, image });
        }
        Ok(Self { cluster, hosts: all, pool, pace: args.pace, seconds })
    }

    fn measure(&self, args: &Args) -> Result<String> {
        let (last, neighbours) = self.hosts.split_last().expect("there are two or more");
        eprintln!("warming {} caches", neighbours.len());
        for host in neighbours {
            let job = Fio::nbd(&host.site.uri(&host.image)).arg("rw", "read").arg("bs", "64k");
            let job = job.arg("iodepth", 8).arg("size", format!("{HOT_BYTES}%"));
            for _ in 0..3 {
                job.run()?;
            }
        }
        let mut table = Table::new(&[
            "",
            "reads a second, a guest",
            "mean us",
            "p99, median guest",
            "p99, worst guest",
            "hits, %",
            "the one that warms up, reads a second",
        ]);
        let mut row = |name: &str, seen: &Seen| {
            table.row(vec![
                name.to_owned(),
                format!("{:.1}", seen.iops),
                format!("{:.0}", seen.mean_us),
                format!("{:.0}", seen.p99_us.0),
                format!("{:.0}", seen.p99_us.1),
                seen.hits.map_or_else(|| "-".to_owned(), |hits| format!("{hits:.1}")),
                format!("{:.0}", seen.warms_up),
            ]);
        };
        for (cached, side) in [(true, "with the cache"), (false, "librbd alone")] {
            eprintln!("{side}: the last one is idle");
            row(&format!("{side}, no one warms up"), &self.work(cached, None)?);
            eprintln!("{side}: the last one reads as fast as it can");
            last.daemon.command(&["volume", "invalidate", &last.image])?;
            row(&format!("{side}, one reads all it can"), &self.work(cached, Some(0))?);
            eprintln!("{side}: the last one reads at a limit");
            last.daemon.command(&["volume", "invalidate", &last.image])?;
            row(
                &format!("{side}, one reads {} a second", args.limit),
                &self.work(cached, Some(args.limit))?,
            );
        }
        Ok(format!("\n{}", table.render()))
    }

    /// All guests for the seconds of a part; `warms_up`: the last one, too, at this many reads a second (0: as many as
    /// it gets).
    fn work(&self, cached: bool, warms_up: Option<u64>) -> Result<Seen> {
        let (last, neighbours) = self.hosts.split_last().expect("there are two or more");
        let before = Self::hits(neighbours)?;
        let job = |host: &Host| {
            let job = if cached {
                Fio::nbd(&host.site.uri(&host.image))
            } else {
                rbd(self.cluster, self.pool, &host.image)
            };
            job.arg("rw", "randread").flag("time_based").arg("runtime", self.seconds)
        };
        let zones =
            format!("zoned:{HOT_READS}/{HOT_BYTES}:{}/{}", 100 - HOT_READS, 100 - HOT_BYTES);
        let (outcomes, warm) = thread::scope(|scope| -> Result<(Vec<Outcome>, f64)> {
            let guests: Vec<_> = neighbours
                .iter()
                .map(|host| {
                    let job = job(host).arg("random_distribution", &zones).arg("iodepth", 4);
                    let job = job.arg("rate_iops", self.pace).arg("rate_process", "poisson");
                    scope.spawn(move || job.run())
                })
                .collect();
            let warm = match warms_up {
                Some(limit) => {
                    let job = job(last).arg("iodepth", 16).arg("norandommap", 0);
                    let job = if limit > 0 { job.arg("rate_iops", limit) } else { job };
                    job.run()?.read.iops
                }
                None => 0.0,
            };
            let outcomes = guests.into_iter().map(|guest| guest.join().expect("no panic"));
            Ok((outcomes.collect::<Result<Vec<_>>>()?, warm))
        })?;
        let after = Self::hits(neighbours)?;
        let mut p99_us: Vec<f64> = outcomes.iter().map(|outcome| outcome.read.p99_us).collect();
        p99_us.sort_by(f64::total_cmp);
        let reads = outcomes.iter().map(|outcome| outcome.read.operations).sum::<u64>();
        ensure!(reads > 0, "the guests have read nothing");
        let mean = |value: fn(&Outcome) -> f64| {
            outcomes.iter().map(value).sum::<f64>() / outcomes.len() as f64
        };
        let asked = (after.1 - before.1) as f64;
        Ok(Seen {
            mean_us: mean(|outcome| outcome.read.mean_us),
            p99_us: (p99_us[p99_us.len() / 2], p99_us[p99_us.len() - 1]),
            iops: mean(|outcome| outcome.read.iops),
            hits: cached.then(|| (after.0 - before.0) as f64 / asked * 100.0),
            warms_up: warm,
        })
    }

    /// Blocks that were hits, and blocks asked for, of these hosts so far.
    fn hits(hosts: &[Host]) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for host in hosts {
            let status = host.daemon.glance()?;
            let of = |key| status.count(&host.image, key);
            let hits = of("read_hits")?;
            sum = (sum.0 + hits, sum.1 + hits + of("misses")?);
        }
        Ok(sum)
    }

    fn stop(self) -> Result<()> {
        self.hosts.into_iter().try_for_each(|host| host.daemon.stop())
    }
}

/// fio's own client of an image.
fn rbd(cluster: &Cluster, pool: &str, image: &str) -> Fio {
    Fio::engine("rbd")
        .arg("clientname", "admin")
        .arg("pool", pool)
        .arg("rbdname", image)
        .ceph_conf(cluster.conf())
}
