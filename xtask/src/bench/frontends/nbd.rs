//! Our NBD server with everything cached against its peers, with one connection and with four.

use super::clients::{Load, Target};
use super::servers::{Peer, Server};
use super::{DEPTHS, Plan};
use crate::bench::middle;
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::Site;
use std::path::Path;

const CONNECTIONS: [u32; 2] = [1, 4];
const PEERS: [Peer; 3] = [Peer::QemuNbd, Peer::QsdNbd, Peer::Nbdkit];
/// Cinnabar, its peers, then fio on the file itself.
const ROWS: usize = PEERS.len() + 2;
/// Marks: IOPS at QD 32 of the best peer's.
const IOPS_MIN: f64 = 1.2;

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    iops: f64,
    cpu_us: f64,
}

type Samples = [[Vec<Sample>; DEPTHS.len()]; ROWS];

/// Tables of one medium, one for each number of connections.
pub(super) fn measure(medium: &str, folder: &Path, plan: Plan) -> Result<String> {
    let site = Site::within(folder)?;
    let disk = site.filled("disk.raw", plan.size, 1)?;
    let mut servers = vec![Server::ours(&site, &disk, plan.size, 1).context("starting ours")?];
    for peer in PEERS {
        let started = Server::peer(peer, &site, &disk);
        servers.push(started.with_context(|| format!("starting {} on {medium}", peer.name()))?);
    }
    let file = Target::File(disk);
    let mut text = String::new();
    for connections in CONNECTIONS {
        eprintln!("{medium}, NBD, {connections} connection(s)");
        let mut samples: Samples = Default::default();
        for _ in 0..plan.rounds {
            for (column, depth) in DEPTHS.into_iter().enumerate() {
                for (row, cell) in samples.iter_mut().enumerate() {
                    let load = Load { connections, depth, seconds: plan.seconds };
                    let sample = match servers.get(row) {
                        Some(server) => against(load, server).with_context(|| {
                            format!(
                                "{load:?} on {}:\n{}",
                                name(row),
                                server.process.running().log()
                            )
                        })?,
                        None => Sample { iops: load.on(&file, None)?.iops, cpu_us: f64::NAN },
                    };
                    cell[column].push(sample);
                }
            }
        }
        text.push_str(&table(medium, connections, &samples));
    }
    servers.into_iter().try_for_each(Server::stop)?;
    Ok(text)
}

fn name(row: usize) -> &'static str {
    match row {
        0 => "cinnabar, 100 % hits",
        _ => PEERS.get(row - 1).map_or("fio io_uring on the file itself", |peer| peer.name()),
    }
}

fn against(load: Load, server: &Server) -> Result<Sample> {
    let (seen, cpu_us) = server.under(load, &server.nbd()?, None)?;
    Ok(Sample { iops: seen.iops, cpu_us })
}

fn table(medium: &str, connections: u32, samples: &Samples) -> String {
    let mut heading = vec![format!("{medium}, NBD, {connections} connection(s)")];
    heading.extend(DEPTHS.iter().map(|depth| format!("IOPS QD{depth}")));
    heading.extend(DEPTHS.iter().map(|depth| format!("CPU us/op QD{depth}")));
    let mut table = Table::new(&heading);
    for (row, cells) in samples.iter().enumerate() {
        let mut line = vec![name(row).to_owned()];
        line.extend(cells.iter().map(|cell| format!("{:.0}", middle(cell, |s| s.iops))));
        line.extend(cells.iter().map(|cell| {
            let cpu = middle(cell, |sample| sample.cpu_us);
            if cpu.is_nan() { "-".into() } else { format!("{cpu:.1}") }
        }));
        table.row(line);
    }
    format!("\n{}\n{}", table.render(), verdict(samples))
}

/// The marks: IOPS at QD 32 and CPU at the best depth of each, against the best peer; apart, against
/// the best that reads the medium, for nbdkit reads RAM.
fn verdict(samples: &Samples) -> String {
    let at_32 = |row: usize| middle(&samples[row][1], |sample| sample.iops);
    let least_cpu = |row: usize| {
        samples[row].iter().map(|cell| middle(cell, |s| s.cpu_us)).fold(f64::INFINITY, f64::min)
    };
    let peers = |direct_only: bool| {
        let counts = move |peer: Peer| !direct_only || peer != Peer::Nbdkit;
        (1..=PEERS.len()).filter(move |row| counts(PEERS[row - 1]))
    };
    let iops = |direct_only| at_32(0) / peers(direct_only).map(at_32).fold(0.0, f64::max);
    let cpu = |direct_only| {
        least_cpu(0) / peers(direct_only).map(least_cpu).fold(f64::INFINITY, f64::min)
    };
    format!(
        "IOPS at QD32: {:.2} x the best peer's (bar {IOPS_MIN}), {:.2} x the best of those that \
         read the medium.\n\
         CPU an I/O, least over the depths: {:.1} us, {:.2} x the best peer's, {:.2} x the best of \
         those that read the medium.\n",
        iops(false),
        iops(true),
        least_cpu(0),
        cpu(false),
        cpu(true)
    )
}
