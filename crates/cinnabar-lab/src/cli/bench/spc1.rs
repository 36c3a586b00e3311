//! `cinnabar-lab bench spc1`: the SPC-1-like benchmark.
//!
//! Flags and closing lines are those of pblio, so that results compare.

mod places;

use super::cache_args::CacheArgs;
use super::reports;
use crate::cli::parse::{duration, size};
use cinnabar_bench::report::spc1 as report;
use cinnabar_bench::spc1::{
    BenchError, LIMIT, Plan, Progress, Report, Search, find_max, mock, run,
};
use cinnabar_bench::target::guard;
use cinnabar_engine::metadata::superblock::Geometry;
use cinnabar_text::Failure;
use cinnabar_text::cli::{output, progress, talk};
use cinnabar_text::show_size;
use cinnabar_trace::generate::spc1::{BLOCK_BYTES, BSU_MAX, Mix, Settings, WALK_BLOCKS_MIN};
use places::Places;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Load of a run, in BSUs, and of the first step of a search.
const BSU: u32 = 50;
const BSU_FIRST: u32 = 4;

/// What to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "WHAT THE ASUs HOLD IS OVERWRITTEN.\n\
    An ASU is one place or several one after the other: files, block devices, backends \
    (file:PATH, nbd:..., sim:...) or NBD URIs. ASU1 and ASU2 are of one size, ASU3 has at least \
    2/9 of it: 45 : 45 : 10. ASU3 is a log; it bypasses the cache.\n\
    One BSU is 50 I/Os a second in eight streams. The figure of merit is the highest number of \
    BSUs whose mean response time is at most 30 ms; --find-max looks for it.\n\
    It is like SPC-1, after Daniel and Faith (IISWC 2005); results are not comparable with \
    published SPC-1 results.\n\n\
    Examples:\n  \
    truncate -s 45M asu1 asu2 && truncate -s 10M asu3\n  \
    cinnabar-lab bench spc1 --asu1 asu1 --asu2 asu2 --asu3 asu3 --bsu 2 --runlen 30\n  \
    cinnabar-lab bench spc1 --asu1 asu1 --asu2 asu2 --asu3 asu3 --bsu 2 --runlen 30 \\\n      \
    --cache /ssd/cache.img --cache-size 1GiB --html report.html\n  \
    cinnabar-lab bench spc1 --asu1 /dev/sdb,/dev/sdc --asu2 /dev/sdd,/dev/sde --asu3 /dev/sdf \\\n      \
    --find-max --cache /ssd/cache.img --cache-size 64GiB\n  \
    cinnabar-lab bench spc1 --mock --cache-size 2GiB --bsu 100 --runlen 10")]
pub(super) struct Args {
    /// ASU1, the data store; several in a list, or several times [default: none, needed]
    #[arg(long, value_name = "F[,F]", required_unless_present = "mock")]
    asu1: Vec<Places>,
    /// ASU2, the user store [default: none, needed]
    #[arg(long, value_name = "F[,F]", required_unless_present = "mock")]
    asu2: Vec<Places>,
    /// ASU3, the log [default: none, needed]
    #[arg(long, value_name = "F[,F]", required_unless_present = "mock")]
    asu3: Vec<Places>,
    /// Business scaling units: 50 I/Os a second each [default: 50; with --find-max, which begins there, 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(BSU_MAX)))]
    bsu: Option<u32>,
    /// Length of the run, in seconds or with a unit; of what is measured of a step with --find-max
    /// [default: 300, or 20 with --find-max]
    #[arg(long, value_name = "S", value_parser = seconds)]
    runlen: Option<Duration>,
    /// Shares of reads: pblio's (55 %) or SPC-1's (40 %)
    #[arg(long, value_enum, default_value_t)]
    mix: MixArg,
    /// Gives the same I/Os again [default: drawn at random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Find the highest number of BSUs within the limit, without the cache and with it, warm
    /// [default: one run at --bsu]
    #[arg(long, conflicts_with_all = ["mock", "data"])]
    find_max: bool,
    /// Longest mean response time
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "30ms", requires = "find_max")]
    limit: Duration,
    /// With --find-max: leave the search without the cache out [default: both]
    #[arg(long, requires_all = ["find_max", "device"])]
    cache_only: bool,
    /// With --find-max: longest warming of the cache; it ends when the hit ratio rises no more
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "12h", requires = "find_max")]
    warm_max: Duration,
    /// Media that take no time and hold nothing, and no pace: what generator and cache cost
    /// [default: real storage]
    #[arg(long, conflicts_with_all = ["asu1", "asu2", "asu3", "device", "data", "html"])]
    mock: bool,
    /// With --mock: sizes of the ASUs
    #[arg(
        long,
        value_name = "SIZE,SIZE,SIZE",
        requires = "mock",
        default_value = "9GiB,9GiB,2GiB"
    )]
    mock_sizes: MockSizes,
    /// Write a JSON object a period into this file [default: none]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Length of a period [default: 60s, or a thirtieth of a shorter run]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    dataperiod: Option<Duration>,
    /// Write a report with charts into this file [default: none]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print a JSON object [default: text]
    #[arg(long)]
    json: bool,
    /// Overwrite files and block devices even if they hold something [default: refuse; NBD exports are
    /// overwritten as they are]
    #[arg(long)]
    overwrite: bool,
    // The last, for its heading holds for all that comes after it.
    #[command(flatten)]
    cache: CacheArgs,
}

