//! Policies against libCacheSim: same file, same misses, references a second.

use super::peer::{Peer, VERSION};
use super::{Bench, Measured, met, numbers};
use crate::table::Table;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

const POLICIES: [&str; 4] = ["lru", "clock", "sieve", "s3-fifo"];
const SIZES: [u32; 2] = [8_192, 65_536];
const TIMES_MIN: f64 = 3.0;

pub(super) fn table(bench: &Bench) -> Result<String> {
    let peer = Peer::install(bench.folder.parent().unwrap_or(&bench.folder))?;
    let mut text = format!(
        "Policies against libCacheSim {VERSION} on the same oracleGeneral file; reading it and looking \
         keys up is part of both\n\n"
    );
    let mut table = Table::new(&[
        "trace", "policy", "blocks", "misses", "M ref/s", "theirs", "x theirs", "bar", "MiB",
        "theirs",
    ]);
    for (name, trace) in &bench.traces {
        let file = oracle(bench, name, trace)?;
        for policy in POLICIES {
            for blocks in SIZES {
                eprintln!("{name}, {policy}, {blocks} blocks");
                let (ours, theirs) = best(bench, &peer, policy, &file, blocks)?;
                let times = ours.rate() / theirs.rate();
                table.row(vec![
                    name.clone(),
                    policy.to_owned(),
                    blocks.to_string(),
                    ours.misses.to_string(),
                    format!("{:.1}", ours.rate()),
                    format!("{:.2}", theirs.rate()),
                    format!("{times:.1}"),
                    format!(">= {TIMES_MIN}: {}", met(times >= TIMES_MIN)),
                    format!("{:.0}", ours.peak_mib()),
                    format!("{:.0}", theirs.peak_mib()),
                ]);
            }
        }
    }
    text += &table.render();
    Ok(text)
}

/// The trace as oracleGeneral; made once.
fn oracle(bench: &Bench, name: &str, trace: &Path) -> Result<PathBuf> {
    let file = bench.folder.join(format!("{name}.oracleGeneral"));
    let new = bench.folder.join(format!("{name}.new"));
    if !file.exists() {
        let words = [trace, &new].map(|path| path.to_string_lossy().into_owned());
        let [_references] = numbers(&mut bench.command(&["convert", &words[0], &words[1]]))?;
        std::fs::rename(&new, &file)?;
    }
    Ok(file)
}

/// The best measurements of Cinnabar and of libCacheSim, alternately; neither is always the first.
fn best(
    bench: &Bench,
    peer: &Peer,
    policy: &str,
    file: &Path,
    blocks: u32,
) -> Result<(Measured, Measured)> {
    let (path, size) = (file.to_string_lossy(), blocks.to_string());
    let ours = || Measured::of(&mut bench.command(&["policy", policy, &path, &size]));
    let theirs = || peer.measure(policy, file, blocks);
    let mut best: Option<(Measured, Measured)> = None;
    for round in 0..bench.rounds {
        let (one, other) = if round.is_multiple_of(2) {
            let one = ours()?;
            (one, theirs()?)
        } else {
            let other = theirs()?;
            (ours()?, other)
        };
        ensure!(
            (one.misses - other.misses).abs() < 0.5
                && (one.references - other.references).abs() < 0.5,
            "{policy} at {blocks} blocks: {one:?} is not what libCacheSim counts: {other:?}"
        );
        let quicker =
            |old: Measured, new: Measured| if new.seconds < old.seconds { new } else { old };
        best = Some(best.map_or((one, other), |(a, b)| (quicker(a, one), quicker(b, other))));
    }
    Ok(best.expect("a round at least"))
}
