//! Which tests run in which tier, over the programs of one build.
//!
//! `test` runs all tests but those named here, `ci` those of [`Tier::Ci`] as well, `nightly` the rest. Tests
//! are put off because they take long, never because they are unimportant: a test that has found a
//! bug is in `ci`.

use crate::lanes::{Job, Lane, Lanes, Outcome, SILENCE_MAX};
use crate::programs::{Program, build};
use crate::slow::SLOW;
use crate::tier::Tier;
use anyhow::{Context, Result, ensure};
use e2e::binary;
use std::process::Command;

/// The program of the end-to-end tests.
pub(crate) const CLIENTS: &str = "e2e/clients";
const DAEMON: &str = "cinnabar";
/// The program that runs fault simulations.
pub(crate) const SIMULATOR: &str = "cinnabar-lab";
/// A client over vhost-user.
const LOADGEN: &str = "loadgen";
/// Programs that tests start. Cargo links a package's test programs without waiting for these.
const STARTED: [&str; 4] = [DAEMON, SIMULATOR, LOADGEN, "guest-io"];
/// The one with the simulation of two hosts.
const TWO_HOSTS: &str = "cinnabar-sim/it";
/// Tests that need a Ceph cluster: they are clients as the end-to-end ones are, and start it themselves.
const ON_CEPH: &str = "cinnabar-hybrid/ceph";

/// The test program that has no harness of the toolchain's.
const OWN_HARNESS: &str = "cinnabar-embed/it";
/// With it, tests that take seconds are named.
const TIMES: &str = "CINNABAR_TIMES";

/// Programs whose tests mostly wait: for files, time-outs, other processes.
const WAITING: [&str; 11] = [
    "cinnabar/it",
    "cinnabar-backend",
    "cinnabar-backend/it",
    "cinnabar-config",
    "cinnabar-control",
    "cinnabar-daemon",
    "cinnabar-embed",
    "cinnabar-embed/it",
    "cinnabar-frontend/it",
    "cinnabar-hybrid",
    "cinnabar-hybrid/it",
];
/// Tests of such a program that run at a time.
const THREADS_WAITING: &str = "4";
/// The same of one that computes.
const THREADS_COMPUTING: &str = "2";

#[derive(Clone, Debug, Default)]
pub(crate) struct Built(Vec<Program>);

impl Built {
    /// Builds without running anything.
    pub(crate) fn new() -> Result<Self> {
        let mut built = Self::default();
        build(|program| {
            built.0.push(program);
            Ok(())
        })?;
        Ok(built)
    }

    /// A program by its name: the unit tests of a crate have its own, a program that runs no tests goes before them.
    pub(crate) fn named(&self, name: &str) -> Result<&Program> {
        let named = self.0.iter().filter(|program| program.name == name);
        named.min_by_key(|program| program.tests).with_context(|| format!("cargo built no {name}"))
    }

    /// A program that runs tests, by its name.
    pub(crate) fn tests(&self, name: &str) -> Result<&Program> {
        let mut all = self.0.iter();
        let found = all.find(|program| program.tests && program.name == name);
        found.with_context(|| format!("cargo built no tests {name}"))
    }

    /// Whether all that tests start is linked.
    fn can_start(&self) -> bool {
        let linked = |name: &&str| self.named(name).is_ok_and(|program| !program.tests);
        STARTED.iter().all(linked)
    }
}

/// Builds, and runs the quick tests of each program as soon as it and what it starts are linked; `seeds`
/// is a job for the simulator.
pub(crate) fn quick(seeds: impl FnOnce(&Built) -> Result<Job>) -> Result<(Built, Outcome)> {
    let mut built = Built::default();
    let mut seeds = Some(seeds);
    let outcome = Lanes::run(|lanes| {
        let mut held = Vec::new();
        build(|program| {
            if program.tests && program.name != ON_CEPH {
                held.push(program.clone());
            }
            built.0.push(program);
            let can_start = built.can_start();
            for program in held.extract_if(.., |program| can_start || !program.starts_others()) {
                if program.name != CLIENTS {
                    lanes.push(unit_tests(&program, Tier::Quick));
                    continue;
                }
                for lane in ["kills", "rest"] {
                    lanes.push(clients(&built, Tier::Quick, lane)?);
                }
            }
            if let Some(seeds) = seeds.take_if(|_| can_start) {
                lanes.push(seeds(&built)?);
            }
            Ok(())
        })?;
        ensure!(held.is_empty() && seeds.is_none(), "cargo did not build all of {STARTED:?}");
        Ok(())
    })?;
    Ok((built, outcome))
}

