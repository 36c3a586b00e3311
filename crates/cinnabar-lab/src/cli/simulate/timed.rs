//! `cinnabar-lab simulate timed`: a plan of timed simulations, on all cores.
//!
//! The points are looked at before the first one is simulated; what is finished is kept in a folder,
//! if one is named, and taken over by the next run.

use crate::cli::parse;
use cinnabar_bench::report::timed::{
    self as report, Found, Identity, PointStats, Recommended, Rules, Store, Sweep,
};
use cinnabar_study::sweep::{self, Finished, Job, Limits, Load, Open, SweepError};
use cinnabar_study::timed::config::{Architecture, Config};
use cinnabar_study::timed::{self as model, RunError, Workload};
use cinnabar_study::timed_plan::{self, Plan, Point, Setting, Survey, SurveyError};
use cinnabar_text::cli::progress::Progress;
use cinnabar_text::cli::report_file;
use cinnabar_text::cli::{output, talk};
use cinnabar_text::{Failure, Table, chain, show_size};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The plan: a TOML file
    plan: PathBuf,
    /// Set a key of the plan; one that is varied no longer is [default: as in the plan]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// Keep finished points in this folder, and write points.csv and points.json there; a sweep that
    /// was stopped goes on [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Throw away what --out has kept [default: take it over]
    #[arg(long, requires = "out")]
    fresh: bool,
    /// Write a report with charts [default: don't]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Name the cheapest point that is nearly as fast as the fastest [default: don't]
    #[arg(long)]
    recommend: bool,
    /// With --recommend: how much slower is good enough, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    within: f64,
    /// With --recommend: a byte of RAM costs so many bytes of flash
    #[arg(long, value_name = "X", default_value = "10", value_parser = price)]
    ram_price: f64,
    /// Simulations at a time [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Memory for all that run together [default: 80 % of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    memory: Option<u64>,
    /// Check the plan and list its points, but simulate nothing [default: simulate]
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let plan = timed_plan::load(&args.plan, &args.settings)?;
    check_choice(args, &plan)?;
    let survey = look_through(&plan)?;
    check_html(args, &plan)?;
    let points = plan.points();
    let mut limits = Limits::of_this_machine();
    limits.threads = args.jobs.map_or(limits.threads, NonZeroUsize::get);
    limits.memory_bytes = args.memory.unwrap_or(limits.memory_bytes);
    timed_plan::check(&plan, &points, survey.as_ref(), limits.memory_bytes)?;
    if args.dry_run {
        return list(args, &plan, &points, survey.as_ref());
    }
    let store = args.out.as_deref().map(|folder| Store::open(folder, args.fresh)).transpose()?;
    let model = fingerprint()?;
    let found = simulate(&plan, points, survey, &model, store, &limits)?;
    let sweep = Sweep { plan, survey, model, found };
    let rules = Rules { within_percent: args.within, ram_price: args.ram_price };
    let recommended = args.recommend.then(|| report::recommend(&sweep.found, rules)).flatten();
    tell(args, &sweep, recommended.as_ref())?;
    let failed = sweep.found.iter().find_map(|found| Some((found, found.result.as_ref().err()?)));
    failed.map_or(Ok(()), |(found, failure)| {
        let message = format!("{}: {}", found.point.name, failure.message);
        Err(Failure { message, ..failure.clone() })
    })
}

fn tell(args: &Args, sweep: &Sweep, recommended: Option<&Recommended>) -> Result<(), Failure> {
    let report = report::Report::new(sweep, recommended);
    let cannot = |error: cinnabar_bench::report::page::PageError| {
        Failure::at_run_time(format!("{error}: {}", error.source), error.hint())
    };
    if let Some(folder) = &args.out {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::at_run_time(error.to_string(), ""))?;
        cinnabar_bench::report::page::save(&folder.join("points.json"), &(text + "\n"))
            .map_err(cannot)?;
        cinnabar_bench::report::page::save(&folder.join("points.csv"), &report::csv(sweep))
            .map_err(cannot)?;
    }
    if let Some(path) = &args.html {
        report::page(sweep, recommended).save(path).map_err(cannot)?;
    }
    if args.json {
        output::json(&report)
    } else {
        output::text(&report::render(sweep, recommended, output::width()))
    }
}

