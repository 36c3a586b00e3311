//! `cinnabar-lab analyze --compare`: the traces replayed under each allocator, side by side.
//!
//! The laboratory's comparison does it, `cinnabar-bench` shows it.

use cinnabar_bench::report::compare as report;
use cinnabar_policy::sizing::{Allocator, Goal, Weighting};
use cinnabar_study::analysis::Settings;
use cinnabar_study::compare::{
    self, CompareError, Comparison, Contestant, Input, Judged, Model, Options, Progress as Told,
};
use cinnabar_text::Failure;
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::cli::{output, talk};
use std::num::NonZeroUsize;
use std::path::Path;

/// The largest part of the demand that a cache may be, in per cent.
const PERCENT_MAX: f64 = 1000.0;

/// How to compare.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Comparing allocators")]
pub(super) struct CompareArgs {
    /// Replay the traces under each --allocator, as a live manager would plan, and print what comes of
    /// it: latency, SSD writes, hits, in the engine and in the papers' model
    #[arg(long, conflicts_with_all = ["cache", "volumes"])]
    pub(super) compare: bool,
    /// The larger cache, in per cent of what ECI-Cache's sizes come to at most
    #[arg(long, value_name = "PERCENT", default_value = "100%", requires = "compare", value_parser = percent)]
    feasible: f64,
    /// The smaller cache
    #[arg(long, value_name = "PERCENT", default_value = "30%", requires = "compare", value_parser = percent)]
    infeasible: f64,
    /// Which cache carries the plans out: the engine, the papers' LRU partitions, or both
    #[arg(long, value_name = "WHICH", default_value = "both", requires = "compare")]
    model: Models,
    /// What urd looks for: what is worth most at the prices; or the plan that writes the SSD least, and then
    /// takes least room, of those that a model of the engine predicts to be faster than Centaur's
    #[arg(long, value_name = "WHAT", default_value = "prices", requires = "compare")]
    goal: Goals,
    /// Also judge ECI-Cache's claims by every measure, threshold, memory and aim, with caches of 10 to
    /// 300 % [default: only by the mean latency]
    #[arg(long, requires = "compare")]
    claims: bool,
    /// Runs at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", requires = "compare")]
    jobs: Option<NonZeroUsize>,
}

/// Which cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Models {
    /// Both of them
    Both,
    /// The production engine
    Engine,
    /// What the papers assume
    Papers,
}

/// What `urd` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Goals {
    /// Most value at the prices
    Prices,
    /// Fewest SSD writes at no more latency than Centaur, as predicted
    Dominate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All there are, and nobody.
    All,
    /// One of them.
    One(Contestant),
}

/// An allocator's name, `none` or `all`.
pub(super) fn choice(text: &str) -> Result<Choice, String> {
    match text.trim() {
        "all" => Ok(Choice::All),
        "none" => Ok(Choice::One(Contestant::NoCache)),
        name => {
            let found = name.parse().map(|allocator| Choice::One(Contestant::Allocator(allocator)));
            found.map_err(|error| format!("{error}; with --compare also none (no cache) and all"))
        }
    }
}

/// The one that divides the cache, where there is nothing to compare.
pub(super) fn single(choices: &[Choice]) -> Result<Allocator, Failure> {
    match choices {
        [] => Ok(Allocator::default()),
        [Choice::One(Contestant::Allocator(allocator))] => Ok(*allocator),
        _ => Err(Failure::of_usage(
            "one allocator at a time divides the cache",
            "add --compare to compare several, or name one",
        )),
    }
}

/// What flags of the command as a whole say about a comparison.
pub(super) struct Asked<'a> {
    pub(super) allocators: &'a [Choice],
    pub(super) html: Option<&'a Path>,
    pub(super) json: bool,
}

pub(super) fn run(
    args: &CompareArgs,
    asked: &Asked<'_>,
    settings: &Settings,
) -> Result<(), Failure> {
    let options = args.options(asked.allocators, settings);
    let found = compare(settings, &options)?;
    let judged = if args.claims { judge(settings, &options)? } else { Vec::new() };
    for note in notes(&options) {
        talk::line(format_args!("note: {note}"));
    }
    if let Some(path) = asked.html {
        let page = report::page(&found, &options, &settings.traces);
        let failed = |error: cinnabar_bench::report::page::PageError| {
            Failure::at_run_time(format!("{error}: {}", error.source), error.hint())
        };
        page.save(path).map_err(failed)?;
    }
    if asked.json {
        return output::json(&report::of(&found, &judged, &options, &settings.traces));
    }
    let mut text = report::render(&found, &options, output::width());
    if args.claims {
        text.push_str(&report::render_judged(&judged, output::width()));
    }
    output::text(&text)
}

