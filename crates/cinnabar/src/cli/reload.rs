//! `cinnabar reload`: the configuration file read again by a running daemon.

use super::client::Daemon;
use cinnabar_control::reload::report::{
    ChangeReport, KeptReport, ReloadInput, ReloadReport, RestartReport,
};
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use hyper::Method;
use std::io::Write;

/// What to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file is checked as a whole first; if something is wrong nothing is changed. \
    Volumes that are new in it are added, settings that can change are changed, everything else is \
    named with \"needs a restart\". SIGHUP does the same, without --remove-volumes; the log says \
    what came of it. Exit code 1 if a change failed, 2 if the file is wrong.\n\n\
    Examples:\n  \
    cinnabar reload --dry-run\n  \
    cinnabar reload --socket /run/cinnabar/control.sock\n  \
    cinnabar reload --remove-volumes --json"
)]
pub(super) struct Args {
    /// Show what would be changed [default: change it]
    #[arg(long)]
    dry_run: bool,
    /// Remove volumes that have left the file; nothing is changed if one has clients, or writes that
    /// its backend does not have [default: they are served on, and named]
    #[arg(long)]
    remove_volumes: bool,
    /// Print a JSON object [default: a line for each difference]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let input = ReloadInput { dry_run: args.dry_run, remove_volumes: args.remove_volumes };
    let report: ReloadReport = args.daemon.send(Method::POST, "/v1/reload", &input)?;
    for warning in &report.warnings {
        let _gone = writeln!(std::io::stderr().lock(), "warning: {warning}");
    }
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&text_of(&report))?;
    }
    let failed = report.failures().count();
    let Some(first) = report.failures().next() else { return Ok(()) };
    let message = format!("{failed} of {} changes failed", report.changes.len());
    Err(Failure::at_run_time(message, first.hint.clone()))
}

/// A line for each difference.
fn text_of(report: &ReloadReport) -> String {
    let changes = report.changes.iter().map(ChangeReport::line);
    let restart = report.restart.iter().map(RestartReport::line);
    let kept = report.kept.iter().map(KeptReport::line);
    let lines: Vec<String> = changes.chain(restart).chain(kept).collect();
    if lines.is_empty() {
        return format!("{}: nothing has changed\n", report.file);
    }
    lines.join("\n") + "\n"
}
