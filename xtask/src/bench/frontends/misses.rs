//! What the daemon adds to a slow back end: misses on the model of a file server, against what the
//! model by itself answers in.
//!
//! The disk is so large beside the cache that next to nothing is found in it. The model alone is
//! measured without any I/O, by a program that keeps as many reads under way and needs no time
//! itself (`model_mean`).

use super::Plan;
use super::clients::{Load, Target};
use super::servers::Server;
use crate::bench::median;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::{Config, GIB, MIB, Site, Volume, output};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const MODEL: &str = "filer,seed=1";
const DEPTHS: [u32; 3] = [1, 8, 32];
const DISK: u64 = 64 * GIB;
const CACHE: u64 = 64 * MIB;
/// Hits among the reads at most, for them to count as misses.
const HITS_MAX: f64 = 0.01;
/// What the daemon may add at QD 32, in percent.
const ADDED_PERCENT_MAX: f64 = 5.0;

pub(super) fn measure(folder: &Path, plan: Plan) -> Result<String> {
    let alone = DEPTHS.iter().map(|depth| model_alone(*depth)).collect::<Result<Vec<f64>>>()?;
    let site = Site::within(folder)?;
    let disk = site.sparse("disk.raw", DISK)?;
    let volume = Volume::new("disk", &format!("sim:{MODEL}:file:{}", disk.display()))
        .key("read_only = true")
        .key("vhost_user = \"disk.vhost\"");
    let server = Server::serve(&site, &Config::new(CACHE).volume(volume))?;
    let rows = [("NBD", server.nbd()?), ("vhost-user", server.vhost()?)];
    let mut heading = vec!["misses on sim:filer, mean latency in us".to_owned()];
    heading.extend(DEPTHS.iter().map(|depth| format!("QD{depth}")));
    let mut table = Table::new(&heading);
    let line = |name: &str, values: &[String]| [vec![name.to_owned()], values.to_vec()].concat();
    let whole: Vec<String> = alone.iter().map(|mean| format!("{mean:.0}")).collect();
    table.row(line("the model by itself", &whole));
    let mut verdict = String::new();
    for (name, target) in rows {
        let means = DEPTHS
            .iter()
            .map(|depth| daemon(&server, &target, *depth, plan))
            .collect::<Result<Vec<f64>>>()
            .with_context(|| format!("{name}:\n{}", server.process.running().log()))?;
        let added = |index: usize| (means[index] / alone[index] - 1.0) * 100.0;
        let cells: Vec<String> = (0..DEPTHS.len())
            .map(|index| format!("{:.0} ({:+.1} %)", means[index], added(index)))
            .collect();
        table.row(line(&format!("cinnabar, {name}"), &cells));
        let last = added(DEPTHS.len() - 1);
        let met = if last <= ADDED_PERCENT_MAX { "met" } else { "MISSED" };
        writeln!(
            verdict,
            "{name}: the daemon adds {last:.1} % at QD32 (bar {ADDED_PERCENT_MAX}): {met}."
        )?;
    }
    server.stop()?;
    Ok(format!("\n{}\n{verdict}", table.render()))
}

/// Mean latency of the model alone, in us.
fn model_alone(depth: u32) -> Result<f64> {
    let what = ["--package", "cinnabar-backend", "--example", "model_mean"];
    let mut command = Command::new(e2e::binary::built(&what)?);
    command.arg(MODEL).arg(depth.to_string()).arg(DISK.to_string());
    output(&mut command)?.trim().parse().context("a number of microseconds")
}

/// Mean latency that a client of the daemon sees, in us; the median of the rounds.
fn daemon(server: &Server, target: &Target, depth: u32, plan: Plan) -> Result<f64> {
    let mut means = Vec::new();
    for round in 0..plan.rounds {
        eprintln!("misses, {target:?}, round {}, QD{depth}", round + 1);
        let (hits, misses) = (server.count("read_hits")?, server.count("misses")?);
        let seen = Load::new(depth, plan.seconds).on(target, None)?;
        let (hits, misses) = (server.count("read_hits")? - hits, server.count("misses")? - misses);
        let share = hits as f64 / (hits + misses).max(1) as f64;
        ensure!(share <= HITS_MAX, "{hits} hits among {} reads", hits + misses);
        means.push(seen.mean);
    }
    Ok(median(means))
}
