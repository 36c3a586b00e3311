//! The six results of "Flash caching on the storage client", at 1/64 of the published sizes: each
//! claim is a bound that the simulator may miss.

use cinnabar_sim::holland::{self, Check, Experiment, Measured, Setup, experiments};
use cinnabar_sim::sweep::{self, Job, Limits};
use cinnabar_sim::timed::Config;

const SETUP: Setup = Setup { scale: 64, seed: 1 };

fn run(configs: Vec<Config>) -> Measured {
    let jobs: Vec<_> = configs.iter().map(|config| Job::generated("", *config)).collect();
    let outcomes = sweep::outcomes(&jobs, &Limits::of_this_machine(), &mut |_| {});
    Measured::new(configs, outcomes.expect("every experiment can be run"))
}

fn told(experiment: &Experiment, check: &Check, measured: &Measured) -> String {
    let bound = check.bound.map(holland::Bound::parts);
    let value = check.value(measured);
    format!("{}: {}: {value:.4}, {bound:?}", experiment.name, check.what)
}

#[test]
fn the_six_published_results_hold() {
    let claims: Vec<_> = experiments::all(SETUP)
        .into_iter()
        .filter(|experiment| experiment.claim.is_some())
        .collect();
    let configs = claims.iter().flat_map(Experiment::check_configs).collect::<Vec<_>>();
    let measured = run(holland::distinct(configs.iter()));
    let checks =
        claims.iter().flat_map(|claim| claim.checks.iter().map(move |check| (claim, check)));
    let failed: Vec<_> = checks
        .filter(|(_, check)| check.bound.is_some())
        .inspect(|(claim, check)| println!("{}", told(claim, check, &measured)))
        .filter(|(_, check)| check.holds(&measured) != Some(true))
        .map(|(claim, check)| told(claim, check, &measured))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