fn check_choice(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let varied = plan.varied();
    match report::not_a_choice(&varied) {
        Some(name) if args.recommend => Err(Failure::of_usage(
            format!("--recommend: {name} is varied, and nobody can choose it"),
            format!("vary only {}; --set {name}=... settles it", report::choices()),
        )),
        _ => Ok(()),
    }
}

/// What would be lost if the report were written over it is found out before anything is simulated.
fn check_html(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let Some(path) = &args.html else { return Ok(()) };
    let inputs = plan.trace.iter().map(|trace| &trace.path).chain([&plan.file]);
    report_file::keep("--html", path, inputs, "the plan, or its trace")?;
    // The folder of --out is made by the time the report is written.
    if args.out.is_some() && path.parent() == args.out.as_deref() {
        return Ok(());
    }
    report_file::check("--html", path)
}

fn look_through(plan: &Plan) -> Result<Option<Survey>, Failure> {
    let Some(trace) = &plan.trace else { return Ok(None) };
    let mut line = Progress::new();
    let found = timed_plan::survey(&trace.path, &mut |requests, part| {
        line.show(|| match part {
            Some(part) => format!("reading the trace: {requests} requests, {:.0} %", part * 100.0),
            None => format!("reading the trace: {requests} requests"),
        });
    });
    drop(line);
    found.map(Some).map_err(|error| {
        let place = trace.origin.line().map_or(String::new(), |line| {
            format!("{}:{line}: ", plan.file.display())
        });
        let message = format!("{place}{}: {}", trace.path.display(), chain(&error));
        match error {
            SurveyError::Trace(_) if !trace.path.exists() => Failure::of_usage(
                message,
                "a path in a plan begins where the plan is; --set workload.trace=FILE names another",
            ),
            SurveyError::Trace(_) => {
                Failure::of_usage(message, "cinnabar-lab trace info FILE says how far it can be read")
            }
            SurveyError::Blocks(_) | SurveyError::Empty => {
                Failure::of_usage(message, "choose another trace, or a part of it")
            }
        }
    })
}

fn list(
    args: &Args,
    plan: &Plan,
    points: &[Point],
    survey: Option<&Survey>,
) -> Result<(), Failure> {
    let ios = |point: &Point| {
        survey.map_or_else(|| Job::generated("", point.config).ios(), |survey| survey.ios)
    };
    let bytes = |point: &Point| timed_plan::needed(plan, point, survey);
    if args.json {
        let row = |point: &Point| {
            serde_json::json!({
                "name": point.name, "block_ios": ios(point), "memory_bytes": bytes(point),
            })
        };
        let points: Vec<_> = points.iter().map(row).collect();
        return output::json(&serde_json::json!({ "points": points }));
    }
    let mut table = Table::new(1, &["POINT", "BLOCK I/OS", "MEMORY"]);
    for point in points {
        let row = [ios(point).to_string(), show_size(bytes(point))];
        table.push([vec![point.name.clone()], row.to_vec()].concat());
    }
    let sum: u64 = points.iter().map(ios).sum();
    let count = points.len();
    output::text(&format!("{}\n{count} points, {sum} block I/Os\n", output::table(&table)))
}

