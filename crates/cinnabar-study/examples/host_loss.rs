//! A host loses its cache while others keep theirs: what each of them sees before, during and after.
//!
//! Runs the points of a plan, each of which has to set `loss.at`. Nothing in the results depends on the
//! machine, and the digest says whether two runs were the same.

use cinnabar_study::sweep::{Job, Limits, outcomes};
use cinnabar_study::timed::{LossStats, Outcome};
use cinnabar_study::timed_plan::{Point, Setting, check, load};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
What the loss of one host's cache costs it, and the other hosts

Usage: host_loss [OPTIONS] [PLAN]

  [PLAN]             A plan of timed simulations that sets loss.at, and has no trace
                     [default: plans/ten-hosts.toml]

Options:
  --set KEY=VALUE    Set a key of the plan; one that is varied no longer is. Of a loss:
                       loss.at=60s          when, from the beginning of measuring; 0 is never
                       loss.host=9          which host, the first is 0
                       loss.ram_too=true    RAM is lost, too [default: false]
                       loss.iops=100        limit of its I/Os a second at the file server until it is
                                            warm again [default: 0, no limit]
                       loss.hurry=true      it leaves out pauses until it is warm again [default: false]
                       hosts.pause=266ms    mean pause of threads between two operations [default: 0]
                       filer.service=4      requests that the file server serves at a time
  --json             Print a JSON object [default: tables]
  --help             Print this
";

struct Args {
    plan: PathBuf,
    settings: Vec<Setting>,
    json: bool,
}

/// `None`: help is wanted.
fn args() -> Result<Option<Args>, String> {
    let mut found = Args { plan: "plans/ten-hosts.toml".into(), settings: Vec::new(), json: false };
    let mut plans = 0;
    let mut rest = std::env::args().skip(1);
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--json" => found.json = true,
            "--set" => {
                let text = rest.next().ok_or("--set needs KEY=VALUE")?;
                found.settings.push(text.parse().map_err(|error| format!("--set: {error}"))?);
            }
            _ if arg.starts_with('-') => return Err(format!("unknown option {arg}; see --help")),
            _ => {
                plans += 1;
                found.plan = arg.into();
            }
        }
    }
    if plans > 1 { Err("one plan at a time; see --help".to_owned()) } else { Ok(Some(found)) }
}

fn main() -> ExitCode {
    let done = match args() {
        Ok(None) => {
            print!("{HELP}");
            Ok(())
        }
        Ok(Some(args)) => run(&args),
        Err(message) => Err(message),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let told = |error: cinnabar_text::ConfigError| format!("{error}\nhint: {}", error.hint);
    let plan = load(&args.plan, &args.settings).map_err(told)?;
    if plan.trace.is_some() {
        return Err("this plan has a trace\nhint: leave it out".to_owned());
    }
    let points = plan.points();
    if let Some(point) = points.iter().find(|point| !point.config.loss.is_set()) {
        let name = &point.name;
        return Err(format!("{name}: no host loses its cache\nhint: add --set loss.at=60s"));
    }
    let limits = Limits::of_this_machine();
    check(&plan, &points, None, limits.memory_bytes).map_err(told)?;
    let jobs: Vec<Job<'_>> =
        points.iter().map(|point| Job::generated(&point.name, point.config)).collect();
    let found = outcomes(&jobs, &limits, &mut |_| ())
        .map_err(|error| format!("{error}\nhint: {}", error.hint()))?;
    let found: Vec<_> = points.iter().zip(&found).collect();
    if args.json {
        print_json(&found);
    } else {
        print_tables(&found);
    }
    Ok(())
}

fn stats(outcome: &Outcome) -> LossStats {
    LossStats::new(outcome.loss.as_ref().expect("each point has a loss, or failed"))
}

fn print_tables(found: &[(&Point, &Outcome)]) {
    for (point, outcome) in found {
        println!("{}, digest {:016x}", point.name, outcome.digest);
        println!("{}", stats(outcome).render(None));
    }
}

fn print_json(found: &[(&Point, &Outcome)]) {
    let point = |(point, outcome): &(&Point, &Outcome)| {
        let digest = format!("{:016x}", outcome.digest);
        serde_json::json!({ "name": point.name, "digest": digest, "loss": stats(outcome) })
    };
    let points: Vec<_> = found.iter().map(point).collect();
    println!("{:#}", serde_json::json!({ "points": points }));
}
