//! `cinnabar-lab bench replay`: a block trace on real storage, with and without the cache.

use super::cache_args::CacheArgs;
use super::reports;
use crate::cli::parse::duration;
use cinnabar_bench::drive::Pace;
use cinnabar_bench::replay::{Plan, Progress, Replay, ReplayError, Row, Warm, Watch};
use cinnabar_bench::report::replay as report;
use cinnabar_bench::target::{DEPTH_MAX, UnitSpec, is_part};
use cinnabar_text::Failure;
use cinnabar_text::cli::{output, progress, report_file, talk};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to replay.
#[derive(Debug, clap::Args)]
#[command(after_help = "The writes of the trace overwrite what is on the targets, with noise; \
    --read-only-replay leaves them out. Flushes and discards are not replayed.\n\
    Open loop: each request is due at its own time, and its latency counts from then. \
    With --closed the next one starts when one is done.\n\
    With --warm the last period of the trace is the test, and each run begins with an empty cache \
    and plays so many periods before it, as fast as it goes and without the models (sim:) in front \
    of the targets.\n\n\
    Examples:\n  \
    cinnabar-lab bench replay vm.csv.zst --target /mnt/nfs/test.raw\n  \
    cinnabar-lab bench replay vm.csv.zst --target /mnt/nfs/test.raw --cache /ssd/c.img --cache-size 4GiB\n  \
    cinnabar-lab bench replay two.csv --target a.raw --target 'nbd+unix:///b?socket=b.sock' --speed 10\n  \
    cinnabar-lab bench replay days.csv.zst --target sim:filer:file:disk.raw --closed \\\n      \
    --cache c.img --cache-size 4GiB --cache-fresh --warm none,0,1,2,3 --html days.html")]
pub(super) struct Args {
    /// The trace: canonical, MSR, vscsi, oracleGeneral, blkparse, fio iolog, ..., told by its content;
    /// plain, gz, xz or zstd
    trace: PathBuf,
    /// Where a volume of the trace is played: a path, a backend or an NBD URI; one for each volume
    #[arg(long = "target", value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Fold what lies beyond a target's end into it [default: refuse]
    #[arg(long)]
    wrap: bool,
    /// Leave the writes of the trace out; nothing is overwritten [default: write]
    #[arg(long)]
    read_only_replay: bool,
    /// Write even to files and block devices that hold something, which is lost then [default: refuse;
    /// NBD exports are overwritten as they are]
    #[arg(long)]
    overwrite: bool,
    /// Runs: `none` is without the cache, a number is so many periods of warming
    /// [default: one run of the whole trace]
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = warm)]
    warm: Vec<Warm>,
    /// Length of a period; periods begin at multiples of it in the trace's time
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = period)]
    period: Duration,
    /// Play the trace's time so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Cut longer pauses of the trace to this [default: as they are]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_max: Option<Duration>,
    /// As fast as it goes: whenever a request is done, the next one starts [default: open loop]
    #[arg(long, conflicts_with_all = ["speed", "idle_max"])]
    closed: bool,
    /// Requests under way in a closed loop
    #[arg(long, value_name = "N", requires = "closed", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH)))]
    depth: u32,
    /// Write what happened in each row of time as lines of JSON [default: don't]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Length of a row of time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = period)]
    data_period: Duration,
    /// Write a report with charts [default: don't]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
    // Last: its heading goes on to what follows.
    #[command(flatten)]
    cache: CacheArgs,
}

const DEPTH: u32 = DEPTH_MAX as u32;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    check_reports(args)?;
    let mut watcher = Watcher::default();
    let replay = Replay::prepare(plan, &mut watcher).map_err(|error| explain(&error))?;
    watcher.keep_rows(args.data.as_deref())?;
    watcher.notes(&replay, args);
    let outcome = replay.run(&mut watcher).map_err(|error| explain(&error))?;
    watcher.finish()?;
    if let Some(path) = &args.html {
        let saved = report::page(&outcome).save(path);
        saved.map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    }
    if args.json {
        output::json(&outcome)?;
    } else {
        output::text(&report::render(&outcome, output::width()))?;
    }
    let failed =
        outcome.runs.iter().find_map(|run| Some((run.failures, run.first_failure.clone()?)));
    match failed {
        Some((count, first)) => Err(explain(&ReplayError::Failed { count, first })),
        None => Ok(()),
    }
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let warms = args.warm.iter().any(|warm| matches!(warm, Warm::Periods(_)));
    if let Some(device) = args.cache.device.as_ref().filter(|device| device.exists())
        && warms
        && !args.cache.fresh
    {
        // It may be a warm cache in use.
        return Err(Failure::of_usage(
            format!("{}: with --warm each run begins with an empty cache", device.display()),
            "--cache-fresh if what it holds may go, or name another file",
        ));
    }
    let pace = if args.closed {
        Pace::Closed { depth: args.depth as usize }
    } else {
        Pace::Open { from_ns: 0, speed: args.speed }
    };
    Ok(Plan {
        trace: args.trace.clone(),
        targets: args.targets.clone(),
        wrap: args.wrap,
        read_only: args.read_only_replay,
        overwrite: args.overwrite,
        pace,
        idle_max: args.idle_max,
        warm: args.warm.clone(),
        period: args.period,
        cache: args.cache.options()?,
        row: args.data_period,
    })
}

