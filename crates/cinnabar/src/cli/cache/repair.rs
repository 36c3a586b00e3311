//! `cinnabar cache repair`: the superblock's copies, and the word that nothing is to be believed.
//!
//! Called by the command line.

use crate::cli::failure::Failure;
use crate::cli::output;
use crate::offline::Image;
use crate::offline::repair::{Repair, carry_out, plan};
use crate::offline::superblocks::Superblocks;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// What to repair.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only what needs no guess is repaired: a damaged copy of the superblock is \
    written anew from the good one. Whatever else is damaged, a start drops by itself.\n\
    With --cold the next start believes nothing that is cached; data on the back ends are not \
    touched.\n\n\
    Examples:\n  \
    cinnabar cache repair cache.img\n  \
    cinnabar cache repair cache.img --cold --yes"
)]
pub(in crate::cli) struct Args {
    /// The cache device: a file or a block device
    device: PathBuf,
    /// Make the next start empty [default: keep what is cached]
    #[arg(long)]
    cold: bool,
    /// Don't ask [default: ask before --cold]
    #[arg(long)]
    yes: bool,
    /// Print a JSON object [default: a line]
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(in crate::cli) fn run(args: &Args) -> Result<(), Failure> {
    let device = args.device.display().to_string();
    // Locked before it is looked at, and until all is written.
    let image = Image::open_to_write(&args.device)?;
    let repair = plan(&Superblocks::read(&image), &device, args.cold)?;
    if repair == Repair::Cold && !args.yes {
        ask(&device)?;
    }
    carry_out(&image, &device, repair)
        .map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    if args.json {
        return output::json(&serde_json::json!({ "device": device, "repair": repair }));
    }
    output::text(&format!("{device}: {}\n", told(repair)))
}

fn told(repair: Repair) -> String {
    match repair {
        Repair::Nothing => "nothing to repair".to_owned(),
        Repair::Copy { page } => format!("wrote copy {page} of the superblock anew"),
        Repair::Cold => "the next start will be empty".to_owned(),
    }
}

/// Asks whether all that is cached may go. Where nobody can answer, the answer is no.
fn ask(device: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{device}: not made empty, for nobody is there to be asked");
        return Err(Failure::of_usage(message, "add --yes if you mean it"));
    }
    let mut stderr = std::io::stderr().lock();
    // If stderr is gone the question is not seen, and the answer below decides.
    let _gone = write!(stderr, "Forget everything that is cached on {device}? [y/N] ");
    let _gone = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::at_run_time(format!("{device}: left as it is"), "answer y, or --yes")),
    }
}