impl CompareArgs {
    fn options(&self, choices: &[Choice], settings: &Settings) -> Options {
        let mut contestants: Vec<Contestant> = Vec::new();
        let choices = if choices.is_empty() { &[Choice::All] } else { choices };
        for choice in choices {
            let named = match choice {
                Choice::All => Contestant::all(),
                Choice::One(one) => vec![*one],
            };
            for one in named {
                if !contestants.contains(&one) {
                    contestants.push(one);
                }
            }
        }
        let models = match self.model {
            Models::Both => vec![Model::Papers, Model::Engine],
            Models::Engine => vec![Model::Engine],
            Models::Papers => vec![Model::Papers],
        };
        Options {
            every: settings.every,
            contestants,
            models,
            parts: vec![self.feasible, self.infeasible],
            look: settings.look,
            seed: settings.seed,
            decay: settings.decay,
            reuses_min: settings.reuses_min,
            rules: settings.rules,
            goal: self.goal(),
            weighting: Weighting::Own,
            bounds: settings.bounds.clone(),
            jobs: self.jobs,
        }
    }
}

fn judge(settings: &Settings, options: &Options) -> Result<Vec<Judged>, Failure> {
    let mut line = Progress::new();
    let input = Input::Files(&settings.traces);
    let tell = |done, of| line.show(|| format!("judging: {done} of {of} comparisons"));
    compare::judge(input, options, tell).map_err(|error| explain(&error))
}

fn compare(settings: &Settings, options: &Options) -> Result<Comparison, Failure> {
    let mut line = Progress::new();
    let input = Input::Files(&settings.traces);
    let found = compare::compare(input, options, |told| line.show(|| progress(told)));
    found.map_err(|error| explain(&error))
}

fn progress(told: Told) -> String {
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    match told {
        Told::Surveying { requests } => format!("looking: {requests} requests"),
        Told::Planning { requests, of } => format!("planning: {:.0} %", percent(requests, of)),
        Told::Running { requests, of, runs, runs_of } => {
            format!("replaying: {:.0} %, {runs} of {runs_of} runs done", percent(requests, of))
        }
    }
}

impl CompareArgs {
    fn goal(&self) -> Goal {
        match self.goal {
            Goals::Prices => Goal::PRICES,
            Goals::Dominate => Goal { by_engine: self.model != Models::Papers, ..Goal::DOMINANT },
        }
    }
}

fn explain(error: &CompareError) -> Failure {
    match error {
        CompareError::Refused(_) => Failure::at_run_time(error.to_string(), error.hint()),
        _ => Failure::of_usage(error.to_string(), error.hint()),
    }
}

/// What is to be known before the figures are believed.
fn notes(options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.models.contains(&Model::Engine) {
        notes.push(
            "the engine was run without a write log: volumes in write-back ran in write-through; their \
            kept writes are told at the SSD's latency"
                .to_owned(),
        );
    }
    let has_urd = options.contestants.contains(&Contestant::Allocator(Allocator::Urd));
    if has_urd && options.rules.prices.omega <= 0.0 {
        notes.push(
            "urd does not write back, because the waiting of writes counts nothing; --omega 1 makes it count"
                .to_owned(),
        );
    }
    notes
}

/// A percentage: `30%`, `30 %`, `30`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let plain = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let found = number.parse().ok().filter(|_| plain);
    let good = |percent: &f64| *percent > 0.0 && *percent <= PERCENT_MAX;
    found
        .filter(good)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("write per cent of the demand above 0, up to {PERCENT_MAX}: 30%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_bounded() {
        for (text, part) in [("30%", 0.3), (" 100 % ", 1.0), ("2.5", 0.025), ("1000%", 10.0)] {
            let found = percent(text).expect(text);
            assert!((found - part).abs() < 1e-12, "{text}: {found}");
        }
        for text in ["", "0", "0%", "-1%", "1001%", "nan", "inf", "+5%", "1e9", "%", "x%"] {
            percent(text).expect_err(text);
        }
    }

    #[test]
    fn names_are_allocators_or_all_or_none() {
        assert_eq!(choice("all"), Ok(Choice::All));
        assert_eq!(choice("none"), Ok(Choice::One(Contestant::NoCache)));
        for contestant in Contestant::all() {
            assert_eq!(choice(contestant.name()), Ok(Choice::One(contestant)));
        }
        let error = choice("lru").expect_err("a policy, not an allocator");
        assert!(error.contains("centaur") && error.contains("none"), "{error}");
        assert_eq!(single(&[]), Ok(Allocator::Urd));
        assert_eq!(single(&[choice("eci").expect("it is one")]), Ok(Allocator::Eci));
        for wrong in [vec![Choice::All], vec![Choice::One(Contestant::NoCache)]] {
            assert_eq!(single(&wrong).expect_err("not one").code, 2);
        }
    }
}