/// Sizes of three ASUs in bytes.
#[derive(Clone, Copy, Debug)]
struct MockSizes([u64; 3]);

impl std::str::FromStr for MockSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split(',').map(size).collect::<Result<Vec<u64>, String>>()?;
        let sizes = sizes.try_into();
        sizes.map(Self).map_err(|_| "it takes three sizes: 9GiB,9GiB,2GiB".into())
    }
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum MixArg {
    #[default]
    Pblio,
    Spc1,
}

/// Seconds as pblio takes them, or a time with its unit.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(u64::from(seconds)),
        Err(_) => duration(text)?,
    };
    let bounds = Duration::from_millis(100)..=Duration::from_hours(7 * 24);
    if bounds.contains(&time) { Ok(time) } else { Err("it must be from 0.1 s to 7 d".into()) }
}

fn limit(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let bounds = Duration::from_micros(1)..=Duration::from_hours(1);
    if bounds.contains(&time) { Ok(time) } else { Err("it must be from 1us to 1h".into()) }
}

pub(super) fn run_command(args: &Args) -> Result<(), Failure> {
    if args.mock {
        return run_mock(args);
    }
    let plan = plan(args)?;
    prepare(args, &plan)?;
    if args.find_max {
        return find_maximum(args, &plan);
    }
    let mut data = args.data.as_deref().map(Data::create).transpose()?;
    let mut line = progress::Progress::new();
    let report = run(&plan, &mut |progress| {
        if let (Some(data), Some(period)) = (&mut data, progress.period) {
            data.add(period);
        }
        line.show(|| show_progress(progress));
        true
    });
    drop(line);
    let report = report.map_err(|error| failure(&error))?;
    if let Some(data) = data {
        data.finish(&report)?;
    }
    if let Some(path) = &args.html {
        save(&report::of_run(&report), path)?;
    }
    if args.json {
        output::json(&report)
    } else {
        output::text(&report::run(&report, output::width()))
    }
}

fn run_mock(args: &Args) -> Result<(), Failure> {
    let cache_bytes = args.cache.size_bytes.unwrap_or(0);
    if cache_bytes > Geometry::BYTES_MAX {
        return Err(Failure::of_usage(
            format!("--cache-size: {} is more than --mock can hold", show_size(cache_bytes)),
            format!(
                "choose up to {}; it takes 20 B of RAM a block",
                show_size(Geometry::BYTES_MAX)
            ),
        ));
    }
    let settings = Settings {
        bsu: args.bsu.unwrap_or(BSU),
        mix: args.mix.into(),
        asu_blocks: args.mock_sizes.0.map(|bytes| bytes / BLOCK_BYTES),
        seed: args.seed.map_or_else(random_seed, Ok)?,
    };
    let length = args.runlen.unwrap_or(Duration::from_secs(10));
    let mut line = progress::Progress::new();
    let report = mock(&settings, cache_bytes, length, &mut |elapsed, ios| {
        let rate = ios as f64 / elapsed.as_secs_f64().max(1e-3);
        line.show(|| {
            format!("{:.0} of {:.0} s, {rate:.0} IOPS", elapsed.as_secs_f64(), length.as_secs_f64())
        });
        true
    });
    drop(line);
    let report = report.map_err(|error| failure(&error))?;
    if args.json {
        output::json(&report)
    } else {
        output::text(&report::mock(&report, output::width()))
    }
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let all = |lists: &[Places]| lists.iter().flat_map(|places| places.0.clone()).collect();
    let usual = Duration::from_secs(if args.find_max { 20 } else { 300 });
    let length = args.runlen.unwrap_or(usual);
    let period = args.dataperiod.unwrap_or_else(|| (length / 30).min(Duration::from_mins(1)));
    Ok(Plan {
        asus: [all(&args.asu1), all(&args.asu2), all(&args.asu3)],
        bsu: args.bsu.unwrap_or(BSU),
        length,
        mix: args.mix.into(),
        seed: args.seed.map_or_else(random_seed, Ok)?,
        cache: args.cache.options()?,
        period: period.max(Duration::from_millis(100)),
    })
}

