//! Power cuts of the back end, under a guest that commits transactions.
//!
//! The back end is an NBD server that logs every write (`e2e::disk_log`). After each flush of it, and
//! after each flush and some part of what followed, an image is made: what the back end holds if the
//! host, the cache device and everything else are lost at that moment. Each must be one that a guest
//! can start from: the file system is clean after its journal, the database is intact, and it holds a
//! prefix of the transactions. In write-through it holds all that were acknowledged by then. In
//! write-back it may lag behind, but it never goes back.
//!
//! `CINNABAR_CRASH_IMAGES`, `_MODE`, `_SEED` and `_MINUTES` make it another search than that of CI:
//! at least so many images, of as many guests as that takes.

mod backend;
mod check;
mod history;
mod host;
mod images;
mod restart;
mod setting;
mod survey;

use anyhow::{Result, anyhow};
use history::record;
pub(super) use restart::flush_after_a_kill;
use setting::{Incident, Setting, incidents};
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, Instant};
use survey::Survey;

/// Commits of a guest, and of one in CI.
const COMMITS: u64 = 60;
const COMMITS_SHORT: u64 = 24;
/// Flushes of a guest in CI after which there are images.
const FLUSHES_SHORT: usize = 20;
/// Images with a mistake of each kind, one of which must be found illegal.
const MISTAKES: usize = 120;

/// One guest and few images, or what the environment asks for.
pub(super) fn images() -> Result<()> {
    match variable("IMAGES")? {
        Some(images) => search(images),
        None => short(),
    }
}

/// A guest in each mode, and one whose flushes are lost on the way.
fn short() -> Result<()> {
    let guests = [
        ("write-through", vec![Incident::Kill], true),
        ("write-back", vec![Incident::Both, Incident::Stop], true),
        ("write-through", Vec::new(), false),
    ];
    for (seed, (mode, incidents, flushes)) in (1..).zip(guests) {
        let commits = COMMITS_SHORT;
        let setting = Setting { mode: mode.into(), seed, commits, incidents, flushes };
        let history = record(setting)?;
        let mut survey = Survey::new(&history);
        if flushes {
            survey.legal(Some(FLUSHES_SHORT))?;
            survey.mistakes(MISTAKES)?;
        } else {
            survey.illegal(Some(FLUSHES_SHORT))?;
        }
    }
    Ok(())
}

/// Guests until there are enough images, each flush of each guest among them.
fn search(images: usize) -> Result<()> {
    let mode: String = variable("MODE")?.unwrap_or_else(|| "write-through".into());
    let first = variable("SEED")?.unwrap_or(1);
    let limit = Duration::from_mins(variable("MINUTES")?.unwrap_or(0));
    let (start, mut looked_at) = (Instant::now(), 0);
    for seed in first.. {
        if looked_at >= images && start.elapsed() >= limit {
            break;
        }
        let (mode, incidents) = (mode.clone(), incidents(&mode, seed % 4, seed));
        let history = record(Setting { mode, seed, commits: COMMITS, incidents, flushes: true })?;
        let mut survey = Survey::new(&history);
        looked_at += survey.legal(None)?;
        survey.mistakes(MISTAKES)?;
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("{looked_at} images in {minutes:.1} min, none illegal");
    Ok(())
}

/// What the environment says of this search.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>> {
    let name = format!("CINNABAR_CRASH_{name}");
    let Ok(text) = std::env::var(&name) else { return Ok(None) };
    text.parse().map(Some).map_err(|error| anyhow!("{name}={text}: {error}"))
}
