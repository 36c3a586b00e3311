//! Hits with a reservation, a limit and a weight configured against hits without: the scheduler of back
//! ends must not be seen where no back end is.

use super::clients::{Load, loadgen_binary};
use super::servers::Server;
use super::{DEPTHS, Plan};
use crate::bench::{heading, middle};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::{MIB, Site, tools};
use std::path::Path;

const SETTINGS: [&str; 3] = ["iops_reservation = 1000", "iops_limit = 5000", "iops_weight = 500"];
const ROWS: [&str; 2] = ["without settings", "with reservation, limit and weight"];

#[derive(Clone, Copy, Debug)]
struct Sample {
    iops: f64,
    p99_us: f64,
    cpu_us: f64,
}

/// Measures with this number of rounds of so many seconds, on a disk of this size.
pub(crate) fn run(rounds: usize, seconds: u64, size_mib: u64) -> Result<()> {
    install::debian(&[tools::FIO])?;
    e2e::binary::cinnabar()?;
    loadgen_binary()?;
    let plan = Plan { rounds, seconds, size: size_mib * MIB };
    let mut text = heading(&format!(
        "4 KiB random reads, all hits, {size_mib} MiB, median of {rounds} interleaved rounds of {seconds} s"
    ))?;
    text.push_str(&measure(Path::new("/dev/shm"), plan)?);
    println!("{text}");
    Ok(())
}

fn measure(folder: &Path, plan: Plan) -> Result<String> {
    let sites = [Site::within(folder)?, Site::within(folder)?];
    let mut servers = Vec::new();
    for (site, settings) in sites.iter().zip([&SETTINGS[..0], &SETTINGS[..]]) {
        let disk = site.filled("disk.raw", plan.size, 1)?;
        servers.push(Server::ours_with(site, &disk, plan.size, 1, settings)?);
    }
    let mut text = String::new();
    for vhost in [false, true] {
        let mut samples: [[Vec<Sample>; DEPTHS.len()]; 2] = Default::default();
        for _ in 0..plan.rounds {
            for (column, depth) in DEPTHS.into_iter().enumerate() {
                for (row, server) in servers.iter().enumerate() {
                    samples[row][column].push(against(server, vhost, depth, plan.seconds)?);
                }
            }
        }
        text.push_str(&table(if vhost { "vhost-user" } else { "NBD" }, &samples));
    }
    servers.into_iter().try_for_each(Server::stop)?;
    Ok(text)
}

fn against(server: &Server, vhost: bool, depth: u32, seconds: u64) -> Result<Sample> {
    let target = if vhost { server.vhost()? } else { server.nbd()? };
    let (seen, cpu_us) = server
        .under(Load::new(depth, seconds), &target, None)
        .with_context(|| format!("{target:?}:\n{}", server.process.running().log()))?;
    Ok(Sample { iops: seen.iops, p99_us: seen.p99, cpu_us })
}

fn table(front: &str, samples: &[[Vec<Sample>; DEPTHS.len()]; 2]) -> String {
    let mut heading = vec![front.to_owned()];
    for what in ["IOPS", "p99 us", "CPU us/op"] {
        heading.extend(DEPTHS.iter().map(|depth| format!("{what} QD{depth}")));
    }
    let mut table = Table::new(&heading);
    for (name, cells) in ROWS.iter().zip(samples) {
        let mut line = vec![(*name).to_owned()];
        line.extend(cells.iter().map(|cell| format!("{:.0}", middle(cell, |s| s.iops))));
        line.extend(cells.iter().map(|cell| format!("{:.0}", middle(cell, |s| s.p99_us))));
        line.extend(cells.iter().map(|cell| format!("{:.2}", middle(cell, |s| s.cpu_us))));
        table.row(line);
    }
    format!("\n{}", table.render())
}