fn simulate(
    plan: &Plan,
    points: Vec<Point>,
    survey: Option<Survey>,
    model: &str,
    mut store: Option<Store>,
    limits: &Limits,
) -> Result<Vec<Found>, Failure> {
    let identities: Vec<Identity> =
        points.iter().map(|point| identity(point, plan, survey.as_ref(), model)).collect();
    let known = |identity: &Identity| store.as_ref().and_then(|store| store.get(identity).cloned());
    let mut results: Vec<Option<Result<PointStats, Failure>>> =
        identities.iter().map(|identity| known(identity).map(Ok)).collect();
    let missing: Vec<usize> = (0..points.len()).filter(|at| results[*at].is_none()).collect();
    if missing.len() < points.len() {
        let taken = points.len() - missing.len();
        note(&format!(
            "{taken} of {} points were finished before and are taken over",
            points.len()
        ));
    }
    let opens: Vec<Box<Open<'_>>> =
        missing.iter().map(|at| open(plan, survey, points[*at].config.warm_up_share)).collect();
    let jobs: Vec<Job<'_>> = missing
        .iter()
        .zip(&opens)
        .map(|(at, open)| job(&points[*at], plan, survey.as_ref(), open))
        .collect();
    let mut line = Progress::new();
    let mut failed = None;
    let ran = sweep::run(&jobs, limits, &mut |progress, finished| {
        line.show(|| progress_line(progress));
        let Some(Finished { job, result }) = finished else { return ControlFlow::Continue(()) };
        let at = missing[job];
        let told = result.map(|outcome| PointStats::new(&outcome)).map_err(|error| explain(&error));
        if let (Ok(told), Some(store)) = (&told, &mut store)
            && let Err(failure) = store.keep(&identities[at], told)
        {
            failed = Some(failure);
            return ControlFlow::Break(());
        }
        results[at] = Some(told);
        ControlFlow::Continue(())
    });
    drop(line);
    if let Some(failure) = failed {
        return Err(failure);
    }
    ran.map_err(|error: SweepError| Failure::of_usage(error.to_string(), error.hint()))?;
    let found = points.into_iter().zip(results);
    Ok(found
        .map(|(point, result)| Found { point, result: result.expect("all have ended") })
        .collect())
}

fn open(plan: &Plan, survey: Option<Survey>, warm_up_share: f64) -> Box<Open<'_>> {
    match (&plan.trace, survey) {
        (Some(trace), Some(survey)) => Box::new(move || survey.open(trace, warm_up_share)),
        _ => Box::new(|| Ok(Workload::Generated)),
    }
}

fn job<'a>(point: &Point, plan: &Plan, survey: Option<&Survey>, open: &'a Open<'a>) -> Job<'a> {
    let load = match (&plan.trace, survey) {
        (Some(trace), Some(survey)) => {
            Load::Trace { open, pace: trace.pace, ios: survey.ios, blocks: survey.blocks }
        }
        _ => Load::Generated,
    };
    Job { name: point.name.clone(), config: point.config, load }
}

/// All that decides what comes out of a point.
fn identity(point: &Point, plan: &Plan, survey: Option<&Survey>, model: &str) -> Identity {
    let mut identity: Identity =
        plan.keys().map(|key| (key.name.to_owned(), key.show(&point.config))).collect();
    identity.insert("program".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    identity.insert("model".to_owned(), model.to_owned());
    if let (Some(trace), Some(survey)) = (&plan.trace, survey) {
        identity.insert("workload.trace".to_owned(), format!("{:016x}", survey.digest));
        identity.insert("workload.pace".to_owned(), format!("{:?}", trace.pace).to_lowercase());
    }
    identity
}

/// What three small simulations come to: points of a program whose model has changed are not taken
/// over, even if its version is the same.
fn fingerprint() -> Result<String, Failure> {
    let small = Config { scale: 1 << 14, ..Config::default() };
    let all = [Architecture::Naive, Architecture::Lookaside, Architecture::Unified];
    let mut folded = 0u64;
    for architecture in all {
        let config = Config { architecture, ..small };
        let outcome = model::run(&config, Workload::Generated, &mut |_| ());
        let outcome = outcome.map_err(|error| explain(&error))?;
        folded = folded.rotate_left(21) ^ outcome.digest;
    }
    Ok(format!("{folded:016x}"))
}

fn explain(error: &RunError) -> Failure {
    Failure::at_run_time(chain(error), error.hint())
}

fn progress_line(progress: &sweep::Progress) -> String {
    let (done, of) = (progress.jobs_done, progress.jobs);
    let rate = progress.ios_per_second() / 1e6;
    let left = progress.left().map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
    format!("{done} of {of} points, {rate:.2} M block I/Os/s{left}")
}

fn note(text: &str) {
    talk::line(format_args!("note: {text}"));
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0 to 1000, without a sign".to_owned()),
    }
}

fn price(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(price) if (0.0..=1e6).contains(&price) => Ok(price),
        _ => Err("write a number from 0 to 1000000".to_owned()),
    }
}
