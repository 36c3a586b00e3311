//! How large a cache is worth having: the knee of what all volumes together gain from room.
//!
//! The value of a total size is that of `urd`'s plan for it. It rises with the size, steeply at
//! first; the knee is the smallest size with a given part of what any size can give. Sizes are tried
//! by halving. Where the knee is a small part of what was looked at, a smaller range is looked at in
//! finer units. What is found is made a little larger if the plan for that very size, which has
//! units of its own, would stay below a loop's cliff.

use super::measure::Curves;
use cinnabar_policy::planning::plan::{Bounds, Scale, volumes};
use cinnabar_policy::sizing::{Objective, Prices, Volume, urd};

/// The part of the best value that is worth paying for.
pub const VALUE_PART: f64 = 0.95;
/// A knee below this part of the units looked at is looked at more closely.
const FINE_PART: f64 = 0.25;
/// Ranges looked at; each is at most half of the one before.
const RANGES_MAX: usize = 16;

/// A size worth having.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recommended {
    /// The knee, in blocks; 0 if no size is worth anything.
    pub blocks: u64,
    /// The size with everything there is to gain, in blocks.
    pub most_blocks: u64,
    /// What the latter saves, in microseconds over the trace, less what its writes to the SSD cost.
    pub most_value_us: f64,
}

/// The knee, as a size whose plan is worth as much.
pub fn recommend(curves: &[Curves], bounds: &[Bounds], prices: &Prices) -> Recommended {
    let found = knee(curves, bounds, prices);
    if found.most_value_us <= 0.0 || found.blocks == 0 {
        return found;
    }
    Recommended { blocks: plannable(found, curves, bounds, prices), ..found }
}

/// The knee, as if plans were made in units as fine as those it was found in.
fn knee(curves: &[Curves], bounds: &[Bounds], prices: &Prices) -> Recommended {
    let ends = curves.iter().zip(bounds);
    let ends =
        ends.map(|(curves, bounds)| curves.flat_from().clamp(bounds.min_blocks, bounds.max_blocks));
    let most: u64 = ends.fold(0, u64::saturating_add);
    let least: u64 = bounds.iter().map(|bounds| bounds.min_blocks).fold(0, u64::saturating_add);
    let mut found = Recommended { most_blocks: most, ..Recommended::default() };
    // Curves in units are rounded; a few more leave room for that.
    let mut range = most.saturating_add(most / 64 + curves.len() as u64);
    let mut is_first = true;
    for _ in 0..RANGES_MAX {
        let scale = Scale::new(range, curves.len());
        let volumes = volumes(curves, bounds, scale, 1.0);
        if is_first {
            found.most_value_us = value(&volumes, scale.units, prices);
            is_first = false;
        }
        if found.most_value_us <= 0.0 {
            return Recommended { blocks: least, ..found };
        }
        let unit = scale.unit_blocks.get();
        let first = least.div_ceil(unit) as usize;
        let wanted = found.most_value_us * VALUE_PART;
        let Some(knee) = smallest(first.min(scale.units), scale.units, |units| {
            value(&volumes, units, prices) >= wanted
        }) else {
            // The finer units of a smaller range may miss by a hair what coarser ones found.
            return found;
        };
        found.blocks = (knee as u64 * unit).max(least);
        if unit == 1 || knee as f64 >= scale.units as f64 * FINE_PART {
            return found;
        }
        range = (found.blocks + unit).saturating_mul(2).max(least);
    }
    found
}

/// The size, or one a few units larger: each volume's part is rounded up to units of the plan, so one
/// more for each volume is enough.
fn plannable(found: Recommended, curves: &[Curves], bounds: &[Bounds], prices: &Prices) -> u64 {
    let wanted = found.most_value_us * VALUE_PART;
    let (mut size, mut more) = (found.blocks, 1);
    while more <= curves.len() as u64 * 2 {
        let scale = Scale::new(size, curves.len());
        if value(&volumes(curves, bounds, scale, 1.0), scale.units, prices) >= wanted {
            break;
        }
        size = found.blocks.saturating_add(scale.unit_blocks.get().saturating_mul(more));
        more *= 2;
    }
    size
}

fn value(volumes: &[Volume], units: usize, prices: &Prices) -> f64 {
    urd::value(volumes, &urd::shares(volumes, units, &Objective::of(*prices)), prices)
}

/// The smallest number from `low` to `high` that is enough, if the largest is.
fn smallest(mut low: usize, mut high: usize, is_enough: impl Fn(usize) -> bool) -> Option<usize> {
    if !is_enough(high) {
        return None;
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}
