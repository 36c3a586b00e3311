//! The timed simulator: block I/Os a second on one core, RAM, and all published figures.
//!
//! Speed is that of the example `timed_bench`, best of five by CPU time; the figures are those of
//! `cinnabar-lab simulate holland` at 1/64, by the clock on the wall and by CPU time, for a machine that
//! is busy with other things gives only the second one fairly.

use crate::bench::{heading, publish};
use crate::shell::cargo;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Leave out the terabyte, and draw one experiment: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Keep the figures in this folder [default: a temporary one]
    #[arg(long, value_name = "DIR", hide_default_value = true)]
    figures: Option<PathBuf>,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

/// Millions of block I/Os a second on a core, at 1/64 and at the published size.
const SPEED_BARS: [(&str, f64); 2] = [("1/64", 2.5), ("1/1", 1.0)];
/// Seconds for all figures on two cores.
const FIGURES_BAR_S: f64 = 120.0;

pub(crate) fn run(args: &Args) -> Result<()> {
    let text = format!(
        "{}load of the machine at the beginning: {}\n\n{}\n{}",
        heading("`cargo xtask bench timed`")?,
        load()?,
        speed(args.quick)?,
        figures(args)?
    );
    publish(&text, args.output.as_deref())
}

/// Runnable processes over the last minute, as the kernel counts them.
fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg").context("reading the load")?;
    Ok(text.split(' ').next().unwrap_or("unknown").to_owned())
}

fn speed(quick: bool) -> Result<String> {
    let mut command =
        cargo(&["run", "--profile", "dist", "--locked", "--package", "cinnabar-study"]);
    command.args(["--example", "timed_bench", "--"]);
    if !quick {
        command.arg("--full");
    }
    let done = command.stderr(Stdio::inherit()).output().context("starting the example")?;
    ensure!(done.status.success(), "timed_bench: {}", done.status);
    let rows = rows(&String::from_utf8_lossy(&done.stdout))?;
    let mut table = Table::new(&[
        "base configuration",
        "M block I/Os/s a core",
        "bar",
        "RAM at most, MiB",
        "DRAM read, ns",
    ]);
    for row in rows {
        let bar = SPEED_BARS.iter().find(|(scale, _)| *scale == row.scale);
        table.row(vec![
            format!("scale {}", row.scale),
            format!("{:.2}", row.millions),
            bar.map_or("-".to_owned(), |(_, bar)| format!("{bar:.1}")),
            format!("{:.0}", row.ram_mib),
            format!("{:.0}", row.dram_ns),
        ]);
    }
    Ok(table.render())
}

/// What the example prints of one size.
#[derive(Debug, PartialEq)]
struct Row {
    scale: String,
    millions: f64,
    ram_mib: f64,
    dram_ns: f64,
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let sizes: Vec<&str> = text.split("scale ").skip(1).collect();
    ensure!(!sizes.is_empty(), "timed_bench printed no sizes:\n{text}");
    let row = |text: &&str| {
        Some(Row {
            scale: text.split_once(',')?.0.to_owned(),
            millions: number_before(text, " M block I/Os a second")?,
            ram_mib: number_before(text, " MiB of RAM")?,
            dram_ns: number_before(text.split_once("dependent DRAM read")?.1, " ns")?,
        })
    };
    sizes.iter().map(|size| row(size).with_context(|| format!("can't read {size}"))).collect()
}

fn number_before(text: &str, words: &str) -> Option<f64> {
    text.split_once(words)?.0.rsplit(' ').next()?.parse().ok()
}

fn figures(args: &Args) -> Result<String> {
    // Removed at the end.
    let site = e2e::Site::new()?;
    let out = args.figures.clone().unwrap_or_else(|| site.path("figures"));
    let experiment = if args.quick { "flash-read-time" } else { "all" };
    let done = Command::new(e2e::binary::lab()?)
        .args(["simulate", "holland", "--json", "--experiment", experiment, "--out"])
        .arg(out)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cinnabar-lab")?;
    ensure!(done.status.success(), "cinnabar-lab simulate holland: {}", done.status);
    let found: Value = serde_json::from_slice(&done.stdout).context("reading its JSON")?;
    let number = |key: &str| found[key].as_f64().with_context(|| format!("no number {key}"));
    let mut table =
        Table::new(&["figures", "runs", "M block I/Os", "seconds", "CPU seconds", "bar, seconds"]);
    table.row(vec![
        format!("{experiment}, scale 1/{:.0}", number("scale")?),
        format!("{:.0}", number("configurations")?),
        format!("{:.0}", number("block_ios")? / 1e6),
        format!("{:.1}", number("seconds")?),
        format!("{:.1}", number("cpu_seconds")?),
        format!("{FIGURES_BAR_S:.0}"),
    ]);
    Ok(table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_lines_are_read() {
        let text = "scale 1/64, 4194304 blocks on the file server\n  \
            2.53 M block I/Os a second (983040 in 0.39 s, 2.10 events each), digest 00\n  \
            at most 70 MiB of RAM so far\n  dependent DRAM read: 95 ns\n\
            scale 1/1, 268435456 blocks on the file server\n  \
            1.10 M block I/Os a second (62914560 in 57.20 s, 2.10 events each), digest 00\n  \
            at most 2900 MiB of RAM so far\n  dependent DRAM read: 190 ns\n";
        let row = |scale: &str, millions, ram_mib, dram_ns| Row {
            scale: scale.to_owned(),
            millions,
            ram_mib,
            dram_ns,
        };
        let wanted = [row("1/64", 2.53, 70.0, 95.0), row("1/1", 1.10, 2900.0, 190.0)];
        assert_eq!(rows(text).expect("it can be read"), wanted);
        assert!(rows("nothing").is_err() && rows("scale 1/64, but no more").is_err());
    }
}
