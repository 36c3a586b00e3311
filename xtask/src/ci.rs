//! Everything that must hold before a change is taken, quick checks first.
//!
//! `cargo xtask ci [STAGE...]`; `.ci/run` runs it.

use crate::shell::{cargo, show};
use crate::stage::{Done, Stage, run_all};
use crate::{circles, faults, fuzz, install, layers, tidy};
use anyhow::{Context, Result, ensure};
use e2e::{binary, python, tools};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// What all fuzz targets together get.
const FUZZ_TIME: Duration = Duration::from_mins(5);

/// Tests of a crate that run at a time.
const TEST_THREADS: &str = "4";

/// Features of all that is only built with the libraries of Ceph.
const WITH_CEPH: &str =
    "cinnabar/ceph,cinnabar-backend/ceph,cinnabar-hybrid/ceph,cinnabar-rados/ceph";

/// Which stages to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only these stages: tools, fmt, tidy, layers, circles, clippy, doc, deny, test, e2e, faults, fuzz [default: all]
    #[arg(hide_default_value = true)]
    stages: Vec<String>,
}

/// Runs the stages.
pub(crate) fn run(args: &Args) -> ExitCode {
    let stages = [
        Stage::new("tools", tools),
        Stage::new("fmt", || cargo_stage(&["fmt", "--all", "--check"])),
        Stage::new("tidy", || tidy::check().map(passed)),
        Stage::new("layers", || layers::check().map(passed)),
        Stage::new("circles", || circles::check().map(passed)),
        Stage::new("clippy", || {
            let lint = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
            show(cargo(&lint).args(["--", "-D", "warnings"])).map(Done::Passed)
        }),
        // Without features: this compiles what is built without the libraries of Ceph.
        Stage::new("doc", || {
            let doc = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
            show(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings")).map(Done::Passed)
        }),
        Stage::new("deny", deny),
        Stage::new("test", || {
            // With the output of passed tests, for the lines that tell of skipped ones.
            let mut test = tests();
            // Deliberate bugs are found by the hundred here, each by a panic that is expected: their stacks
            // would hide the one line that counts.
            test.args(["--no-fail-fast", "--", "--show-output"]).env("RUST_BACKTRACE", "0");
            // Many of them wait for files and time-outs, not for a processor.
            test.env("RUST_TEST_THREADS", TEST_THREADS);
            let mut skipped = show(&mut test)?;
            if !binary::with_ceph() {
                let packages = "librbd-dev, librados-dev and libradospp-dev";
                skipped.push(format!("RBD images and hybrid volumes on Ceph need {packages}"));
            }
            Ok(Done::Passed(skipped))
        }),
        Stage::new("e2e", end_to_end),
        Stage::new("faults", || faults::check(&tested("cinnabar-lab")?)),
        Stage::new("fuzz", || fuzz::run(FUZZ_TIME)),
    ];
    run_all("ci", &stages, &args.stages)
}

/// All tests but the end-to-end ones: one build of all, with what needs the libraries of Ceph where these are.
fn tests() -> Command {
    let mut test = cargo(&["test", "--workspace", "--exclude", "e2e", "--locked"]);
    if binary::with_ceph() {
        test.args(["--features", WITH_CEPH]);
    }
    test
}

/// The end-to-end tests, two at a time. Cases on the one Ceph cluster wait for each other: they and those that kill
/// daemons are one half, which takes about as long as all others.
fn end_to_end() -> Result<Done> {
    const HALF: [&str; 2] = ["ceph_", "crash_"];
    let (daemon, lab) = (tested("cinnabar")?, tested("cinnabar-lab")?);
    let run = |select: &[&str]| {
        let mut test =
            cargo(&["test", "--package", "e2e", "--locked", "--", "--test-threads", "1"]);
        test.env(binary::BINARY, &daemon).env(binary::LAB_BINARY, &lab);
        show(test.args(select).env(binary::PROFILE, "test"))
    };
    let (half, others) = thread::scope(|scope| {
        let half = scope.spawn(|| HALF.map(|name| run(&[name])));
        let others = run(&HALF.map(|name| ["--skip", name]).concat());
        (half.join().expect("it does not panic"), others)
    });
    let [ceph, crashes] = half;
    Ok(Done::Passed([ceph?, crashes?, others?].concat()))
}

/// A program of that build, which checks itself more than a release does. A release build takes as long as all the
/// rest: benchmarks and long searches have one.
fn tested(program: &str) -> Result<PathBuf> {
    let mut build = tests();
    build.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let done = build.stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(done.status.success(), "the tests do not build");
    let is_it = |built: &serde_json::Value| {
        let target = &built["target"];
        let is_program = target["kind"][0] == "bin" && built["profile"]["test"] == false;
        is_program && target["name"] == program
    };
    binary::named(&done.stdout, is_it).context("cargo named no such program")
}

fn passed((): ()) -> Done {
    Done::Passed(Vec::new())
}

fn cargo_stage(args: &[&str]) -> Result<Done> {
    show(&mut cargo(args)).map(Done::Passed)
}

/// Tools that are still missing afterwards skip the tests that need them; nothing else suffers.
fn tools() -> Result<Done> {
    install::component("fmt", "rustfmt")?;
    install::component("clippy", "clippy")?;
    let fetched = [install::debian(tools::ALL), python::API_CLIENT.fetch(), python::AXE.fetch()];
    let missing: Vec<String> =
        fetched.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    Ok(if missing.is_empty() {
        Done::Passed(Vec::new())
    } else {
        Done::Skipped(missing.join("\n"))
    })
}

/// Licences, bans and sources. Advisories need a database from the network at every run, and fail
/// without a change in this tree: `cargo deny check advisories` is for releases and nightly runs.
fn deny() -> Result<Done> {
    if let Err(reason) = install::subcommand("deny", "checks licences, bans and sources") {
        return Ok(Done::Skipped(reason));
    }
    println!("advisories are left out here: they need a download of the RustSec database");
    cargo_stage(&["deny", "--locked", "check", "licenses", "bans", "sources"])
}
