//! Mercury's desktop experiment: a test day after none to three warm days, on a modelled file server.

use super::{lab, number};
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::{GIB, Site};
use serde_json::Value;
use std::path::Path;

pub(super) fn run(quick: bool) -> Result<String> {
    let ram = Site::within(Path::new("/dev/shm"))?;
    let disk = Site::new()?;
    let trace = disk.path("days.canon.csv.zst").display().to_string();
    let requests = if quick { "2000" } else { "40000" };
    lab(&[
        "trace",
        "generate",
        "desktop",
        "--out",
        &trace,
        "--days",
        "4",
        "--seed",
        "1",
        "--requests-per-day",
        requests,
        "--json",
    ])?;
    let target = ram.sparse("disk.raw", 40 * GIB)?;
    let target = format!("sim:filer,seed=1:file:{}", target.display());
    let cache = disk.path("cache.img").display().to_string();
    let found = lab(&[
        "bench",
        "replay",
        &trace,
        "--target",
        &target,
        "--closed",
        "--cache",
        &cache,
        "--cache-size",
        "4GiB",
        "--cache-fresh",
        "--warm",
        "none,0,1,2,3",
        "--json",
    ])?;
    let rows = found.pointer("/runs").and_then(Value::as_array).context("no runs")?;
    let mut table = Table::new(&[
        "warmed by",
        "mean service ms",
        "change",
        "server reads",
        "change",
        "server writes",
        "change",
        "server requests",
        "change",
    ]);
    let base = rows.first().context("no run")?;
    for row in rows {
        let warm = row.pointer("/warm").map(ToString::to_string).unwrap_or_default();
        let mut cells = vec![warm.trim_matches('"').to_owned()];
        for key in ["/latency/mean_ms", "/server/reads", "/server/writes", "/server/requests"] {
            let (value, before) = (number(row, key)?, number(base, key)?);
            cells.push(if value < 100.0 { format!("{value:.3}") } else { format!("{value:.0}") });
            cells.push(format!("{:+.1} %", (value / before - 1.0) * 100.0));
        }
        table.row(cells);
    }
    Ok(table.render())
}
