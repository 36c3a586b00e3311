//! What the engine would do with a volume's share, by size in units.
//!
//! The small caches know a few sizes. Between two of them a value goes from the one to the other as the
//! curve of reuse distances does: where that has a cliff, so has this; where it is flat, room brings
//! nothing before the next size.

use super::volume::{Units, at};
use super::write_policy::WritePolicy;
use crate::engine_model::{EngineCurves, Point, worth_keeping};
use crate::reuse::{Estimate, SampledCurves};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineUnits {
    kept: ByUnits,
    around: ByUnits,
}

#[derive(Clone, Debug, PartialEq)]
struct ByUnits {
    read_hits: Vec<f64>,
    kept_writes: Vec<f64>,
    flash_writes: Vec<f64>,
}

impl EngineUnits {
    pub(super) fn new(engine: &EngineCurves, curves: &SampledCurves, units: Units) -> Self {
        let by_units = |points: &[Point], shape: &Estimate| {
            let of = |value: fn(&Point) -> f64, way: Way| {
                units.curve(|blocks| between(&engine.sizes, points, value, shape, way, blocks))
            };
            ByUnits {
                read_hits: of(|point| point.read_hits, Way::AsCurve),
                kept_writes: of(|point| point.kept_writes, Way::Straight),
                flash_writes: of(|point| point.flash_writes, Way::Straight),
            }
        };
        Self {
            kept: by_units(&engine.kept, &curves.read_hits),
            around: by_units(&engine.around, &curves.read_only_hits),
        }
    }

    const fn of(&self, policy: WritePolicy) -> Option<&ByUnits> {
        match policy {
            WritePolicy::Bypass => None,
            WritePolicy::ReadOnly => Some(&self.around),
            WritePolicy::Through | WritePolicy::Back => Some(&self.kept),
        }
    }

    pub fn read_hits(&self, policy: WritePolicy, units: usize) -> f64 {
        self.of(policy).map_or(0.0, |found| at(&found.read_hits, units))
    }

    /// Writes that are kept where they may be.
    pub fn kept_writes(&self, units: usize) -> f64 {
        at(&self.kept.kept_writes, units)
    }

    /// Blocks written to flash.
    pub fn flash_writes(&self, policy: WritePolicy, units: usize) -> f64 {
        self.of(policy).map_or(0.0, |found| at(&found.flash_writes, units))
    }
}

/// How a value goes from one size to the next.
#[derive(Clone, Copy)]
enum Way {
    /// As the curve of reuse distances.
    AsCurve,
    Straight,
}

fn between(
    sizes: &[u64],
    points: &[Point],
    value: fn(&Point) -> f64,
    shape: &Estimate,
    way: Way,
    blocks: u64,
) -> f64 {
    let above = sizes.partition_point(|size| *size < blocks);
    let Some(next) = points.get(above) else { return points.last().map_or(0.0, value) };
    let (from_size, from) =
        if above == 0 { (0, 0.0) } else { (sizes[above - 1], value(&points[above - 1])) };
    let straight = (blocks - from_size) as f64 / (sizes[above] - from_size).max(1) as f64;
    let part = match way {
        Way::Straight => straight,
        Way::AsCurve => {
            let shape = |blocks| shape.at(worth_keeping(blocks));
            let (low, high) = (shape(from_size), shape(sizes[above]));
            if high > low { (shape(blocks) - low) / (high - low) } else { straight.floor() }
        }
    };
    from + (value(next) - from) * part.clamp(0.0, 1.0)
}

#[cfg(test)]
#[allow(clippy::cast_sign_loss, reason = "bytes and hits are not below zero")]
mod tests {
    use super::*;

    #[test]
    fn values_between_two_sizes_go_straight_or_as_the_curve_does() {
        let point = |read_hits| Point { read_hits, ..Point::default() };
        let points = [point(10.0), point(30.0)];
        let found = |way, blocks| {
            let hits = |point: &Point| point.read_hits;
            between(&[100, 200], &points, hits, &Estimate::default(), way, blocks)
        };
        let straight =
            [0, 50, 100, 150, 200, 900].map(|blocks| found(Way::Straight, blocks) as u64);
        assert_eq!(straight, [0, 5, 10, 20, 30, 30]);
        let flat = [50, 100, 199, 200].map(|blocks| found(Way::AsCurve, blocks) as u64);
        assert_eq!(flat, [0, 10, 10, 30], "a flat curve brings nothing before the next size");
    }
}
