//! Hit ratios and flash writes of the engine on recorded traces, beside CLOCK's.

use super::example;
use crate::traces;
use anyhow::Result;
use std::path::PathBuf;

/// The traces whose counts by CLOCK are known.
const TRACES: [&str; 2] = ["cp_vscsi", "self_loop4"];

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only this trace [default: all that are there]
    #[arg(value_parser = TRACES, hide_default_value = true)]
    trace: Option<String>,
    /// Folder of traces [default: those in the tree, and those in the folder that `CINNABAR_TRACES` names]
    #[arg(long, value_name = "FOLDER", hide_default_value = true)]
    traces: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let names = args.trace.as_deref().map_or(TRACES.to_vec(), |name| vec![name]);
    let found = traces::find_some(&names, args.traces.as_deref())?;
    let files: Vec<String> =
        found.into_iter().map(|(_, path)| path.to_string_lossy().into_owned()).collect();
    example("hit_table", &files)
}

/// Runs shifts of the workload, and alternating phases.
pub(crate) fn phases() -> Result<()> {
    example("hit_phases", &[])
}

/// What to run of the table over families and sizes.
#[derive(clap::Args, Debug)]
pub(crate) struct FamiliesArgs {
    /// Only families and traces whose names hold this [default: all]
    #[arg(long, value_name = "TEXT", hide_default_value = true)]
    only: Option<String>,
    /// Cache sizes, in % of the blocks that are touched [default: 1,2,5,10,25,50,75,100,125,150]
    #[arg(long, value_name = "LIST", hide_default_value = true)]
    sizes: Option<String>,
    /// Price of a flash write: hits, balanced, save [default: balanced]
    #[arg(long, value_name = "PRICE", hide_default_value = true)]
    endurance: Option<String>,
    /// Leave out the further runs that tell why a cell has too many misses
    #[arg(long)]
    quick: bool,
    /// Folder of traces [default: those in the tree, and those in the folder that `CINNABAR_TRACES` names]
    #[arg(long, value_name = "FOLDER", hide_default_value = true)]
    traces: Option<PathBuf>,
}

/// Recorded traces that the table has, where they are at hand.
const FAMILY_TRACES: [&str; 5] =
    ["cp_vscsi", "self_loop4", "ms_dtrs", "arc_OLTP", "tencent_cbs_50k"];

/// Runs it.
pub(crate) fn families(args: &FamiliesArgs) -> Result<()> {
    let found = traces::find_some(&FAMILY_TRACES, args.traces.as_deref())?;
    let mut passed = Vec::new();
    for (option, value) in
        [("--only", &args.only), ("--sizes", &args.sizes), ("--endurance", &args.endurance)]
    {
        if let Some(value) = value {
            passed.extend([option.to_owned(), value.clone()]);
        }
    }
    passed.extend(args.quick.then(|| "--quick".to_owned()));
    passed.extend(found.into_iter().map(|(_, path)| path.to_string_lossy().into_owned()));
    example("hit_families", &passed)
}