/// Runs the tests that are put off until `tier`.
pub(crate) fn put_off(built: &Built, tier: Tier) -> Result<Outcome> {
    let slow = || SLOW.iter().filter(move |slow| slow.tier == tier);
    for slow in slow() {
        slow.check(built.named(slow.program)?)?;
    }
    Lanes::run(|lanes| {
        for slow in slow() {
            lanes.push(unit_tests(built.named(slow.program)?, tier));
        }
        if tier == Tier::Ci && binary::with_ceph() {
            let program = built.named(ON_CEPH)?;
            lanes.push(Job { lane: Lane::Clients, ..unit_tests(program, Tier::Quick) });
        }
        Ok(())
    })
}

/// Runs the end-to-end cases of a tier; then, those that need the machine to themselves.
pub(crate) fn end_to_end(built: &Built, tier: Tier) -> Result<Outcome> {
    Lanes::run(|lanes| {
        for lane in ["ceph", "kills", "rest", "alone"] {
            lanes.push(clients(built, tier, lane)?);
        }
        Ok(())
    })
}

/// Seeds of a volume that moves between two hosts; their simulation is a test of its crate.
pub(crate) fn two_hosts(built: &Built, seeds: u64) -> Result<Job> {
    let program = built.named(TWO_HOSTS)?;
    let mut command = Command::new(&program.path);
    command.args(["no_seed_of_two_hosts", "--nocapture"]).current_dir(&program.folder);
    command.env("CINNABAR_SEEDS", format!("0..{seeds}"));
    let name = format!("{seeds} seeds of two hosts");
    Ok(Job { name, lane: Lane::Computes, command, silence_max: None })
}

/// Those tests of a program that belong to a tier.
fn unit_tests(program: &Program, tier: Tier) -> Job {
    let waits = WAITING.contains(&program.name.as_str());
    let mut command = Command::new(&program.path);
    // With the output of passed tests, for the lines that tell of skipped ones.
    command.args(["--show-output", "--exact"]).current_dir(&program.folder);
    for slow in SLOW.iter().filter(|slow| slow.program == program.name) {
        match tier {
            Tier::Quick => command.args(slow.tests.iter().flat_map(|test| ["--skip", *test])),
            _ if slow.tier == tier => command.args(slow.tests),
            _ => &mut command,
        };
    }
    // Deliberate bugs are found by the hundred, each by a panic that is expected: their stacks would hide
    // the one line that counts.
    command.env("RUST_BACKTRACE", "0");
    command.env("RUST_TEST_THREADS", if waits { THREADS_WAITING } else { THREADS_COMPUTING });
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    if std::env::var_os(TIMES).is_some() && program.name != OWN_HARNESS {
        // The pinned toolchain's harness knows the times of tests, and has not settled how to say so.
        command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    }
    let lane = if waits { Lane::Waits } else { Lane::Computes };
    Job { name: program.name.clone(), lane, command, silence_max: Some(SILENCE_MAX) }
}

/// The end-to-end cases of a tier and a lane.
fn clients(built: &Built, tier: Tier, lane: &str) -> Result<Job> {
    let program = built.named(CLIENTS)?;
    let mut command = Command::new(&program.path);
    command.args(["--test-threads", "1"]).current_dir(&program.folder);
    command.env("CINNABAR_TIER", tier.name()).env("CINNABAR_LANE", lane);
    command.env(binary::BINARY, &built.named(DAEMON)?.path).env(binary::PROFILE, "test");
    command.env(binary::LAB_BINARY, &built.named(SIMULATOR)?.path);
    let folder = built.named(LOADGEN)?.path.parent().context("a program lies in a folder")?;
    command.env(binary::PROGRAMS, folder);
    let lane_of = if lane == "alone" { Lane::Alone } else { Lane::Clients };
    let name = format!("end-to-end, {lane}");
    Ok(Job { name, lane: lane_of, command, silence_max: Some(SILENCE_MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn nothing_is_started_while_only_the_unit_tests_of_its_crate_are_linked() {
        let of = |name: &&str, tests| Program {
            name: (*name).to_owned(),
            tests,
            path: PathBuf::default(),
            folder: PathBuf::default(),
        };
        let mut built = Built(STARTED.iter().map(|name| of(name, *name == DAEMON)).collect());
        assert!(!built.can_start());
        built.0.push(of(&DAEMON, false));
        assert!(built.can_start());
    }
}
