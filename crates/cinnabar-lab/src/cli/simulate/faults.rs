//! `cinnabar-lab simulate faults`: the production engine under a virtual clock, with faults from a seed.

use cinnabar_sim::faults::{Summary, search, seed_under_way};
use cinnabar_sim::{Counted, Failed, FaultOptions, Tally, pairs};
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::cli::{output, talk};
use cinnabar_text::{Failure, Table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// What to look for.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "F", default_value_t = 0)]
    first: u64,
    /// Run this one only [default: those of --first and --seeds]
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Have backend I/O wait for its turn, as volumes with reservations and limits do
    #[arg(long)]
    qos: bool,
    /// Seeds at a time [default: as many as there are cores]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZeroUsize>,
    /// Fail if a kind of fault or a recovery path was never met [default: list them]
    #[arg(long)]
    all_kinds: bool,
    /// Fail if two things that can happen together never did [default: count them]
    #[arg(long)]
    all_pairs: bool,
    /// Print a JSON object [default: tables]
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (first, seeds) = args.seed.map_or((args.first, args.seeds), |seed| (seed, 1));
    let end = first.checked_add(seeds).ok_or_else(|| {
        let message = format!("there are no {seeds} seeds from {first} on");
        Failure::of_usage(message, format!("the last seed is {}", u64::MAX - 1))
    })?;
    tell_the_seed_of_a_panic(args.qos);
    let threads = args.jobs.map(NonZeroUsize::get);
    let options =
        FaultOptions { threads, qos_queues: args.qos, regions: None, ..FaultOptions::default() };
    let mut line = Progress::new();
    let summary = search(first..end, &options, |progress| {
        line.show(|| {
            let rate = progress.done as f64 / progress.elapsed.as_secs_f64().max(1e-3);
            format!(
                "{} of {} seeds, {rate:.1} seeds/s, {} failed",
                progress.done, progress.of, progress.failed
            )
        });
    });
    drop(line);
    let found = Found::new(first, &summary, args.qos);
    if args.json {
        output::json(&found)?;
    } else {
        output::text(&render(&found))?;
    }
    verdict(&found, args.all_kinds, args.all_pairs)
}

fn verdict(found: &Found, all_kinds: bool, all_pairs: bool) -> Result<(), Failure> {
    if let Some(failed) = found.failures.first() {
        let message = format!("{} of {} seeds failed", found.failures.len(), found.seeds);
        return Err(Failure::at_run_time(message, format!("repeat it: {}", failed.repeat)));
    }
    if all_kinds && !found.never_met.is_empty() {
        let message = format!("never met: {}", found.never_met.join(", "));
        return Err(Failure::at_run_time(message, "run more seeds: --seeds"));
    }
    if all_pairs && !found.pairs_unmet.is_empty() {
        let (unmet, of) = (found.pairs_unmet.len(), found.pairs_possible);
        let message = format!("{unmet} of {of} pairs were never met");
        return Err(Failure::at_run_time(message, "run more seeds: --seeds; --json lists them"));
    }
    Ok(())
}

fn repeat(seed: u64, qos: bool) -> String {
    let qos = if qos { " --qos" } else { "" };
    format!("cinnabar-lab simulate faults --seed {seed}{qos}")
}

/// Assertions of the engine are part of the proof. One that breaks may end the process, so the seed
/// is told at once.
fn tell_the_seed_of_a_panic(qos: bool) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // First: what was there before ends the process.
        if let Some(seed) = seed_under_way() {
            let line =
                format!("error: seed {seed} panicked\nhint: repeat it: {}", repeat(seed, qos));
            talk::line(line);
        }
        before(panic);
    }));
}

/// What a search found: the contract of `--json`. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Found {
    first: u64,
    seeds: u64,
    failures: Vec<FailedSeed>,
    seconds: f64,
    seeds_per_second: f64,
    simulated_seconds: f64,
    simulated_over_real: f64,
    requests_per_seed: f64,
    restarts_per_seed: f64,
    log_wraps_per_seed: f64,
    requests: u64,
    sectors_judged: u64,
    stale_in_window: u64,
    crash_blocks_before: u64,
    crash_blocks_back: u64,
    faults: BTreeMap<&'static str, u64>,
    recovery_paths: BTreeMap<&'static str, u64>,
    bounds: BTreeMap<&'static str, u64>,
    never_met: Vec<&'static str>,
    pairs_possible: u64,
    pairs_met: u64,
    pairs_unmet: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FailedSeed {
    seed: u64,
    what: String,
    history: String,
    repeat: String,
}

