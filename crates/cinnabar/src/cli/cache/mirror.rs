//! `cinnabar cache mirror`: the operator's word on the halves of a mirrored write log.

use crate::offline::write_log::stand_alone;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use std::path::PathBuf;

/// Which half.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A half that had another one is not used without it: the other one may have gone on alone \
    and hold newer writes. If it is lost for good, this says so, durably. Stop the daemon first.\n\
    Should the lost half come back after all, it is not believed, but filled like an empty one. If it went on \
    alone before, the log is refused until you empty one of the two.\n\n\
    Examples:\n  \
    cinnabar cache check /dev/nvme0n1p2\n  \
    cinnabar cache mirror /dev/nvme0n1p2 --alone"
)]
pub(in crate::cli) struct Args {
    /// The half that is there: a file or a block device
    device: PathBuf,
    /// It counts alone from now on: the other half is lost for good
    #[arg(long, required = true)]
    alone: bool,
    /// Print a JSON object [default: a line]
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    let (mark, was) = stand_alone(&args.device)?;
    let device = args.device.display().to_string();
    if args.json {
        return output::json(&serde_json::json!({
            "device": device,
            "alone": args.alone,
            "was_alone": was,
            "generation": mark.generation,
        }));
    }
    output::text(&if was {
        format!("{device}: it counts alone already\n")
    } else {
        format!("{device}: it counts alone now\n")
    })
}
