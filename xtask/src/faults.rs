//! Fault simulation over many seeds: so many in each tier, on and on in `soak`.
//!
//! `simulate faults` runs the seeds, on all cores; commit and seed repeat a failure.

use crate::lanes::{Job, Lane};
use crate::shell::root;
use crate::stage::Done;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Fewer seeds may miss a kind of fault without anything being wrong.
const ALL_KINDS_SEEDS: u64 = 1_000;
/// Seeds between two reports of a soak: about four minutes' worth.
const SOAK_SEEDS: u64 = 5_000;

/// Seeds after which every pair of things that can happen together must have happened.
const PAIRS_SEEDS: u64 = 200_000;

/// Seeds to run, on all cores; one that fails, or a kind of fault that never happened, fails the job.
pub(crate) fn job(simulator: &Path, seeds: u64) -> Job {
    let mut command = Command::new(simulator);
    command.args(["simulate", "faults", "--seeds", &seeds.to_string()]);
    if seeds >= ALL_KINDS_SEEDS {
        command.arg("--all-kinds");
    }
    Job { name: format!("{seeds} seeds"), lane: Lane::Computes, command, silence_max: None }
}

/// The same, of other seeds at each commit, so that each change is looked at where no earlier one was.
/// The commit repeats them.
pub(crate) fn job_of_commit(simulator: &Path, seeds: u64) -> Result<Job> {
    let mut head = Command::new("git");
    let hash = e2e::output(head.args(["rev-parse", "HEAD"]).current_dir(root()))?;
    let first = first_seed(&hash)?;
    let mut job = job(simulator, seeds);
    job.command.args(["--first", &first.to_string()]);
    job.name = format!("{seeds} seeds from {first} on");
    Ok(job)
}

/// The first seed of a commit: 40 bits of its hash, which no other search comes to.
fn first_seed(hash: &str) -> Result<u64> {
    let digits = hash.trim().get(..10).context("a commit's hash has at least ten digits")?;
    u64::from_str_radix(digits, 16).with_context(|| format!("{hash:?} is no commit's hash"))
}

/// Runs seeds from `first` on until one fails or `limit` has passed, and says after each few
/// thousand how fast it is.
///
/// # Errors
/// When a seed fails, or enough of them have not met all pairs that are possible.
pub(crate) fn run_on(first: u64, limit: Option<Duration>) -> Result<Done> {
    let binary = e2e::binary::lab()?;
    let start = Instant::now();
    let mut next = first;
    let mut unmet = None;
    while limit.is_none_or(|limit| start.elapsed() < limit) {
        let found = Command::new(&binary)
            .args(["simulate", "faults", "--json", "--first", &next.to_string()])
            .args(["--seeds", &SOAK_SEEDS.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .context("starting the simulator")?;
        let text = String::from_utf8_lossy(&found.stdout);
        let report: Value = serde_json::from_str(&text).with_context(|| {
            format!("the simulator ended with {} and no report, seeds from {next} on", found.status)
        })?;
        let left = still_unmet(unmet.take(), &report);
        println!("{}; {} pairs not met yet", line(&report, next - first), left.len());
        unmet = Some(left);
        if !found.status.success() {
            bail!("{}", failures(&report));
        }
        next += SOAK_SEEDS;
    }
    let unmet = unmet.unwrap_or_default();
    let enough = next - first >= PAIRS_SEEDS;
    ensure!(!enough || unmet.is_empty(), "never met in {} seeds: {unmet:?}", next - first);
    Ok(Done::Passed(Vec::new()))
}

/// Pairs that neither the searches before nor this one has met.
fn still_unmet(before: Option<BTreeSet<String>>, report: &Value) -> BTreeSet<String> {
    let names = report["pairs_unmet"].as_array().into_iter().flatten();
    let unmet = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    match before {
        Some(before) => before.intersection(&unmet).cloned().collect(),
        None => unmet,
    }
}

/// One line a report: `before` seeds were clean before it.
fn line(report: &Value, before: u64) -> String {
    let number = |key: &str| report[key].as_f64().unwrap_or_default();
    let failed = report["failures"].as_array().map_or(0, Vec::len);
    format!(
        "{} seeds from {} on: {failed} failed; {:.1} seeds/s, {:.0} s simulated, {:.1} x real time; \
         {before} clean before",
        report["seeds"],
        report["first"],
        number("seeds_per_second"),
        number("simulated_seconds"),
        number("simulated_over_real"),
    )
}

/// What went wrong, and how to repeat it.
fn failures(report: &Value) -> String {
    let text = |failed: &Value, key: &str| failed[key].as_str().unwrap_or_default().to_owned();
    report["failures"].as_array().into_iter().flatten().fold(String::new(), |all, failed| {
        let (what, history) = (text(failed, "what"), text(failed, "history"));
        let repeat = text(failed, "repeat");
        all + &format!("seed {}: {what}\n{history}\nrepeat: {repeat}\n", failed["seed"])
    })
}

#[cfg(test)]
mod tests {
    use super::{failures, first_seed, line, still_unmet};
    use serde_json::json;

    #[test]
    fn what_any_search_has_met_is_met() {
        let report = |unmet: &[&str]| json!({ "pairs_unmet": unmet });
        let left = still_unmet(None, &report(&["a", "b"]));
        let left = still_unmet(Some(left), &report(&["b", "c"]));
        assert_eq!(left.into_iter().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn the_first_seed_is_the_commits() {
        let hash = "8370b67f00ffee0011223344556677889900aabb\n";
        assert_eq!(first_seed(hash).expect("a hash"), 0x83_70b6_7f00);
        assert!(first_seed("8370").is_err() && first_seed("not a commit").is_err());
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let failed = json!({"seed": 7, "what": "stale", "history": "h", "repeat": "again"});
        let report = json!({"first": 5, "seeds": 10, "seeds_per_second": 20.04, "failures": [failed],
            "simulated_seconds": 100.0, "simulated_over_real": 200.0});
        assert!(line(&report, 3).contains("10 seeds from 5 on: 1 failed; 20.0 seeds/s"));
        assert_eq!(failures(&report), "seed 7: stale\nh\nrepeat: again\n");
    }
}
