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

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let names = args.trace.as_deref().map_or(TRACES.to_vec(), |name| vec![name]);
    let found = traces::find_some(&names, args.traces.as_deref())?;
    let files: Vec<String> =
        found.into_iter().map(|(_, path)| path.to_string_lossy().into_owned()).collect();
    example("hit_table", &files)
}
