//! The three tiers of checks, each of which contains the one before it: `cargo xtask test`, `ci` and
//! `nightly`. With names of stages, only these.
//!
//! `.ci/run` runs `cargo xtask ci`. What runs in which tier is in `tiers` and `slow`, and for end-to-end
//! cases in `tests/clients/tier.rs`.

use crate::lanes::{Lanes, Outcome};
use crate::shell::{cargo, show};
use crate::stage::{Done, Stage, run_all};
use crate::tier::Tier;
use crate::tiers::{self, Built, SIMULATOR};
use crate::{faults, found_by, fuzz, install, layers, tidy};
use anyhow::Result;
use e2e::{binary, python, tools};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Fault-simulation seeds of `test`, of `ci`, of `ci` at each commit, of `nightly`.
const QUICK_SEEDS: u64 = 200;
const CI_SEEDS: u64 = 1_200;
const COMMIT_SEEDS: u64 = 300;
const NIGHTLY_SEEDS: u64 = 50_000;
/// Those of two hosts.
const CI_SEEDS_OF_TWO_HOSTS: u64 = 1_200;
const NIGHTLY_SEEDS_OF_TWO_HOSTS: u64 = 12_000;
/// What all fuzz targets together get at night.
const FUZZ_TIME: Duration = Duration::from_mins(30);

/// Which stages to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only these stages; a wrong name lists them [default: all]
    #[arg(hide_default_value = true)]
    stages: Vec<String>,
}

/// What stages leave to later ones: the programs that were built.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<Built>>>);

impl Shared {
    fn keep(&self, built: Built) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(built);
    }

    /// The programs, built now unless a stage did so before.
    fn built(&self) -> Result<Built> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*kept {
            return Ok(built.clone());
        }
        let built = Built::new()?;
        *kept = Some(built.clone());
        Ok(built)
    }
}

/// Runs `cargo xtask test`.
pub(crate) fn test(args: &Args) -> ExitCode {
    let mut stages = vec![Stage::new("tools", || install_tools(tools::QUICK))];
    stages.extend(quick(&Shared::default()));
    run_all("test", &stages, &args.stages)
}

/// Runs `cargo xtask ci`.
pub(crate) fn ci(args: &Args) -> ExitCode {
    let shared = Shared::default();
    let mut stages = vec![Stage::new("tools", all_tools)];
    stages.extend(quick(&shared));
    stages.extend(thorough(&shared));
    run_all("ci", &stages, &args.stages)
}

/// Runs `cargo xtask nightly`.
pub(crate) fn nightly(args: &Args) -> ExitCode {
    let shared = Shared::default();
    let mut stages = vec![Stage::new("tools", all_tools)];
    stages.extend(quick(&shared));
    stages.extend(thorough(&shared));
    stages.extend(exhaustive(&shared));
    run_all("nightly", &stages, &args.stages)
}

/// What a newcomer runs, after the tools.
fn quick(shared: &Shared) -> Vec<Stage> {
    let shared = shared.clone();
    vec![
        Stage::new("fmt", || cargo_stage(&["fmt", "--all", "--check"])),
        Stage::new("tidy", || tidy::check().map(passed)),
        Stage::new("layers", || layers::check().map(passed)),
        Stage::new("test", move || {
            let seeds = |built: &Built| Ok(faults::job(&built.named(SIMULATOR)?.path, QUICK_SEEDS));
            let (built, outcome) = tiers::quick(seeds)?;
            shared.keep(built);
            Ok(done(outcome))
        }),
    ]
}

