//! The highest load within 30 ms on modelled disks, without a cache and with caches of 10, 25 and
//! 50 % of ASU1 and ASU2.
//!
//! Each ASU lies in RAM behind the model of disks of 7200 turns; the cache is on this machine's
//! disk.

use super::{lab, number, percent};
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::{MIB, Site};
use serde_json::Value;
use std::path::Path;

/// Disks of ASU1 to ASU3. The streams of the log, one for each BSU, are writes that no cache takes: it has
/// enough disks not to be what limits the load.
const DISKS: [usize; 3] = [6, 2, 8];

pub(super) fn run(quick: bool) -> Result<String> {
    let ram = Site::within(Path::new("/dev/shm"))?;
    let disk = Site::new()?;
    // 45 : 45 : 10, and whole MiB on each disk.
    let asu = if quick { 144 * MIB } else { 1152 * MIB };
    let seconds = if quick { "1" } else { "20" };
    let places = [
        places(&ram, "asu1", asu, DISKS[0])?,
        places(&ram, "asu2", asu, DISKS[1])?,
        places(&ram, "asu3", asu * 2 / 9, DISKS[2])?,
    ];
    let mut table = Table::new(&[
        "cache",
        "BSU within 30 ms",
        "IOPS",
        "mean ms",
        "x without",
        "read hits",
        "reads cut",
        "all cut",
    ]);
    let mut without = None;
    for share in [0, 10, 25, 50] {
        let cache = disk.path(&format!("cache{share}.img"));
        let bytes = (2 * asu * share / 100).max(24 * MIB);
        let (cache, size) = (cache.display().to_string(), bytes.to_string());
        let mut args =
            vec!["bench", "spc1", "--find-max", "--runlen", seconds, "--seed", "1", "--json"];
        // From the second run on they hold what the first one wrote.
        args.push("--overwrite");
        args.extend(["--asu1", &places[0], "--asu2", &places[1], "--asu3", &places[2]]);
        if share > 0 {
            args.extend(["--cache-only", "--cache", &cache, "--cache-size", &size]);
        }
        let found = lab(&args)?;
        let side = if share > 0 { "/with" } else { "/without" };
        let maximum = found.pointer(side).context("no result")?;
        let bsu = number(maximum, "/bsu_max")?;
        let base = *without.get_or_insert(bsu);
        let step = step_at(maximum, bsu)?;
        table.row(vec![
            if share > 0 { format!("{share} % ({} MiB)", bytes / MIB) } else { "none".into() },
            format!("{bsu:.0}"),
            format!("{:.0}", number(maximum, "/iops")?),
            format!("{:.1}", number(maximum, "/mean_ms")?),
            format!("{:.2}", bsu / base.max(1.0)),
            step.pointer("/hit_ratio")
                .and_then(Value::as_f64)
                .map_or("-".into(), |hits| format!("{hits:.3}")),
            percent(number(step, "/reads_cut")?),
            percent(number(step, "/all_cut")?),
        ]);
    }
    Ok(format!(
        "ASU1 and ASU2 of {} MiB on {} and {} disks (`sim:hdd`), ASU3 on {}; warmed until the hit \
         ratio rose no more; {seconds} s measured at each load\n\n{}",
        asu / MIB,
        DISKS[0],
        DISKS[1],
        DISKS[2],
        table.render()
    ))
}

fn places(site: &Site, name: &str, bytes: u64, disks: usize) -> Result<String> {
    let part = (bytes / disks as u64).next_multiple_of(MIB);
    let all: Result<Vec<String>> = (0..disks)
        .map(|index| {
            let path = site.sparse(&format!("{name}.{index}"), part)?;
            Ok(format!("sim:hdd,seed={}:file:{}", index + 1, path.display()))
        })
        .collect();
    Ok(all?.join(","))
}

fn step_at(maximum: &Value, bsu: f64) -> Result<&Value> {
    let steps = maximum.pointer("/steps").and_then(Value::as_array).context("no steps")?;
    let at = |step: &&Value| step.pointer("/bsu").and_then(Value::as_f64) == Some(bsu);
    steps.iter().find(at).or(steps.first()).context("no step")
}
