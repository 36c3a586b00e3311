//! Four volumes with a client each, with one data thread and with two, against
//! qemu-storage-daemon with one I/O thread and with two.
//!
//! One volume is served by one thread, so the other parts cannot show what several threads are for.
//! Everything is cached; each volume has a file of its own.

use super::Plan;
use super::clients::{Load, Seen, Target};
use super::servers::{Process, warm_over};
use crate::bench::middle;
use crate::table::Table;
use anyhow::{Context, Result, anyhow};
use e2e::{Config, Daemon, MIB, Running, Site, Volume};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const VOLUMES: usize = 4;
/// Reads under way on each volume.
const DEPTHS: [u32; 3] = [1, 8, 32];
const SHARDS: u32 = 4;
const THREADS_MAX: usize = 2;
const READY_LIMIT: Duration = Duration::from_secs(20);

/// A line of the table: a server, and where it has the four volumes.
struct Row {
    name: String,
    server: usize,
    targets: Vec<Target>,
}

/// One measurement: the sum over the volumes, the worst of their p99, the server's CPU time an
/// operation; times in us.
#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    p99: f64,
    server_cpu: f64,
}

pub(super) fn measure(medium: &str, folder: &Path, plan: Plan) -> Result<String> {
    // A daemon has a folder of its own.
    let sites = [Site::within(folder)?, Site::within(folder)?];
    let size = plan.size / VOLUMES as u64;
    let disks: Vec<PathBuf> = (0..VOLUMES)
        .map(|index| sites[0].filled(&format!("disk{index}.raw"), size, index as u64 + 1))
        .collect::<Result<_>>()?;
    let (mut servers, mut rows) = (Vec::new(), Vec::new());
    for threads in 1..=THREADS_MAX {
        let (process, targets) = peer(&sites[0], &disks, threads)?;
        let name = format!("qemu-storage-daemon, vhost-user, {threads} I/O thread(s)");
        rows.push(Row { name, server: servers.len(), targets });
        servers.push(process);
    }
    for (site, threads) in sites.iter().zip(1..=THREADS_MAX) {
        let daemon = ours(site, &disks, size, threads)?;
        let vhost = (0..VOLUMES).map(|index| Target::Vhost(site.path(&vhost_socket(index))));
        let nbd = (0..VOLUMES).map(|index| Target::Nbd(site.uri(&volume(index))));
        for (front, targets) in [("vhost-user", vhost.collect::<Vec<_>>()), ("NBD", nbd.collect())]
        {
            let name = format!("cinnabar, {front}, {threads} thread(s) that serve");
            rows.push(Row { name, server: servers.len(), targets });
        }
        servers.push(Process::Ours(daemon));
    }
    let mut samples = vec![vec![Vec::new(); DEPTHS.len()]; rows.len()];
    for round in 0..plan.rounds {
        for (column, depth) in DEPTHS.into_iter().enumerate() {
            eprintln!("{medium}, {VOLUMES} volumes, round {}, QD{depth}", round + 1);
            for (row, cells) in rows.iter().zip(&mut samples) {
                let load = Load::new(depth, plan.seconds);
                let sample = one(load, row, &servers[row.server]);
                cells[column].push(sample.with_context(|| format!("{load:?} on {}", row.name))?);
            }
        }
    }
    servers.into_iter().try_for_each(Process::stop)?;
    Ok(format!("\n{}", render(medium, &rows, &samples)))
}

fn volume(index: usize) -> String {
    format!("disk{index}")
}

fn vhost_socket(index: usize) -> String {
    format!("disk{index}.vhost")
}

