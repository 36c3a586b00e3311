//! A distribution of latencies as a few percentiles, as a preset has them.
//!
//! Pure.

use cinnabar_model::Latency;
use hdrhistogram::Histogram;

/// Points that a preset's list can have.
const POINTS_MAX: usize = 16;
/// Per cent between the two sides of a step; a list rises in its percentages.
const STEP: f64 = 0.0001;

/// A corner of the distribution: so many per cent are at most this long (ns).
type Point = (f64, f64);

/// The distribution that was measured, by straight lines between at most 16 points, which are where
/// they matter: on both sides of a step, and more in a tail that has weight than in one that has
/// none. Its mean is the one measured, to within a few tenths of a per cent.
pub(super) fn percentiles(latencies: &Histogram<u64>) -> Latency {
    let corners = corners(latencies);
    let (Some(&(_, first)), Some(&(_, last))) = (corners.first(), corners.last()) else {
        return Latency::Constant(0);
    };
    if last - first < 1.0 {
        return Latency::Constant(whole(first));
    }
    let mut chosen = vec![0, corners.len() - 1];
    while chosen.len() < POINTS_MAX {
        let worst = (1..chosen.len())
            .filter_map(|at| Some((at, deviation(&corners, chosen[at - 1], chosen[at])?)))
            .max_by(|(_, one), (_, other)| one.area.total_cmp(&other.area));
        let Some((at, deviation)) = worst else { break };
        chosen.insert(at, deviation.corner);
    }
    let points = chosen.into_iter().map(|corner| corners[corner]);
    Latency::Percentiles(points.map(|(percent, ns)| (rounded(percent), whole(ns))).collect())
}

/// The staircase of all latencies: of each step both ends.
fn corners(latencies: &Histogram<u64>) -> Vec<Point> {
    let count = latencies.len() as f64;
    let mut corners: Vec<Point> = Vec::new();
    let mut below = 0.0;
    for step in latencies.iter_recorded() {
        let ns = latencies.median_equivalent(step.value_iterated_to()) as f64;
        let percent = below + step.count_since_last_iteration() as f64 / count * 100.0;
        let from = if corners.is_empty() { 0.0 } else { below + STEP };
        if rounded(from) < rounded(percent) {
            corners.push((from, ns));
        }
        corners.push((percent, ns));
        below = percent;
    }
    // Steps narrower than what can be written.
    corners.dedup_by(|later, earlier| rounded(later.0) <= rounded(earlier.0));
    // The sum of the shares is 100 but for rounding.
    if let Some(last) = corners.last_mut() {
        last.0 = 100.0;
    }
    corners
}

/// How far a straight line between two corners is from those between them.
struct Deviation {
    /// Per cent times ns.
    area: f64,
    /// Where it is furthest.
    corner: usize,
}

fn deviation(corners: &[Point], from: usize, to: usize) -> Option<Deviation> {
    let ((x0, y0), (x1, y1)) = (corners[from], corners[to]);
    let off = |corner: usize| {
        let (x, y) = corners[corner];
        (y - (y0 + (y1 - y0) * (x - x0) / (x1 - x0))).abs()
    };
    let corner = (from + 1..to).max_by(|one, other| off(*one).total_cmp(&off(*other)))?;
    let area = (from..to)
        .map(|corner| {
            let width = corners[corner + 1].0 - corners[corner].0;
            f64::midpoint(off(corner), off(corner + 1)) * width
        })
        .sum();
    Some(Deviation { area, corner })
}

/// As many digits as make a difference.
fn rounded(percent: f64) -> f64 {
    (percent / STEP).round() / STEP.recip()
}

fn whole(ns: f64) -> u64 {
    #[expect(clippy::cast_sign_loss, reason = "latencies are positive, and the cast saturates")]
    let whole = ns.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_model::Random;

    fn histogram(samples: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut latencies = Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("bounds");
        samples.into_iter().for_each(|ns| latencies.saturating_record(ns));
        latencies
    }

    /// Exact mean and some percentiles of a list.
    fn shape(latency: &Latency) -> (f64, [f64; 3]) {
        let Latency::Percentiles(points) = latency else { panic!("{latency}") };
        let area: f64 = points
            .windows(2)
            .map(|two| (two[1].0 - two[0].0) * (two[0].1 + two[1].1) as f64 / 2.0)
            .sum();
        let at = |percent: f64| {
            let above = points.iter().position(|point| point.0 >= percent).expect("ends at 100");
            let (x1, y1) = points[above];
            let Some((x0, y0)) = above.checked_sub(1).map(|below| points[below]) else {
                return y1 as f64;
            };
            y0 as f64 + (y1 - y0) as f64 * (percent - x0) / (x1 - x0)
        };
        (area / 100.0, [at(50.0), at(90.0), at(99.0)])
    }

    fn check(name: &str, latencies: &Histogram<u64>) {
        let latency = percentiles(latencies);
        // What is written is what a preset understands.
        assert_eq!(Latency::parse(&latency.to_string()).as_ref(), Some(&latency), "{name}");
        let (mean, quantiles) = shape(&latency);
        let off = mean / latencies.mean() - 1.0;
        assert!(off.abs() < 0.005, "{name}: mean {mean} for {}: {latency}", latencies.mean());
        for (percent, fitted) in [50.0, 90.0, 99.0].into_iter().zip(quantiles) {
            let measured = latencies.value_at_percentile(percent) as f64;
            let off = (fitted / measured - 1.0).abs();
            assert!(off < 0.03, "{name}: p{percent} {fitted} for {measured}: {latency}");
        }
    }

    #[test]
    fn shapes_keep_their_means_and_percentiles() {
        let mut random = Random::new(5);
        let mut draw = |one: &mut dyn FnMut(&mut Random) -> f64| {
            histogram((0..20_000).map(|_| whole(one(&mut random))))
        };
        check("normal", &draw(&mut |random| 90_000.0 + 3000.0 * random.normal()));
        check("lognormal", &draw(&mut |random| 90_000.0 * (0.5 * random.normal()).exp()));
        check("uniform", &draw(&mut |random| 4e6 * random.unit() + 1e6));
        // A cache that hits 85 times in a hundred.
        check(
            "two peaks",
            &draw(&mut |random| {
                let peak = if random.unit() < 0.85 { 92_000.0 } else { 7_952_000.0 };
                peak * (0.02 * random.normal()).exp()
            }),
        );
        // One in ten thousand waits for something else.
        check(
            "outliers",
            &draw(&mut |random| {
                if random.unit() < 1e-4 { 5e7 } else { 80_000.0 + 1000.0 * random.unit() }
            }),
        );
        check("few", &histogram((0..64).map(|i| 5_000_000 + i * i * 1000)));
    }

    #[test]
    fn steps_are_steps() {
        let latencies = histogram([vec![92_000; 900], vec![7_952_000; 100]].concat());
        let latency = percentiles(&latencies);
        let Latency::Percentiles(points) = &latency else { panic!("{latency}") };
        assert!(points.len() <= 4, "{latency}");
        assert!(points.iter().any(|point| (point.0 - 90.0).abs() < 1e-9), "{latency}");
        check("steps", &latencies);
    }

    #[test]
    fn nothing_and_always_the_same_are_no_lists() {
        assert_eq!(percentiles(&histogram([])), Latency::Constant(0));
        let Latency::Constant(ns) = percentiles(&histogram([88_000; 10])) else { panic!("one") };
        assert!(ns.abs_diff(88_000) < 100, "{ns}");
    }
}