/// What `ci` adds. End-to-end cases mostly wait: the others run beside them.
fn thorough(shared: &Shared) -> Vec<Stage> {
    let (clients, past, slow, seeds) =
        (shared.clone(), shared.clone(), shared.clone(), shared.clone());
    vec![
        Stage::new("e2e", move || tiers::end_to_end(&clients.built()?, Tier::Ci).map(done)).beside(
            vec![
                Stage::new("clippy", || {
                    let lint =
                        ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
                    show(cargo(&lint).args(["--", "-D", "warnings"])).map(Done::Passed)
                }),
                // Without features: this compiles what is built without the libraries of Ceph.
                Stage::new("doc", || {
                    let doc =
                        ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
                    show(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings")).map(Done::Passed)
                }),
                Stage::new("found-by", move || found_by::check(&past.built()?).map(passed)),
                Stage::new("slow", move || tiers::put_off(&slow.built()?, Tier::Ci).map(done)),
                Stage::new("faults", move || {
                    let built = seeds.built()?;
                    simulate(&built, CI_SEEDS, COMMIT_SEEDS, CI_SEEDS_OF_TWO_HOSTS)
                }),
            ],
        ),
    ]
}

/// What `nightly` adds.
fn exhaustive(shared: &Shared) -> Vec<Stage> {
    let (clients, slow, seeds) = (shared.clone(), shared.clone(), shared.clone());
    vec![
        Stage::new("all e2e", move || {
            tiers::end_to_end(&clients.built()?, Tier::Nightly).map(done)
        }),
        Stage::new("all slow", move || tiers::put_off(&slow.built()?, Tier::Nightly).map(done)),
        Stage::new("all faults", move || {
            simulate(&seeds.built()?, NIGHTLY_SEEDS, 0, NIGHTLY_SEEDS_OF_TWO_HOSTS)
        }),
        Stage::new("examples", || {
            show(&mut cargo(&["test", "--workspace", "--locked", "--doc"]))?;
            cargo_stage(&["build", "--profile", "test", "--workspace", "--locked", "--examples"])
        }),
        Stage::new("deny", deny),
        Stage::new("fuzz", || fuzz::run(FUZZ_TIME)),
        Stage::new("benches", || {
            // One short round each: shows that they work, measures nothing.
            for bench in ["frontends", "marks", "writeback", "restart"] {
                cargo_stage(&["xtask", "bench", bench, "--quick"])?;
            }
            Ok(Done::Passed(Vec::new()))
        }),
        Stage::new("package", || cargo_stage(&["xtask", "package"])),
    ]
}

/// Fault simulations: the same seeds each time, so that a change is to blame for a failure, and others of the
/// commit's own.
fn simulate(built: &Built, seeds: u64, of_commit: u64, of_two_hosts: u64) -> Result<Done> {
    let simulator = &built.named(SIMULATOR)?.path;
    let outcome = Lanes::run(|lanes| {
        lanes.push(faults::job(simulator, seeds));
        if of_commit > 0 {
            lanes.push(faults::job_of_commit(simulator, of_commit)?);
        }
        lanes.push(tiers::two_hosts(built, of_two_hosts)?);
        Ok(())
    })?;
    Ok(done(outcome))
}

fn done(outcome: Outcome) -> Done {
    println!("{} tests passed", outcome.passed);
    let mut skipped = outcome.skipped;
    if !binary::with_ceph() {
        let packages = "librbd-dev, librados-dev and libradospp-dev";
        skipped.push(format!("RBD images and hybrid volumes on Ceph need {packages}"));
    }
    Done::Passed(skipped)
}

fn passed((): ()) -> Done {
    Done::Passed(Vec::new())
}

fn cargo_stage(args: &[&str]) -> Result<Done> {
    show(&mut cargo(args)).map(Done::Passed)
}

/// Tools that are still missing afterwards skip the tests that need them; nothing else suffers.
fn all_tools() -> Result<Done> {
    install::component("clippy", "clippy")?;
    let fetched = [python::API_CLIENT.fetch(), python::AXE.fetch()];
    let missing = fetched.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
    match install_tools(tools::ALL)? {
        Done::Passed(skipped) => Ok(Done::Passed(skipped.into_iter().chain(missing).collect())),
        skipped @ Done::Skipped(_) => Ok(skipped),
    }
}

fn install_tools(wanted: &[tools::Tool]) -> Result<Done> {
    install::component("fmt", "rustfmt")?;
    let missing = install::debian(wanted).err().map(|error| format!("{error:#}"));
    Ok(Done::Passed(missing.into_iter().collect()))
}

/// Licences, bans, sources and advisories, which need a database from the network at every run and fail
/// without a change in this tree.
fn deny() -> Result<Done> {
    if let Err(reason) =
        install::subcommand("deny", "checks licences, bans, sources and advisories")
    {
        return Ok(Done::Skipped(reason));
    }
    cargo_stage(&["deny", "--locked", "check", "licenses", "bans", "sources"])?;
    match cargo_stage(&["deny", "--locked", "check", "advisories"]) {
        Err(error) => Ok(Done::Passed(vec![format!("advisories: {error:#}")])),
        passed => passed,
    }
}
