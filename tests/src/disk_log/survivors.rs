//! Which part of the writes that no flush covers is on the disk after a power cut.

use super::{Change, Entry};
use crate::rng::Rng;
use std::ops::Range;

/// One in so many pieces of several sectors is torn.
const TORN: u64 = 4;

/// A change that survived, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the log.
    pub entry: usize,
    /// Of a torn one, which of its sectors survived.
    pub sectors: Option<Vec<bool>>,
}

impl Piece {
    /// All of it.
    pub fn whole(entry: usize) -> Self {
        Self { entry, sectors: None }
    }
}

/// Draws what is left of the entries of a window.
///
/// The power fails after one of them. Of those before, the ones that were answered as durable are
/// there, and of each other one all, nothing, or some sectors. Where two overlap and both are there,
/// the later one is on top; the later one gone, the disk may still have the earlier. What touches the
/// bytes `whole` is not torn.
pub fn survivors(
    entries: &[Entry],
    window: Range<usize>,
    whole: &Range<u64>,
    rng: &mut Rng,
) -> Vec<Piece> {
    let (begin, end) = (window.start, window.end);
    // Most often at the end: there is more to lose.
    let cut = match rng.below(3) {
        0 => begin + rng.below((end - begin) as u64 + 1) as usize,
        _ => end,
    };
    let percent = [10, 50, 90][rng.below(3) as usize];
    let mut pieces = Vec::new();
    for (entry, found) in entries.iter().enumerate().take(cut).skip(begin) {
        let Some(change) = &found.change else { continue };
        if found.durable {
            pieces.push(Piece::whole(entry));
        } else if rng.below(100) < percent {
            let may_tear = change.range.end <= whole.start || whole.end <= change.range.start;
            let is_torn = may_tear && change.sectors() > 1 && rng.below(TORN) == 0;
            pieces.push(Piece { entry, sectors: is_torn.then(|| torn(change, rng)) });
        }
    }
    pieces
}

/// Its begin, its end, or sectors here and there.
fn torn(change: &Change, rng: &mut Rng) -> Vec<bool> {
    let sectors = change.sectors();
    let at = 1 + rng.below(sectors - 1);
    let how = rng.below(3);
    (0..sectors)
        .map(|sector| match how {
            0 => sector < at,
            1 => sector >= at,
            _ => rng.below(2) == 0,
        })
        .collect()
}
