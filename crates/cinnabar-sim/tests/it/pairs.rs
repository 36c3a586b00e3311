//! Moments and incidents that meet: what is said to be impossible is never met.
//!
//! `CINNABAR_PAIRS=first..end` runs those seeds and prints every possible pair that they did not meet;
//! `CINNABAR_PAIR=NAME` prints how often that one was met.

use cinnabar_sim::FaultOptions;
use cinnabar_sim::faults::search;
use cinnabar_sim::pairs::{Pair, possible};

#[test]
fn nothing_impossible_is_met() {
    let seeds = crate::engine::range_of("CINNABAR_PAIRS");
    let found = search(seeds.clone().unwrap_or(0..50), &FaultOptions::default(), |_| {});
    for failed in &found.failures {
        println!("seed {}: {}", failed.seed, failed.violation);
    }
    let pairs = found.report.pairs;
    let unmet = pairs.unmet();
    println!("{} of {} pairs were met", possible(false).len() - unmet.len(), possible(false).len());
    let name = |(moment, incident): &Pair| format!("{moment} x {}", incident.name());
    println!("{} times, two mechanisms were brought together", found.report.duos);
    if let Ok(wanted) = std::env::var("CINNABAR_PAIR") {
        for pair in possible(false).iter().filter(|pair| name(pair) == wanted) {
            println!("{wanted}: {} times", pairs.of(pair.0, pair.1));
        }
    }
    if seeds.is_some() {
        for pair in &unmet {
            println!("unmet: {}", name(pair));
        }
    }
    let wrong: Vec<String> = pairs.impossible_but_met().iter().map(name).collect();
    assert!(wrong.is_empty(), "met, but said to be impossible: {wrong:?}");
}
