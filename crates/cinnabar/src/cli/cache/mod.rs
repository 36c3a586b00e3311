//! `cinnabar cache`: the cache device itself, of a running daemon or of none; and write logs of none.

mod check;
mod dump;
mod live;
mod mirror;
mod repair;
mod resize;
mod shards;
mod write_log;
mod writeback;

use crate::offline::Watch;
use crate::offline::report::StartReport;
use cinnabar_text::Failure;
use cinnabar_text::cli::progress::Progress;

/// What to do with a cache device.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a cache device or write log that no daemon uses, and tell what the next start will do
    Check(check::Args),
    /// Print what is on a cache device or write log that no daemon uses
    Dump(dump::Args),
    /// Repair a cache device that no daemon uses, or make its next start empty
    Repair(repair::Args),
    /// Bring the writes of a volume from a write log that no daemon uses to its back end
    Writeback(writeback::Args),
    /// Have a half of a mirrored write log count alone: the other one is lost
    Mirror(mirror::Args),
    /// Let a running daemon go on with another cache device
    Replace(live::ReplaceArgs),
    /// Give the cache of a running daemon another size
    Resize(resize::Args),
    /// Let a running daemon go on without a cache device
    Abandon(live::AbandonArgs),
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Check(args) => check::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Repair(args) => repair::run(args),
        Command::Writeback(args) => writeback::run(args),
        Command::Mirror(args) => mirror::run(args),
        Command::Replace(args) => live::replace(args),
        Command::Resize(args) => resize::run(args),
        Command::Abandon(args) => live::abandon(args),
    }
}

/// What is damaged, and what comes of it.
fn verdict(findings: &[String], more: u64, next_start: &StartReport) -> String {
    let mut parts = vec!["\n".to_owned()];
    parts.extend(findings.iter().map(|finding| format!("damaged: {finding}\n")));
    if more > 0 {
        parts.push(format!("damaged: and {more} more\n"));
    }
    parts.push(format!("next start: {}\n", next_start.text));
    parts.concat()
}

/// The end of a check that has found damage.
fn damage(device: &str, findings: &[String], more: u64, next_start: &StartReport) -> Failure {
    let message = match findings {
        [only] => format!("{device} is damaged: {only}"),
        findings => {
            let count = findings.len() as u64 + more;
            format!("{device} is damaged in {count} places")
        }
    };
    Failure::at_run_time(message, format!("at the next start, {}", next_start.text))
}

/// Shows how far an offline tool is.
struct Watcher {
    line: Progress,
    shard: Option<(u32, u32)>,
}

impl Watcher {
    fn new() -> Self {
        Self { line: Progress::new(), shard: None }
    }
}

impl Watch for Watcher {
    fn at(&mut self, what: &'static str, done: u64, of: u64) {
        let shard = self.shard;
        self.line.show(|| match shard {
            Some((shard, shards)) => {
                format!("shard {shard} of {shards}: {done} of {of} {what}")
            }
            None => format!("{done} of {of} {what}"),
        });
    }

    fn shard(&mut self, shard: u32, of: u32) {
        self.shard = Some((shard, of));
    }
}