impl Found {
    fn new(first: u64, summary: &Summary, qos: bool) -> Self {
        let report = &summary.report;
        let sound = summary.seeds - summary.failures.len() as u64;
        let pairs_possible = pairs::possible(false).len() as u64;
        let unmet = report.pairs.unmet();
        // Two decimals: more are noise.
        let short = |value: f64| (value * 100.0).round() / 100.0;
        Self {
            first,
            seeds: summary.seeds,
            failures: summary.failures.iter().map(|failed| FailedSeed::new(failed, qos)).collect(),
            seconds: short(summary.elapsed.as_secs_f64()),
            seeds_per_second: short(summary.seeds_per_second()),
            simulated_seconds: short(report.virtual_ns as f64 / 1e9),
            simulated_over_real: short(summary.simulated_over_real()),
            requests_per_seed: short(report.requests as f64 / sound.max(1) as f64),
            restarts_per_seed: short(summary.restarts_per_seed().max(0.0)),
            log_wraps_per_seed: short(summary.log_wraps_per_seed()),
            requests: report.requests,
            sectors_judged: report.sectors_judged,
            stale_in_window: report.stale_in_window,
            crash_blocks_before: report.crash_blocks_before,
            crash_blocks_back: report.crash_blocks_back,
            faults: counts(&report.faults),
            recovery_paths: counts(&report.paths),
            bounds: counts(&report.bounds),
            never_met: report
                .faults
                .missing()
                .map(Counted::name)
                .chain(report.paths.missing().map(Counted::name))
                .chain(report.bounds.missing().map(Counted::name))
                .collect(),
            pairs_possible,
            pairs_met: pairs_possible - unmet.len() as u64,
            pairs_unmet: unmet
                .iter()
                .map(|(moment, incident)| format!("{moment} x {}", incident.name()))
                .collect(),
        }
    }
}

impl FailedSeed {
    fn new(failed: &Failed, qos: bool) -> Self {
        Self {
            seed: failed.seed,
            what: failed.violation.to_string(),
            history: failed.events.clone(),
            repeat: repeat(failed.seed, qos),
        }
    }
}

fn counts<K: Counted>(tally: &Tally<K>) -> BTreeMap<&'static str, u64> {
    tally.iter().map(|(kind, count)| (kind.name(), count)).collect()
}

fn render(found: &Found) -> String {
    let failures = found.failures.iter().map(|failed| {
        let FailedSeed { seed, what, history, repeat } = failed;
        format!("seed {seed} failed: {what}\n{}\nrepeat: {repeat}\n\n", history.trim_end())
    });
    let mut parts: Vec<String> = failures.collect();
    let table = |title: &str, counts: &BTreeMap<&'static str, u64>| {
        let mut table = Table::new(1, &[title, "COUNT"]);
        for (name, count) in counts {
            table.push(vec![(*name).to_owned(), count.to_string()]);
        }
        output::table(&table) + "\n"
    };
    parts.push(table("FAULT", &found.faults));
    parts.push(table("RECOVERY", &found.recovery_paths));
    parts.push(table("BOUND", &found.bounds));
    if !found.never_met.is_empty() && found.seeds > 1 {
        parts.push(format!("never met: {}\n\n", found.never_met.join(", ")));
    }
    parts.push(unmet(found));
    let mut sums = Table::new(2, &["seeds", &seeds(found)]);
    let mut line = |name: &str, value: String| sums.push(vec![name.to_owned(), value]);
    line("speed", format!("{:.1} seeds/s", found.seeds_per_second));
    line(
        "time",
        format!(
            "{:.0} s simulated in {:.1} s, {:.1} times as fast",
            found.simulated_seconds, found.seconds, found.simulated_over_real
        ),
    );
    line(
        "a seed",
        format!(
            "{:.0} requests, {:.1} restarts, wraps the log {:.1} times",
            found.requests_per_seed, found.restarts_per_seed, found.log_wraps_per_seed
        ),
    );
    line("judged", format!("{} sectors read", found.sectors_judged));
    line(
        "warm",
        format!(
            "{} of {} blocks that were on flash at a crash came back ({})",
            found.crash_blocks_back,
            found.crash_blocks_before,
            output::ratio(found.crash_blocks_back, found.crash_blocks_before)
        ),
    );
    line(
        "window",
        format!("{} sectors stale where the stated limit allows", found.stale_in_window),
    );
    parts.push(output::table(&sums));
    parts.concat()
}

/// Unmet pairs that are shown; `--json` has them all.
const UNMET_SHOWN: usize = 20;

fn unmet(found: &Found) -> String {
    let Found { pairs_possible, pairs_met, pairs_unmet, .. } = found;
    let mut text =
        format!("pairs of a moment and an incident: {pairs_met} of {pairs_possible} met");
    if found.seeds > 1 && !pairs_unmet.is_empty() {
        let shown = &pairs_unmet[..UNMET_SHOWN.min(pairs_unmet.len())];
        text = format!("{text}; never met: {}", shown.join(", "));
        let more = pairs_unmet.len() - shown.len();
        if more > 0 {
            text = format!("{text} and {more} more");
        }
    }
    text + "\n\n"
}

fn seeds(found: &Found) -> String {
    // A search that found enough ends early.
    format!("{} from {} on, {} failed", found.seeds, found.first, found.failures.len())
}
