//! Runs every fuzz target for a share of a given time.
//!
//! Called by `ci` (minutes) and `soak` (longer).

use crate::install;
use crate::shell::{nightly, root, show};
use crate::stage::Done;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Builds the targets and runs them one after the other, `total` time together.
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
    show(&mut nightly(&["fuzz", "build"]))?;
    let seconds = (total.as_secs() / targets.len() as u64).max(1);
    for target in &targets {
        // The bound on memory turns an unbounded allocation into a finding.
        let time = format!("-max_total_time={seconds}");
        let options = [
            time.as_str(),
            "-rss_limit_mb=2048",
            "-timeout=20",
            "-verbosity=0",
            "-print_final_stats=1",
        ];
        let mut args = vec!["fuzz", "run", target, "--"];
        args.extend(options);
        show(&mut nightly(&args)).with_context(|| format!("fuzz target {target}"))?;
    }
    Ok(Done::Passed(Vec::new()))
}

fn list() -> Result<Vec<String>> {
    let done = nightly(&["fuzz", "list"]).output().context("starting cargo fuzz")?;
    if !done.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).lines().map(ToOwned::to_owned).collect())
}