/// qemu-storage-daemon with a vhost-user device for each disk, spread over so many I/O threads.
fn peer(site: &Site, disks: &[PathBuf], threads: usize) -> Result<(Process, Vec<Target>)> {
    let mut command = Command::new("qemu-storage-daemon");
    for thread in 0..threads {
        command.arg("--object").arg(format!("iothread,id=t{thread}"));
    }
    let mut sockets = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let socket = site.path(&format!("qsd{threads}-{index}.sock"));
        command.arg("--blockdev").arg(format!(
            "driver=file,node-name=d{index},filename={},cache.direct=on,aio=io_uring,read-only=on",
            disk.display()
        ));
        command.arg("--export").arg(format!(
            "type=vhost-user-blk,id=e{index},node-name=d{index},addr.type=unix,addr.path={},\
             num-queues=1,iothread=t{}",
            socket.display(),
            index % threads
        ));
        sockets.push(socket);
    }
    let log = site.path(&format!("qsd{threads}.log"));
    let mut running = Running::start(&mut command, &log)?;
    running
        .wait_until(READY_LIMIT, || sockets.iter().all(|socket| socket.exists()))
        .context("starting qemu-storage-daemon")?;
    Ok((Process::Peer(running), sockets.into_iter().map(Target::Vhost).collect()))
}

/// Cinnabar with so many data threads that serve, both front ends of each volume, everything cached.
fn ours(site: &Site, disks: &[PathBuf], size: u64, threads: usize) -> Result<Daemon> {
    // Twice the disks, so that nothing is ever evicted.
    let cache = (size * 2 * VOLUMES as u64).max(256 * MIB) + 64 * MIB;
    let mut config = Config::new(cache)
        // With several, the first one serves nobody.
        .cache_key(&format!("threads = {}", threads + usize::from(threads > 1)))
        .cache_key(&format!("shards = {SHARDS}"));
    for (index, disk) in disks.iter().enumerate() {
        config = config.volume(
            Volume::new(&volume(index), &format!("file:{}", disk.display()))
                // Both front ends at once are for readers only.
                .key("read_only = true")
                .key(&format!("vhost_user = \"{}\"", vhost_socket(index)))
                .key("bypass_sequential = \"0\"")
                .key("bypass_large = \"0\""),
        );
    }
    let daemon = site.serve(&config).context("starting ours")?;
    for index in 0..VOLUMES {
        warm_over(&daemon, &volume(index), &site.uri(&volume(index)))?;
    }
    Ok(daemon)
}

/// All four clients at a time.
fn one(load: Load, row: &Row, server: &Process) -> Result<Sample> {
    let clients = || {
        thread::scope(|scope| {
            let client = |target| scope.spawn(move || load.on(target, None));
            let clients: Vec<_> = row.targets.iter().map(client).collect();
            let ended = clients.into_iter().map(|client| {
                client.join().map_err(|_| anyhow!("a client panicked")).and_then(|seen| seen)
            });
            ended.collect::<Result<Vec<Seen>>>()
        })
    };
    let (seen, cpu) = server.beside((0..VOLUMES).map(volume), clients)?;
    let operations: u64 = seen.iter().map(|seen| seen.operations).sum();
    Ok(Sample {
        iops: seen.iter().map(|seen| seen.iops).sum(),
        p99: seen.iter().map(|seen| seen.p99).fold(0.0, f64::max),
        server_cpu: cpu.as_secs_f64() * 1e6 / operations.max(1) as f64,
    })
}

fn render(medium: &str, rows: &[Row], samples: &[Vec<Vec<Sample>>]) -> String {
    let mut heading = vec![format!("{medium}, {VOLUMES} volumes")];
    for what in ["IOPS", "CPU us/op", "worst p99, us"] {
        heading.extend(DEPTHS.iter().map(|depth| format!("{what} QD{depth}")));
    }
    let mut table = Table::new(&heading);
    for (row, cells) in rows.iter().zip(samples) {
        let of = |value: fn(&Sample) -> f64| cells.iter().map(move |cell| middle(cell, value));
        let line = of(|s| s.iops).map(|value| format!("{value:.0}"));
        let rest = of(|s| s.server_cpu).chain(of(|s| s.p99)).map(|value| format!("{value:.1}"));
        table.row([row.name.clone()].into_iter().chain(line).chain(rest).collect());
    }
    table.render()
}
