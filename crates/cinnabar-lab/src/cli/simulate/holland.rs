//! `cinnabar-lab simulate holland`: the published results of flash caching on the storage client, run
//! again, drawn, and judged.
//!
//! The experiments are data of `cinnabar-study`; here they are run and what came out is written down
//! by `cinnabar-bench`.

use cinnabar_bench::report::holland::{self as report, Found};
use cinnabar_study::holland::{Experiment, Measured, Setup, distinct, experiments};
use cinnabar_study::sweep::{self, Job, Limits};
use cinnabar_study::timed::Config;
use cinnabar_text::Failure;
use cinnabar_text::cli::output;
use cinnabar_text::cli::progress::Progress;
use clap::builder::PossibleValuesParser;
use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For all experiments.
const ALL: &str = "all";

/// What to run.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Experiments, in a list; --list names them
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', default_value = ALL,
        hide_possible_values = true, value_parser = names())]
    experiment: Vec<String>,
    /// Divides all sizes: 1 is the published terabyte, 64 gives the same figures within a per cent
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    scale: u32,
    /// Fixes what chance decides
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Configurations at a time [default: as many as there are cores and memory]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// Write figures (SVG), numbers (CSV) and a page (HTML) into this folder, which is made [default: none; --list needs none]
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// List the experiments and run nothing
    #[arg(long, conflicts_with = "out")]
    list: bool,
    /// Print a JSON object [default: tables]
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new([ALL].into_iter().chain(experiments::NAMES))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let setup = Setup { scale: args.scale, seed: args.seed };
    let mut chosen = experiments::all(setup);
    let wanted = |name: &str| args.experiment.iter().any(|wanted| wanted == ALL || wanted == name);
    chosen.retain(|experiment| wanted(experiment.name));
    let Some(out) = &args.out else { return list(&chosen, args.json) };
    report::prepare(out)?;
    let began = Instant::now();
    let measured = measure(&chosen, args.jobs)?;
    let found = Found::new(setup, &chosen, &measured, began.elapsed());
    report::write(&chosen, &found, out)?;
    if args.json {
        output::json(&found)?;
    } else {
        output::text(&report::all(&found, out, output::width()))?;
    }
    verdict(&found, setup)
}

fn list(chosen: &[Experiment], json: bool) -> Result<(), Failure> {
    let rows: Vec<_> = chosen.iter().map(report::Listed::new).collect();
    if json { output::json(&rows) } else { output::text(&report::list(&rows, output::width())) }
}

/// Runs every configuration once.
fn measure(chosen: &[Experiment], jobs: Option<NonZeroUsize>) -> Result<Measured, Failure> {
    let wanted: Vec<Config> = chosen.iter().flat_map(Experiment::configs).collect();
    let mut configs = distinct(wanted.iter());
    let job = |config: &Config| {
        let sets_gb = config.working_set_blocks >> 18;
        Job::generated(format!("a run with {} hosts and {sets_gb} GB", config.hosts), *config)
    };
    // The long ones first, so that none of them is left for the end.
    configs.sort_by_key(|config| Reverse(job(config).ios()));
    let jobs_list: Vec<_> = configs.iter().map(job).collect();
    let machine = Limits::of_this_machine();
    let limits = Limits { threads: jobs.map_or(machine.threads, NonZeroUsize::get), ..machine };
    let mut line = Progress::new();
    let outcomes = sweep::outcomes(&jobs_list, &limits, &mut |progress| {
        line.show(|| {
            let left = progress.left().map_or(0, |left: Duration| left.as_secs());
            let rate = progress.ios_per_second() / 1e6;
            let sweep::Progress { jobs_done, jobs, .. } = progress;
            format!("{jobs_done} of {jobs} runs, {rate:.1} M I/Os/s, {left} s left")
        });
    });
    let outcomes =
        outcomes.map_err(|error| Failure::at_run_time(error.to_string(), error.hint()))?;
    Ok(Measured::new(configs, outcomes))
}

fn verdict(found: &Found, setup: Setup) -> Result<(), Failure> {
    let missed: Vec<_> = found.missed().collect();
    let Some(first) = missed.first() else { return Ok(()) };
    let message = match missed.len() {
        1 => format!("a published result does not hold: {first}"),
        several => format!("{several} checks of published results do not hold, the first: {first}"),
    };
    let hint = if setup.scale > 64 {
        "few blocks are left at this scale; try --scale 64"
    } else {
        "the page shows what was measured; does it hold with another --seed?"
    };
    Err(Failure::at_run_time(message, hint))
}
