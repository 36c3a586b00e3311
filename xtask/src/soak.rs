//! Searches longer than `ci` has time for.
//!
//! `cargo xtask soak` runs fault simulations on and on; `cargo xtask soak --minutes 60` gives them
//! and the fuzz targets an hour each; `cargo xtask soak crash-images` looks at what power cuts leave
//! of a guest's disk; `cargo xtask soak migrations` moves volumes and guests between two daemons.

use crate::shell::{cargo, show};
use crate::stage::{Done, Stage, run_all};
use crate::{faults, fuzz, install};
use anyhow::Result;
use e2e::tools;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long to search.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Minutes for fault simulations, and as many for fuzz targets [default: fault simulations, on
    /// and on]
    #[arg(long, hide_default_value = true)]
    minutes: Option<u64>,
    /// First seed of the fault simulations and of crash-images [default: one that depends on the time,
    /// so that each search sees new ones]
    #[arg(long, hide_default_value = true)]
    first: Option<u64>,
    /// Seeds for each of the simulator's tests
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Images that crash-images looks at, at the least
    #[arg(long, default_value_t = 500)]
    images: u64,
    /// Mode of the volume of crash-images: write-through, write-back, write-around, pass-through
    #[arg(long, default_value = "write-through")]
    mode: String,
    /// Hand-overs of migrations; a twentieth of them are live migrations of a guest over NBD, as many over
    /// vhost-user, and there is a killed owner for five of them and a frozen one for ten
    #[arg(long, default_value_t = 100)]
    migrations: u64,
    /// Only these stages: faults, seeds, fuzz, crash-images, migrations [default: all; without --minutes: faults]
    #[arg(hide_default_value = true)]
    stages: Vec<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let seeds = format!("0..{}", args.seeds);
    let limit = args.minutes.map(Duration::from_mins);
    let first = args.first.unwrap_or_else(fresh_seed);
    let migrations = args.migrations;
    let (images, mode) = (args.images, args.mode.clone());
    let stages = [
        Stage::new("faults", move || faults::run_on(first, limit)),
        Stage::new("seeds", move || {
            let test = ["test", "--release", "--locked", "--package", "cinnabar-sim"];
            show(cargo(&test).env("CINNABAR_SEEDS", &seeds)).map(Done::Passed)
        }),
        Stage::new("crash-images", move || crash_images(images, &mode, first, limit)),
        Stage::new("migrations", move || migrate(migrations)),
        Stage::new("fuzz", move || fuzz::run(limit.unwrap_or(Duration::from_hours(1)))),
    ];
    let mut wanted = args.stages.clone();
    if wanted.is_empty() && limit.is_none() {
        wanted.push("faults".to_owned());
    }
    run_all("soak", &stages, &wanted)
}

/// Volumes, and guests, that move between two daemons, among the end-to-end tests.
fn migrate(hand_overs: u64) -> Result<Done> {
    install::debian(tools::ALL)?;
    let test = ["test", "--release", "--locked", "--package", "e2e", "--test", "clients"];
    let (guests, mut skipped) = ((hand_overs / 20).max(1), Vec::new());
    for (case, count) in [("migration_hand_overs", hand_overs), ("guest_migrates_", guests)] {
        let mut search = cargo(&test);
        search.args(["--", "--nocapture", case]).env("CINNABAR_MIGRATIONS", count.to_string());
        skipped.extend(show(&mut search)?);
    }
    Ok(Done::Passed(skipped))
}

/// Guests that commit transactions, and images of their disk after power cuts, among the end-to-end
/// tests.
fn crash_images(images: u64, mode: &str, first: u64, limit: Option<Duration>) -> Result<Done> {
    install::debian(tools::ALL)?;
    let test = ["test", "--release", "--locked", "--package", "e2e", "--test", "clients"];
    let mut search = cargo(&test);
    search.args(["--", "guest_power_cut_images"]);
    let minutes = limit.unwrap_or_default().as_secs() / 60;
    for (name, number) in [("IMAGES", images), ("SEED", first), ("MINUTES", minutes)] {
        search.env(format!("CINNABAR_CRASH_{name}"), number.to_string());
    }
    show(search.env("CINNABAR_CRASH_MODE", mode)).map(Done::Passed)
}

/// A seed that no earlier search has come to: they run fewer than a thousand a second.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() * 1000
}
