//! `urd` against `centaur` by the production engine, in virtual time.

use super::example;
use crate::traces;
use anyhow::Result;
use std::path::PathBuf;

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seeds of the samples [default: 5]
    #[arg(long, value_name = "N", hide_default_value = true)]
    seeds: Option<u32>,
    /// Another part of Centaur's latency that urd's plans are to keep to [default: as urd has it]
    #[arg(long, value_name = "PART", hide_default_value = true)]
    margin: Option<f64>,
    /// Only this set: `self_loop4` or `sixteen` [default: both]
    #[arg(long, value_name = "NAME", hide_default_value = true)]
    only: Option<String>,
    /// Folder of traces [default: those in the tree, and those in the folder that `CINNABAR_TRACES` names]
    #[arg(long, value_name = "FOLDER", hide_default_value = true)]
    traces: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let trace = traces::find("self_loop4", args.traces.as_deref())?;
    let mut passed = vec![trace.to_string_lossy().into_owned()];
    let options = [
        ("--seeds", args.seeds.map(|seeds| seeds.to_string())),
        ("--margin", args.margin.map(|margin| margin.to_string())),
        ("--only", args.only.clone()),
    ];
    for (option, value) in options {
        if let Some(value) = value {
            passed.extend([option.to_owned(), value]);
        }
    }
    example("shares", &passed)
}
