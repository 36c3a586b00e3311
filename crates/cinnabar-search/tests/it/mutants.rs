//! How each search finds each mutant: by seeds, guided, exhaustive.
//!
//! `cargo xtask soak mutants` prints it, for one of them with `CINNABAR_MUTANT=NoRecord`.

#[path = "../../../cinnabar-sim/tests/it/mutants/known.rs"]
#[allow(dead_code, reason = "the simulator's tests begin at the seeds given there")]
mod known;

use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_search::scenes::Scene;
use cinnabar_search::{evolve, exhaustive};
use cinnabar_sim::faults::{run_one, search};
use known::{EQUIVALENT, FOUND_AT_HOSTS, SCRIPTED, SEEDS_MAX, with};
use std::time::{Duration, Instant};

/// How each search finds each mutant, as a table. `CINNABAR_MUTANT_SECONDS` are for the guided
/// search, and as many for each scene of the exhaustive one.
#[test]
#[ignore = "it takes long: cargo xtask soak mutants"]
fn table_of_mutants() {
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let seconds = Duration::from_secs(number("CINNABAR_MUTANT_SECONDS", 10));
    let seeds = number("CINNABAR_MUTANT_SEEDS", SEEDS_MAX);
    let which = std::env::var("CINNABAR_MUTANT").ok();
    println!("| mutant | seeds | guided | exhaustive | otherwise |");
    println!("|---|---|---|---|---|");
    for &mutant in Mutant::ALL {
        if which.as_ref().is_some_and(|which| *which != format!("{mutant:?}")) {
            continue;
        }
        let scripted = SCRIPTED.iter().find(|(one, ..)| *one == mutant);
        let equivalent = EQUIVALENT.iter().find(|(one, _)| *one == mutant);
        let hosts = FOUND_AT_HOSTS.iter().find(|(one, _)| *one == mutant);
        let otherwise = match (scripted, equivalent) {
            _ if hosts.is_some() => "seeds of two hosts".to_owned(),
            (Some((_, test, why)), _) => format!("scripted, {test}: {why}"),
            (_, Some((_, why))) => format!("equivalent: {why}"),
            _ => String::new(),
        };
        let by_seeds = if otherwise.is_empty() { by_seeds(mutant, seeds) } else { String::new() };
        let guided = by_guided_search(mutant, seconds);
        let exhaustive = by_exhaustive_search(mutant, seconds);
        println!("| {mutant:?} | {by_seeds} | {guided} | {exhaustive} | {otherwise} |");
    }
}

/// The first seed that finds it, and what a guest saw.
fn by_seeds(mutant: Mutant, seeds: u64) -> String {
    let (with, without) = with(mutant);
    let summary = search(0..seeds, &with, |_| {});
    let mut failures = summary.failures.iter();
    match failures.find(|failed| run_one(failed.seed, &without).is_ok()) {
        Some(failed) => format!("{}: {:?}", failed.seed, failed.violation.kind),
        None => format!("not in {seeds}"),
    }
}

fn by_guided_search(mutant: Mutant, limit: Duration) -> String {
    let corpus = std::fs::read_dir(crate::small::corpus()).expect("the corpus is in the tree");
    let inputs = corpus.map(|entry| entry.expect("a file").path());
    let mut inputs: Vec<_> = inputs.collect();
    inputs.sort();
    let inputs = inputs.iter().map(|path| std::fs::read(path).expect("a file of the corpus"));
    let start = Instant::now();
    let evolved = evolve::search(inputs, 1, limit, Mutants::only(mutant));
    match evolved.failure {
        Some(_) => format!("{} runs, {:.0} s", evolved.runs, start.elapsed().as_secs_f64()),
        None => "no".to_owned(),
    }
}

fn by_exhaustive_search(mutant: Mutant, limit: Duration) -> String {
    for scene in Scene::ALL {
        if let Err(failure) = exhaustive::search(scene, 99, limit, Mutants::only(mutant)) {
            return format!("{scene:?}, N={}", failure.moves);
        }
    }
    "no".to_owned()
}
