//! `cinnabar cache repair`: the superblock's copies, and the word that nothing is to be believed.

use crate::offline::repair::{Repair, carry_out, plan};
use crate::offline::{Image, Regions};
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// What to repair.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only what needs no guess is repaired: a damaged copy of the superblock is \
    rewritten from the good one. Whatever else is damaged, a start drops by itself.\n\
    With --cold the next start believes nothing that is cached; data on the back ends are not \
    touched. Each shard of a device is repaired by itself.\n\n\
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
    let regions = Regions::read(&image);
    regions.known(&device)?;
    let plans: Vec<_> =
        regions.all.iter().map(|region| (region, plan(region, &device, args.cold))).collect();
    if plans.iter().any(|(_, plan)| *plan == Ok(Repair::Cold)) && !args.yes {
        ask(&device)?;
    }
    // A region that can't be repaired does not keep the others from it.
    let mut failures = Vec::new();
    let mut repaired = 0;
    for (region, plan) in plans {
        let outcome = plan.map_err(Failure::from).and_then(|repair| {
            let done = carry_out(&image, region, &device, repair);
            done.map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
            Ok(repair)
        });
        repaired += u64::from(outcome.as_ref().is_ok_and(|repair| *repair != Repair::Nothing));
        tell(args, &device, region.shard, &outcome)?;
        failures.extend(outcome.err());
    }
    let shards = regions.all.len();
    if shards > 1 {
        let failed = failures.len();
        if args.json {
            output::json(&serde_json::json!({
                "device": device, "shards": shards, "repaired": repaired, "failed": failed
            }))?;
        } else {
            output::text(&format!(
                "{device}: {repaired} of {shards} shards repaired, {failed} can't be\n"
            ))?;
        }
    }
    // The worst of all; each has had its line.
    failures.into_iter().reduce(|a, b| if b.code > a.code { b } else { a }).map_or(Ok(()), Err)
}

/// A line about a region. What fails on a device with one shard is told on stderr alone.
fn tell(
    args: &Args,
    device: &str,
    shard: Option<u32>,
    outcome: &Result<Repair, Failure>,
) -> Result<(), Failure> {
    let name = shard.map_or_else(String::new, |shard| format!("shard {shard}: "));
    match (shard, outcome) {
        (None, Err(_)) => Ok(()),
        (None, Ok(repair)) if args.json => {
            output::json(&serde_json::json!({ "device": device, "repair": repair }))
        }
        (Some(shard), outcome) if args.json => output::json(&serde_json::json!({
            "device": device,
            "shard": shard,
            "repair": outcome.as_ref().ok(),
            "error": outcome.as_ref().err().map(|failure| &failure.message),
        })),
        (_, Ok(repair)) => output::text(&format!("{device}: {name}{}\n", told(*repair))),
        (_, Err(failure)) => output::text(&format!("{}\n", failure.message)),
    }
}

fn told(repair: Repair) -> String {
    match repair {
        Repair::Nothing => "nothing to repair".to_owned(),
        Repair::Copy { page } => format!("rewrote copy {page} of the superblock"),
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
