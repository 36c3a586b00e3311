//! Runs every fuzz target for a share of a given time.

use crate::install;
use crate::shell::{cargo, nightly, root, show};
use crate::stage::Done;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The target whose bytes choose the engine's events.
const ENGINE: &str = "engine";
/// The one whose bytes choose what happens to the write log.
const WRITE_LOG: &str = "write_log";
/// Targets that run at a time.
const WORKERS: usize = 2;
/// Inputs that tests of these crates run, by target.
const TESTED_ELSEWHERE: [(&str, &str); 2] = [
    (ENGINE, "crates/cinnabar-sim/tests/corpus/guided"),
    (WRITE_LOG, "crates/cinnabar-writeback/tests/corpus/guided"),
];
/// The programs, with libFuzzer in them: other builds of the workspace do without.
const FEATURES: &str = "libfuzzer,libfuzzer-sys/link_libfuzzer";
/// Unlike a release: a panic of the engine is caught, for its story; and each of the programs would be optimised as
/// a whole.
const PROFILE: [(&str, &str); 2] =
    [("CARGO_PROFILE_RELEASE_PANIC", "unwind"), ("CARGO_PROFILE_RELEASE_LTO", "off")];

/// Builds the targets and runs them, two at a time; `total` is the sum of their times.
///
/// # Errors
/// When one does not build, or finds a crash (cargo-fuzz says how to reproduce it).
pub(crate) fn run(total: Duration) -> Result<Done> {
    if !root().join("fuzz/Cargo.toml").exists() {
        return Ok(Done::Skipped("there are no fuzz targets yet".into()));
    }
    let tools = install::nightly_toolchain("cargo-fuzz needs its sanitizers")
        .and_then(|()| install::subcommand("fuzz", "drives the fuzz targets"));
    if let Err(reason) = tools {
        return Ok(Done::Skipped(reason));
    }
    let targets = list()?;
    if targets.is_empty() {
        return Ok(Done::Skipped("there are no fuzz targets yet".into()));
    }
    write_corpora()?;
    show(&mut cargo_fuzz(&["build", "--features", FEATURES]))?;
    // The longest first: two at a time end together.
    let long = |target: &&String| is_long(target);
    let (long, short): (Vec<_>, Vec<_>) = targets.iter().partition(long);
    let queue = Mutex::new(long.into_iter().chain(short));
    let has_failed = AtomicBool::new(false);
    let next = || queue.lock().ok()?.next().filter(|_| !has_failed.load(Ordering::Relaxed));
    let work = || -> Result<()> {
        while let Some(target) = next() {
            let done = fuzz(target, share(total, target, targets.len()));
            done.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    let done = thread::scope(|scope| {
        let workers = [(); WORKERS].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().expect("it does not panic"))
    });
    done.into_iter().try_for_each(|done| done.inspect_err(|error| eprintln!("{error:#}")))?;
    Ok(Done::Passed(Vec::new()))
}

/// Valid inputs of each target, which its test makes, join its corpus.
fn write_corpora() -> Result<()> {
    let mut test = cargo(&["test", "--package", "cinnabar-fuzz", "--locked"]);
    test.env("CINNABAR_FUZZ_CORPUS", root().join("fuzz/corpus"));
    show(&mut test).context("writing valid inputs").map(drop)
}

fn cargo_fuzz(args: &[&str]) -> Command {
    let mut command = nightly(&["fuzz"]);
    command.args(args).envs(PROFILE);
    command
}

fn fuzz(target: &str, seconds: u64) -> Result<()> {
    // The bound on memory turns an unbounded allocation into a finding.
    let time = format!("-max_total_time={seconds}");
    let options = [
        time.as_str(),
        "-rss_limit_mb=2048",
        "-timeout=20",
        "-verbosity=0",
        "-print_final_stats=1",
    ];
    let corpora = root().join("fuzz/corpus").join(target);
    let mut run = cargo_fuzz(&["run", target, "--features", FEATURES]);
    // What is new goes to the first, which the tree does not keep.
    std::fs::create_dir_all(&corpora).context("making the folder of the corpus")?;
    run.arg(corpora);
    let kept = root().join("fuzz/seeds").join(target);
    let elsewhere = TESTED_ELSEWHERE.iter().find(|(of, _)| *of == target);
    let elsewhere = elsewhere.map(|(_, folder)| root().join(folder));
    run.args([Some(kept), elsewhere].into_iter().flatten().filter(|folder| folder.exists()));
    run.arg("--").args(options);
    if target == WRITE_LOG {
        // Short inputs are short runs, in which nothing happens.
        run.arg("-len_control=0");
    }
    show(&mut run).with_context(|| format!("fuzz target {target}")).map(drop)
}

fn is_long(target: &str) -> bool {
    [ENGINE, WRITE_LOG].contains(&target)
}

/// Seconds of a target: those whose inputs are whole sessions have two thirds of the time.
fn share(total: Duration, target: &str, targets: usize) -> u64 {
    let others = (targets as u64).saturating_sub(2).max(1);
    let third = total.as_secs() / 3;
    let seconds = if is_long(target) { third } else { third / others };
    seconds.max(1)
}

fn list() -> Result<Vec<String>> {
    let done = cargo_fuzz(&["list"]).output().context("starting cargo fuzz")?;
    if !done.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).lines().map(ToOwned::to_owned).collect())
}
