//! `cinnabar-lab simulate hits`: what caches of many sizes would do for a trace, with each policy.

mod size;
mod traces;

use crate::cli::parse;
use cinnabar_bench::report::hits::{self as report, Simulated};
use cinnabar_engine::{Admission, Endurance};
use cinnabar_policy::Writes;
use cinnabar_study::hits::{
    Contender, EngineCache, EngineError, Grain, HitsError, Options, Run, Survey,
};
use cinnabar_text::cli::{output, report_file, talk};
use cinnabar_text::{Failure, chain};
use size::Size;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::thread;

/// Caches of one trace at a time: each keeps what it knows of every block.
const RUNS_MAX: usize = 1024;

/// What to simulate.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "References are single 4 KiB blocks, in the order of the file; each trace is \
    simulated by itself, with caches that are empty at first. `engine` is the cache that `serve` runs, \
    with its default settings but for --endurance, without I/O; it has whole segments, so a little less than asked \
    (`capacity_blocks`). `belady` knows the future: no cache that takes in every miss does better.\n\
    --writes says what a write does. as-reads: the same as a read. through: it is cached and goes to the \
    back end. around: it leaves the cache. back: it is cached and goes to the back end later.\n\
    The trace is read once (twice if a size is a percentage) and not kept: memory grows with its \
    different blocks, some 12 to 25 bytes each for each policy and size, and with the sizes of \
    `engine`, some 100 bytes a block. Only `belady` keeps 8 bytes a reference.\n\n\
    Examples:\n  \
    cinnabar-lab simulate hits vm.csv.zst\n  \
    cinnabar-lab simulate hits vm.csv.zst --policy lru,s3-fifo,engine --size 1GiB,4GiB,16GiB\n  \
    cinnabar-lab simulate hits vm.csv.zst --size 1%,2%,5%,10%,20%,50% --html curves.html\n  \
    cinnabar-lab simulate hits a.csv b.csv --policy engine --size 8GiB --writes through --json"
)]
pub(super) struct Args {
    /// Traces: canonical, MSR, SPC, vscsi, oracleGeneral, blkparse, fio iolog, ..., told by content;
    /// plain, gz, xz or zstd; `-` is stdin
    #[arg(required = true, value_name = "TRACE", value_parser = parse::trace_path())]
    traces: Vec<PathBuf>,
    /// Policies: lru, fifo, clock, sieve, s3-fifo, arc, larc, belady, engine
    /// [default: all that can be simulated]
    #[arg(long, value_name = "P[,P...]", value_delimiter = ',')]
    policy: Vec<Contender>,
    /// Sizes of the cache: blocks of 4 KiB (65536), bytes with a unit (1GiB), or parts of the different
    /// blocks in the trace (10%)
    #[arg(long, value_name = "S[,S...]", value_delimiter = ',', value_parser = size::parse,
          default_value = "1%,2%,5%,10%,20%,50%,100%")]
    size: Vec<Size>,
    /// What writes do: as-reads, through, around, back
    #[arg(long, value_name = "HOW", default_value_t)]
    writes: Writes,
    /// Price of a flash write, for `engine`: hits, balanced, save
    #[arg(long, value_name = "PRICE", default_value = "balanced", value_parser = parse::endurance)]
    endurance: Endurance,
    /// Way in which `engine` admits blocks while room is short: closed, thrifty, probation, open
    /// [default: it tries them out beside the cache]
    #[arg(long, value_name = "WAY", value_parser = parse::admission)]
    admission: Option<Admission>,
    /// Give `engine` each request's own sectors of 512 B; all others see whole blocks [default: the
    /// blocks of 4 KiB around it]
    #[arg(long)]
    exact: bool,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = jobs)]
    jobs: Option<NonZeroUsize>,
    /// Write a page with the curves [default: don't]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print a JSON object a line for each trace, policy and size [default: tables]
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        report_file::keep("--html", path, &args.traces, "the trace")?;
        report_file::check("--html", path)?;
    }
    let mut all = Vec::new();
    for path in &args.traces {
        let options = Options {
            runs: runs(args, &survey(args, path)?)?,
            writes: args.writes,
            endurance: args.endurance,
            admission: args.admission,
            grain: if args.exact { Grain::Sectors } else { Grain::Blocks },
            jobs: args
                .jobs
                .or_else(|| thread::available_parallelism().ok())
                .unwrap_or(NonZeroUsize::MIN),
        };
        let found = traces::simulate(path, &options)?;
        let trace = path.display().to_string();
        let simulated = Simulated { trace, writes: args.writes, exact: args.exact, found };
        let text = if args.json {
            report::lines(&simulated)?
        } else {
            report::render(&simulated, output::width())
        };
        output::text(&text)?;
        all.push(simulated);
    }
    if let Some(path) = &args.html {
        let saved = report::page(&all).save(path);
        saved.map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    }
    Ok(())
}

/// What is in the trace, if a size depends on it.
fn survey(args: &Args, path: &std::path::Path) -> Result<Survey, Failure> {
    if args.size.iter().any(Size::is_part) { traces::survey(path) } else { Ok(Survey::default()) }
}

/// Each policy at each size, in this order.
fn runs(args: &Args, survey: &Survey) -> Result<Vec<Run>, Failure> {
    let mut sizes: Vec<NonZeroU32> = Vec::new();
    for size in &args.size {
        let blocks = size.blocks(survey.blocks);
        if !sizes.contains(&blocks) {
            sizes.push(blocks);
        }
    }
    let mut contenders: Vec<Contender> = Vec::new();
    for contender in &args.policy {
        if !contenders.contains(contender) {
            contenders.push(*contender);
        }
    }
    let nobody_said = contenders.is_empty();
    if nobody_said {
        contenders.extend(Contender::all());
    }
    let mut runs = Vec::new();
    for contender in contenders {
        for &size_blocks in &sizes {
            let can = match contender {
                Contender::Engine => EngineCache::check(size_blocks, args.writes),
                Contender::Policy(_) => Ok(()),
            };
            match can {
                Ok(()) => runs.push(Run { contender, size_blocks }),
                Err(error) if nobody_said => note(size_blocks, error),
                Err(error) => return Err(traces::usage(&error.into())),
            }
        }
    }
    if runs.len() > RUNS_MAX {
        let message = format!("{} caches at a time, more than {RUNS_MAX}", runs.len());
        return Err(Failure::of_usage(message, "name fewer policies or sizes"));
    }
    Ok(runs)
}

fn note(size_blocks: NonZeroU32, error: EngineError) {
    talk::line(format_args!("note: engine is left out at {size_blocks} blocks: {error}"));
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse() {
        Ok(jobs) if jobs <= JOBS_MAX => Ok(jobs),
        _ => Err(format!("a number from 1 to {JOBS_MAX} is needed")),
    }
}

const JOBS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not 0");

/// One line, with the trace it is about.
fn explain(path: &std::path::Path, error: &HitsError) -> Failure {
    Failure::of_usage(format!("{}: {}", path.display(), chain(error)), error.hint())
}
