//! `cinnabar trace record`: what the guests of a running daemon's volumes ask for, as a trace.

mod lines;
mod report;
mod session;

use crate::cli::client::Daemon;
use cinnabar_config::volume::check_name;
use cinnabar_control::recordings::RecordInput;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_text::cli::parse::{duration, size};
use cinnabar_text::cli::trace_file::cannot_write;
use cinnabar_trace::TraceFile;
use report::{End, Report};
use session::{Limits, Sink};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What to record.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Records until Ctrl-C, or for --duration. Times are microseconds since the recording \
    began, when requests arrived; a volume's number in the trace is its place on this command line, and \
    is printed at the end. Guests never wait for a recording: what its reader is too slow for is dropped \
    and counted. A volume that is removed ends its part. The guide's page on recording tells more.\n\n\
    Examples:\n  \
    cinnabar trace record vm1 --out vm1.csv.zst\n  \
    cinnabar trace record vm1 vm2 --out two.csv.zst --duration 1h\n  \
    cinnabar trace record --all --out host.csv.zst --duration 24h --max-size 20GiB --json"
)]
pub(super) struct Args {
    /// The volumes' names
    #[arg(value_name = "VOLUME", required_unless_present = "all", conflicts_with = "all")]
    volumes: Vec<String>,
    /// Record all volumes that are served when it begins [default: those named]
    #[arg(long)]
    all: bool,
    /// The trace to write, compressed if its name ends in .zst; what is there is replaced at the end
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Record for so long [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// End when the trace has this size as text; compressed it is a fraction of that
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    max_size: u64,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let limits = check(args)?;
    let failed = |error: &std::io::Error| cannot_write(&args.out, error);
    // First of all: nobody wants to learn of a wrong path after a day.
    let file = TraceFile::create(&args.out).map_err(|error| failed(&error))?;
    let input = RecordInput { volumes: args.volumes.clone(), all: args.all };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::at_run_time(format!("no runtime: {error}"), ""))?;
    let mut sink = Sink::new(&args.out, file, limits.bytes_max);
    let end = runtime.block_on(session::record(&args.daemon, &input, &limits, &mut sink))?;
    let Sink { file, tally, .. } = sink;
    let file_bytes = file.finish().map_err(|error| failed(&error))?;
    let report = Report::new(&args.out, file_bytes, end, tally);
    warn(&report);
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&report.render())?;
    }
    if end == End::Lost {
        let message =
            format!("lost the daemon; {} has what was recorded until then", args.out.display());
        return Err(Failure::at_run_time(message, "look at the daemon's log"));
    }
    Ok(())
}

fn check(args: &Args) -> Result<Limits, Failure> {
    let mut names = args.volumes.clone();
    for name in &names {
        check_name(name)?;
    }
    names.sort_unstable();
    if let Some([name, _]) = names.array_windows().find(|[one, next]| one == next) {
        let message = format!("volume {name:?} is named twice");
        return Err(Failure::of_usage(message, "name each volume once"));
    }
    if args.duration.is_some_and(|duration| duration < Duration::from_millis(1)) {
        let hint = "record for a millisecond at least: --duration 10min";
        return Err(Failure::of_usage("there is no time to record", hint));
    }
    if args.max_size < session::LINE_BYTES_MAX {
        let message = format!("a trace of {} bytes holds no request", args.max_size);
        return Err(Failure::of_usage(message, "--max-size 1GiB is some 35 million requests"));
    }
    Ok(Limits { duration: args.duration, bytes_max: args.max_size })
}

/// Tells what is not as hoped for, but no failure.
fn warn(report: &Report) {
    let mut stderr = std::io::stderr().lock();
    for warning in report.warnings() {
        // If stderr is gone there is nobody to tell.
        let _gone = writeln!(stderr, "warning: {warning}");
    }
}