/// What would be lost if a report were written over it is found out before anything is made.
fn check_reports(args: &Args) -> Result<(), Failure> {
    let unit = |(index, place): (usize, &String)| UnitSpec {
        name: format!("target {index}"),
        places: vec![place.clone()],
        read_only: args.read_only_replay,
        cached: true,
    };
    let units: Vec<UnitSpec> = args.targets.iter().enumerate().map(unit).collect();
    if is_part(&units, args.cache.device.as_deref(), &args.trace) {
        let message = format!("{}: that is a target, or the cache", args.trace.display());
        return Err(Failure::of_usage(
            message,
            "the trace comes first, --target says where it goes",
        ));
    }
    for (flag, path) in [("--data", &args.data), ("--html", &args.html)] {
        let Some(path) = path else { continue };
        reports::check(flag, path, &units, args.cache.device.as_deref())?;
        report_file::keep(flag, path, [&args.trace], "the trace")?;
    }
    if args.data.is_some() && args.data == args.html {
        return Err(Failure::of_usage("--data and --html name one file", "name two"));
    }
    Ok(())
}

fn explain(error: &ReplayError) -> Failure {
    if error.is_usage() {
        Failure::of_usage(error.to_string(), error.hint())
    } else {
        Failure::at_run_time(error.to_string(), error.hint())
    }
}

/// Shows how far it is and keeps the rows.
#[derive(Default)]
struct Watcher {
    line: Option<progress::Progress>,
    data: Option<(PathBuf, BufWriter<File>)>,
    failed: Option<std::io::Error>,
}

impl Watcher {
    /// From now on, rows go to this file.
    fn keep_rows(&mut self, data: Option<&Path>) -> Result<(), Failure> {
        let open = |path: &Path| {
            let file = File::create(path).map_err(|error| {
                let message = format!("can't write {}: {error}", path.display());
                Failure::of_usage(message, "--data names the file for the rows")
            })?;
            Ok::<_, Failure>((path.to_owned(), BufWriter::new(file)))
        };
        self.data = data.map(open).transpose()?;
        Ok(())
    }

    /// What is written next begins a line of its own.
    fn wipe(&mut self) {
        self.line = None;
    }

    /// What the user should know of the run.
    fn notes(&mut self, replay: &Replay, args: &Args) {
        self.wipe();
        let survey = replay.survey();
        if replay.overwrites() {
            let targets = args.targets.join(", ");
            talk::line(format_args!("note: what is on {targets} is overwritten"));
        }
        if survey.left_out > 0 {
            let count = survey.left_out;
            talk::line(format_args!(
                "note: {count} flushes, discards and empty requests are left out"
            ));
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.wipe();
        let Some((path, file)) = &mut self.data else { return Ok(()) };
        let failed = self.failed.take().or_else(|| file.flush().err());
        failed.map_or(Ok(()), |error| {
            let message = format!("can't write {}: {error}", path.display());
            Err(Failure::at_run_time(message, "is the disk full?"))
        })
    }
}

impl Watch for Watcher {
    fn progress(&mut self, progress: &Progress) {
        self.line.get_or_insert_with(progress::Progress::new).show(|| match progress {
            Progress::Surveying { records } => format!("reading the trace: {records} records"),
            Progress::Warming { run, ios } => format!("warm {run}: warming, {ios} requests"),
            Progress::Playing { run, ios, mean_ms, elapsed } => {
                let seconds = elapsed.as_secs();
                format!("warm {run}: {ios} requests in {seconds} s, mean {mean_ms:.3} ms")
            }
        });
    }

    fn row(&mut self, row: &Row) {
        let Some((_, file)) = &mut self.data else { return };
        let written = serde_json::to_writer(&mut *file, row)
            .map_err(std::io::Error::from)
            .and_then(|()| file.write_all(b"\n"));
        // Told at the end: a run is worth more than its rows.
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}

fn warm(text: &str) -> Result<Warm, String> {
    match text {
        "none" => Ok(Warm::Without),
        _ => text
            .parse()
            .map(Warm::Periods)
            .map_err(|_| "write `none` or a number of periods, such as none,0,1,2,3".to_owned()),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => Err("it is less than 1ms".to_owned()),
        period => Ok(period),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.001..=1e6).contains(&speed) => Ok(speed),
        _ => Err("0.001 to 1000000 times as fast is possible".to_owned()),
    }
}
