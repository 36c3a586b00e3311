//! Images of a history: which ones, and what each holds.

use super::check::{Verdict, check};
use anyhow::{Context, Result};
use e2e::disk_log::{DiskLog, Piece, Replay, copy_sparse, survivors};
use e2e::rng::Rng;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Images that are looked at side by side.
const WORKERS: usize = 2;
/// Where ext4 has its superblock, and the block around it. Its checksum covers two sectors and nothing
/// repairs it: ext4 trusts the disk to write it whole.
const SUPERBLOCK: Range<u64> = 0..4096;
/// Images after a flush, each with another part of what followed, at the most.
const PARTS: usize = 4;

/// An image to look at.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Entries that are applied.
    pub(super) base: usize,
    /// What is on top of them.
    pub(super) pieces: Vec<Piece>,
    /// The flush after which this is the disk, or pretends to be.
    pub(super) point: usize,
    /// Whether nothing of what follows the flush is there.
    pub(super) is_exact: bool,
}

/// What an image was found to be.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) look: Look,
    pub(super) verdict: Verdict,
}

/// After each of so many flushes spread over the history, or each at all: the disk as it was, and
/// with parts of what followed.
pub(super) fn legal(log: &DiskLog, flushes: Option<usize>, seed: u64) -> Vec<Look> {
    let points = log.points();
    let count = flushes.unwrap_or(points.len());
    let mut rng = Rng::new(seed);
    let mut looks = Vec::new();
    for point in spread(points, count) {
        looks.push(Look { base: point, pieces: Vec::new(), point, is_exact: true });
        let window = log.window(point);
        let mut parts: Vec<Vec<Piece>> = Vec::new();
        for _ in 0..PARTS.min(changes(log, window.clone()).len()) {
            let pieces = survivors(log.entries(), window.clone(), &SUPERBLOCK, &mut rng);
            if !pieces.is_empty() && !parts.contains(&pieces) {
                parts.push(pieces);
            }
        }
        let look = |pieces| Look { base: point, pieces, point, is_exact: false };
        looks.extend(parts.into_iter().map(look));
    }
    looks
}

/// A mistake of a cache, or of its back end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mistake {
    /// One write that a flush covers is lost.
    LostWrite,
    /// What follows a flush is on the disk before what the flush covers.
    Reordered,
}

/// Images that are wrong: each pretends to be the disk after a flush.
pub(super) fn mistaken(log: &DiskLog, mistake: Mistake, images: usize, seed: u64) -> Vec<Look> {
    let points = log.points();
    let mut rng = Rng::new(seed);
    let mut looks = Vec::new();
    let triples: Vec<&[usize]> = points.windows(3).collect();
    for points in spread(triples, images) {
        let &[base, middle, point] = points else { continue };
        let (first, second) = (changes(log, base..middle), changes(log, middle..point));
        if first.is_empty() || second.is_empty() {
            continue;
        }
        let pieces = match mistake {
            Mistake::LostWrite => {
                let mut pieces = first;
                pieces.remove(rng.below(pieces.len() as u64) as usize);
                pieces.extend(second);
                pieces
            }
            Mistake::Reordered => second,
        };
        looks.push(Look { base, pieces, point, is_exact: true });
    }
    looks
}

/// All of these entries that change the disk.
fn changes(log: &DiskLog, entries: Range<usize>) -> Vec<Piece> {
    let changes = entries.filter(|&entry| log.entries()[entry].change.is_some());
    changes.map(Piece::whole).collect()
}

/// So many of them, evenly spread.
fn spread<T>(all: Vec<T>, count: usize) -> Vec<T> {
    let len = all.len();
    let is_taken = |&(index, _): &(usize, T)| index * count / len != (index + 1) * count / len;
    if count >= len {
        return all;
    }
    all.into_iter().enumerate().filter(is_taken).map(|(_, item)| item).collect()
}

/// Makes these images, in order, and looks at each.
///
/// # Errors
/// When an image can't be made or a program can't be run.
pub(super) fn look_at(replay: Replay, looks: &[Look], folder: &Path) -> Result<Vec<Finding>> {
    let source = Mutex::new((replay, looks.iter()));
    let findings = Mutex::new(Vec::new());
    let next = |image: &Path| -> Result<Option<Look>> {
        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
        let (replay, looks) = &mut *source;
        let Some(look) = looks.next() else { return Ok(None) };
        replay.advance(look.base)?;
        replay.image(image, &look.pieces)?;
        Ok(Some(look.clone()))
    };
    let work = |number: usize| -> Result<()> {
        let folder = folder.join(format!("images{number}"));
        std::fs::create_dir_all(&folder)?;
        let image = folder.join("image.raw");
        while let Some(look) = next(&image)? {
            let verdict = check(&image, &folder)?;
            let finding = Finding { look, verdict };
            findings.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..WORKERS).map(|number| scope.spawn(move || work(number))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let mut findings = findings.into_inner().unwrap_or_else(PoisonError::into_inner);
    findings.sort_by_key(|finding| (finding.look.point, !finding.look.is_exact));
    Ok(findings)
}

/// A replay of the log `log` over a copy of the disk `before`.
///
/// # Errors
/// When the log can't be read.
pub(super) fn replay(log: DiskLog, before: &Path, base: &Path) -> Result<Replay> {
    let before = File::open(before).with_context(|| format!("opening {}", before.display()))?;
    Ok(Replay::new(log, copy_sparse(&before, base)?))
}