impl From<MixArg> for Mix {
    fn from(mix: MixArg) -> Self {
        match mix {
            MixArg::Pblio => Self::Pblio,
            MixArg::Spc1 => Self::Spc1,
        }
    }
}

/// Of 32 bits, so that it can be typed again.
fn random_seed() -> Result<u64, Failure> {
    let bytes: [u8; 4] = cinnabar_backend::entropy::bytes().map_err(|error| {
        Failure::at_run_time(format!("no random seed: {error}"), "name one: --seed 1")
    })?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// Every check, before anything is made or overwritten; and what people should know before they wait.
fn prepare(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let units = plan.units();
    let cache = plan.cache.as_ref().map(|cache| cache.device.as_path());
    for (flag, path) in [("--data", &args.data), ("--html", &args.html)] {
        path.as_deref().map_or(Ok(()), |path| reports::check(flag, path, &units, cache))?;
    }
    let settings = plan.check().map_err(|error| failure(&error))?;
    let guarded = guard(&units, args.overwrite).map_err(BenchError::from);
    guarded.map_err(|error| failure(&error))?;
    talk::line(format_args!("note: what the ASUs hold is overwritten; seed {}", plan.seed));
    if settings.asu_blocks[0] < WALK_BLOCKS_MIN {
        talk::line(
            "warning: ASUs below 80 MiB make the random walk degenerate: it has fewer levels than steps",
        );
    }
    Ok(())
}

/// `--find-max`.
fn find_maximum(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let mut line = progress::Progress::new();
    let report = find_max(plan, search(args, plan.length), &mut |progress| {
        line.show(|| show_progress(progress));
        true
    });
    drop(line);
    let report = report.map_err(|error| failure(&error))?;
    if let Some(path) = &args.html {
        save(&report::of_search(&report), path)?;
    }
    if args.json {
        return output::json(&report);
    }
    output::text(&report::render_search(&report, output::width()))
}

fn show_progress(progress: &Progress) -> String {
    let Progress { phase, elapsed, of, ios, mean_ms, .. } = progress;
    let elapsed = elapsed.as_secs_f64();
    let rate = *ios as f64 / elapsed.max(1e-3);
    let of = of.map_or_else(String::new, |of| format!(" of {:.0}", of.as_secs_f64()));
    let mean = if *mean_ms > 0.0 { format!(", mean {mean_ms:.3} ms") } else { String::new() };
    format!("{phase}: {elapsed:.0}{of} s, {rate:.0} IOPS{mean}")
}

fn failure(error: &BenchError) -> Failure {
    // The library's hints speak of its own options.
    let hint = match error {
        BenchError::Target(cinnabar_bench::target::TargetError::Cache(_)) => {
            "see --cache, --cache-size and --cache-fresh in --help"
        }
        error => error.hint(),
    };
    if error.of_usage() {
        Failure::of_usage(error.to_string(), hint)
    } else {
        Failure::at_run_time(error.to_string(), hint)
    }
}

fn save(page: &cinnabar_bench::report::page::Page, path: &Path) -> Result<(), Failure> {
    page.save(path).map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))
}

/// The file of `--data`.
struct Data {
    path: PathBuf,
    file: BufWriter<File>,
    failed: Option<std::io::Error>,
    rows: usize,
}

impl Data {
    /// Made before the run, so that a wrong path costs nothing.
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Self::failure(path, &error))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), failed: None, rows: 0 })
    }

    fn add(&mut self, row: &cinnabar_bench::meter::Period) {
        let written = serde_json::to_writer(&mut self.file, row).map_err(std::io::Error::from);
        let written =
            written.and_then(|()| self.file.write_all(b"\n")).and_then(|()| self.file.flush());
        self.failed = self.failed.take().or(written.err());
        self.rows += 1;
    }

    /// The last row is only known at the end.
    fn finish(mut self, report: &Report) -> Result<(), Failure> {
        for row in &report.periods[self.rows.min(report.periods.len())..] {
            self.add(row);
        }
        match &self.failed {
            Some(error) => Err(Self::failure(&self.path, error)),
            None => Ok(()),
        }
    }

    fn failure(path: &Path, error: &std::io::Error) -> Failure {
        let message = format!("can't write {}: {error}", path.display());
        Failure::at_run_time(message, "check the folder and how much room it has")
    }
}

const _: () = assert!(LIMIT.as_millis() == 30, "the help says so");

fn search(args: &Args, length: Duration) -> Search {
    Search {
        limit: args.limit,
        start: args.bsu.unwrap_or(BSU_FIRST),
        window: Duration::from_secs(4).min(length),
        cache_only: args.cache_only,
        warm_max: args.warm_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_as_pblio_has_them_and_times() {
        assert_eq!(seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(seconds("0").is_err() && seconds("-3").is_err() && seconds("99d").is_err());
    }
}
