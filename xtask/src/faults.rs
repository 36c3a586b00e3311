//! Fault simulation over many seeds: so many in `ci`, on and on in `soak`.
//!
//! The seeds are run by `cinnabar-lab simulate faults`, and those of two hosts by
//! `cinnabar-sim`'s tests, on all cores; commit and seed repeat a failure.

use crate::shell::{cargo, show};
use crate::stage::Done;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Seeds that must be clean before a change is taken: as many as three minutes allow. `soak` runs on from there.
const CI_SEEDS: u64 = 2_500;
/// The same, of two hosts.
const HOSTS_SEEDS: u64 = 2_500;
/// Seeds between two reports of a soak: about four minutes' worth.
const SOAK_SEEDS: u64 = 5_000;

/// Seeds after which every pair of things that can happen together must have happened.
const PAIRS_SEEDS: u64 = 200_000;

/// Runs the seeds of `ci` with this laboratory: the same ones each time, so that a change is to blame for a failure.
///
/// # Errors
/// When a seed fails, or a kind of fault never happened. How long it takes depends on the machine and
/// is printed.
pub(crate) fn check(binary: &Path) -> Result<Done> {
    let start = Instant::now();
    let seeds = CI_SEEDS.to_string();
    show(Command::new(binary).args(["simulate", "faults", "--all-kinds", "--seeds", &seeds]))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{CI_SEEDS} seeds in {seconds:.0} s: {:.1} seeds/s", CI_SEEDS as f64 / seconds);
    two_hosts()?;
    Ok(Done::Passed(Vec::new()))
}

/// Seeds of a volume that moves between two hosts; their simulation is a test of its crate.
fn two_hosts() -> Result<()> {
    let test = ["test", "--locked", "--package", "cinnabar-sim", "--test", "it"];
    let mut search = cargo(&test);
    search.args(["no_seed_of_two_hosts", "--", "--nocapture"]);
    show(search.env("CINNABAR_SEEDS", format!("0..{HOSTS_SEEDS}"))).map(drop)
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
    use super::{failures, line, still_unmet};
    use serde_json::json;

    #[test]
    fn what_any_search_has_met_is_met() {
        let report = |unmet: &[&str]| json!({ "pairs_unmet": unmet });
        let left = still_unmet(None, &report(&["a", "b"]));
        let left = still_unmet(Some(left), &report(&["b", "c"]));
        assert_eq!(left.into_iter().collect::<Vec<_>>(), ["b"]);
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
