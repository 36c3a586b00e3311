//! From one plan to the next without haste: measurements waver, and every move costs a cache's contents.
//!
//! Rivals are left as published.

use super::Share;
use super::urd::Objective;
use super::volume::Volume;

/// Bounds on the change from one plan to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// A new plan must be worth more than the old one by this part of it, from 0.
    pub gain_min: f64,
    /// The most that a volume's size changes in an interval, as a part of the capacity, above 0.
    pub step_max: f64,
}

impl Default for Steadiness {
    fn default() -> Self {
        Self { gain_min: 0.02, step_max: 0.25 }
    }
}

/// What to do next, having done `before` while `wanted` would be best and fits into `capacity` units.
/// All sizes go the same part of their way, so that what is between them fits, too. With other volumes
/// than before, or less room, it is done at once.
///
/// # Panics
/// If there are not as many volumes as shares wanted.
pub fn steady(
    volumes: &[Volume],
    before: &[Share],
    wanted: Vec<Share>,
    capacity: usize,
    objective: &Objective,
    steadiness: Steadiness,
) -> Vec<Share> {
    assert_eq!(volumes.len(), wanted.len(), "a share for each volume");
    let used: usize = before.iter().map(|share| share.units).sum();
    if before.len() != wanted.len() || used > capacity {
        return wanted;
    }
    let (old, new) = (objective.value_of(volumes, before), objective.value_of(volumes, &wanted));
    let allowed = before.iter().zip(volumes).all(|(share, volume)| share.units >= volume.min);
    if allowed && new - old <= old.abs() * steadiness.gain_min {
        return before.to_vec();
    }
    let furthest = before.iter().zip(&wanted).map(|(from, to)| from.units.abs_diff(to.units)).max();
    let step = (capacity as f64 * steadiness.step_max).max(1.0);
    let part = (step / furthest.unwrap_or(0).max(1) as f64).min(1.0);
    let go = |(from, to): (&Share, Share)| Share { units: on_the_way(*from, to, part), ..to };
    before.iter().zip(wanted).map(go).collect()
}

/// A size between two; rounded down, so that sizes together stay below what both plans have.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two sizes")]
fn on_the_way(from: Share, to: Share, part: f64) -> usize {
    let (from, to) = (from.units as f64, to.units as f64);
    // Of a whole way nothing is left over by rounding.
    if part >= 1.0 { to as usize } else { (from + (to - from) * part).floor() as usize }
}
