//! The SPC-1-like benchmark as an experiment: the engine's own cost, and what a cache does for disks.
//!
//! Everything is measured by `cinnabar-lab bench`, as users would.

mod desktop;
mod disks;
mod mock;
mod spared;

use crate::bench::{heading, publish};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Parts, in a list
    #[arg(long, value_enum, value_delimiter = ',', default_value = "mock,disks,desktop,spared")]
    part: Vec<Part>,
    /// Small and short: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Write the tables to this file, too [default: only to the terminal]
    #[arg(long, value_name = "FILE", hide_default_value = true)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Generator and engine alone, best of five
    Mock,
    /// Highest load on modelled disks, without the cache and with three sizes of it
    Disks,
    /// Mercury's desktop days on a modelled file server
    Desktop,
    /// Back-end I/Os in write-back, with and without flushes, beside write-through
    Spared,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut text = String::new();
    for part in &args.part {
        text += &match part {
            Part::Mock => mock::run(args.quick)?,
            Part::Disks => disks::run(args.quick)?,
            Part::Desktop => desktop::run(args.quick)?,
            Part::Spared => spared::run(args.quick)?,
        };
        text.push('\n');
    }
    let text = format!("{}\n{text}", heading("`cinnabar-lab bench`, SPC-1-like workload")?);
    publish(&text, args.output.as_deref())
}

/// What the program prints as JSON.
fn lab(args: &[&str]) -> Result<Value> {
    let binary = e2e::binary::lab()?;
    eprintln!("cinnabar-lab {}", args.join(" "));
    let done = Command::new(binary)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cinnabar-lab")?;
    anyhow::ensure!(done.status.success(), "cinnabar-lab {}: {}", args.join(" "), done.status);
    serde_json::from_slice(&done.stdout).context("reading its JSON")
}

/// A number of a JSON object, by its path.
fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("no number at {path}"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
