//! Everything that must hold before a change is taken, quick checks first.
//!
//! `cargo xtask ci [STAGE...]`; `.ci/run` runs it.

use crate::shell::{cargo, show};
use crate::stage::{Done, Stage, run_all};
use crate::{circles, faults, fuzz, install, layers, tidy};
use anyhow::Result;
use e2e::{binary, python, tools};
use std::process::ExitCode;
use std::time::Duration;

/// What all fuzz targets together get.
const FUZZ_TIME: Duration = Duration::from_mins(5);

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
        Stage::new("doc", || {
            let doc = ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
            show(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings")).map(Done::Passed)
        }),
        Stage::new("deny", deny),
        Stage::new("test", || {
            let test = ["test", "--workspace", "--exclude", "e2e", "--locked", "--no-fail-fast"];
            // With the output of passed tests, for the lines that tell of skipped ones.
            let mut skipped = show(cargo(&test).args(["--", "--show-output"]))?;
            skipped.extend(ceph()?);
            Ok(Done::Passed(skipped))
        }),
        Stage::new("e2e", || cargo_stage(&["test", "--package", "e2e", "--release", "--locked"])),
        Stage::new("faults", faults::check),
        Stage::new("fuzz", || fuzz::run(FUZZ_TIME)),
    ];
    run_all("ci", &stages, &args.stages)
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
    let fetched = [install::debian(tools::ALL), python::API_CLIENT.fetch()];
    let missing: Vec<String> =
        fetched.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    Ok(if missing.is_empty() {
        Done::Passed(Vec::new())
    } else {
        Done::Skipped(missing.join("\n"))
    })
}

/// Tests of what is only built with the libraries of Ceph.
fn ceph() -> Result<Vec<String>> {
    if !binary::with_ceph() {
        return Ok(vec!["RBD images need librbd-dev and librados-dev".into()]);
    }
    show(&mut cargo(&[
        "test",
        "-p",
        "cinnabar-backend",
        "--features",
        "ceph",
        "--locked",
        "--lib",
        "rbd",
    ]))
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
