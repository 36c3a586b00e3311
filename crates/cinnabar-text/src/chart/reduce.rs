//! No more points than can be seen: of many that share a few units of width, the extremes.

use super::pen::Pixel;
use std::collections::BTreeSet;

/// Width of a bin, in units of the drawing: three pixels or four.
const BIN: i32 = 7;
/// A gap of that width can't be seen.
pub(super) const GAP_MIN: i32 = 2;

/// A line's points, or the lowest and the highest one of each bin if there are many of them. Points
/// in the middle of a straight line are left out.
pub(super) fn line(points: &[Pixel]) -> Vec<Pixel> {
    let many = match points {
        [first, .., last] => points.len() > shown(first.0, last.0),
        _ => false,
    };
    straightened(if many { extremes(points) } else { points.to_vec() })
}

/// So many points between two places can be seen.
fn shown(first: i32, last: i32) -> usize {
    usize::try_from((last - first) / BIN * 2 + 4).unwrap_or(4)
}

fn extremes(points: &[Pixel]) -> Vec<Pixel> {
    let mut kept = Vec::new();
    for (number, bin) in points.chunk_by(|one, next| one.0 / BIN == next.0 / BIN).enumerate() {
        let height = |index: &usize| bin[*index].1;
        let lowest = (0..bin.len()).max_by_key(height);
        let highest = (0..bin.len()).min_by_key(height);
        let first = (number == 0).then_some(0);
        let seen: BTreeSet<usize> = first.into_iter().chain(lowest).chain(highest).collect();
        kept.extend(seen.into_iter().map(|index| bin[index]));
    }
    if kept.last() != points.last() {
        kept.extend(points.last());
    }
    kept
}

/// Without the points in the middle of straight lines.
pub(super) fn straightened(points: Vec<Pixel>) -> Vec<Pixel> {
    let mut kept: Vec<Pixel> = Vec::with_capacity(points.len());
    for point in points {
        while let [.., before, middle] = kept[..] {
            let one = (i64::from(middle.0 - before.0), i64::from(middle.1 - before.1));
            let next = (i64::from(point.0 - middle.0), i64::from(point.1 - middle.1));
            let ahead = one.0 * next.0 + one.1 * next.1 >= 0;
            if !(ahead && one.0 * next.1 == one.1 * next.0) {
                break;
            }
            kept.pop();
        }
        if kept.last() != Some(&point) {
            kept.push(point);
        }
    }
    kept
}

/// Which columns of a stack are drawn: all if they are few, else those of each bin where the whole is
/// lowest and highest, and where the layer that moves most is. `tops` are the upper edges of the
/// layers, from the lowest layer on, in places of a drawing; `xs` are where the columns stand.
pub(super) fn columns(xs: &[i32], tops: &[Vec<i32>]) -> Vec<usize> {
    let all = 0..xs.len();
    let (Some(first), Some(last)) = (xs.first(), xs.last()) else { return Vec::new() };
    if xs.len() <= shown(*first, *last) {
        return all.collect();
    }
    let mut seen = BTreeSet::from([0, xs.len() - 1]);
    let indexes: Vec<usize> = all.collect();
    for bin in indexes.chunk_by(|one, next| xs[*one] / (BIN * 2) == xs[*next] / (BIN * 2)) {
        let ends = |heights: &dyn Fn(usize) -> i32| {
            let low = bin.iter().copied().min_by_key(|at| heights(*at)).unwrap_or(bin[0]);
            let high = bin.iter().copied().max_by_key(|at| heights(*at)).unwrap_or(bin[0]);
            (low, high, heights(high) - heights(low))
        };
        let thick = |layer: usize, at: usize| {
            let below = if layer == 0 { 0 } else { tops[layer - 1][at] };
            tops[layer][at] - below
        };
        let whole = tops.last().map(|top| ends(&|at| top[at]));
        let layers = (0..tops.len()).map(|layer| ends(&|at| thick(layer, at)));
        let most = layers.max_by_key(|(_, _, moved)| *moved);
        for (low, high, _) in whole.into_iter().chain(most) {
            seen.extend([low, high]);
        }
    }
    seen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_and_straight_lines_are_two() {
        assert_eq!(line(&[(0, 0), (10, 5), (20, 3)]), [(0, 0), (10, 5), (20, 3)]);
        assert_eq!(
            line(&[(0, 4), (10, 4), (20, 4), (30, 9), (40, 14)]),
            [(0, 4), (20, 4), (40, 14)]
        );
        assert_eq!(line(&[(0, 4), (0, 9), (0, 2), (0, 3)]), [(0, 4), (0, 9), (0, 2), (0, 3)]);
        assert_eq!(line(&[(7, 7)]), [(7, 7)]);
        assert!(line(&[]).is_empty());
    }

    #[test]
    fn a_spike_among_many_is_kept() {
        let mut points: Vec<Pixel> = (0..50_000).map(|at| (at / 50, 300 + at % 7)).collect();
        points[31_234].1 = 3;
        points[41_234].1 = 777;
        let kept = line(&points);
        assert!(kept.len() <= 450, "{}", kept.len());
        for end in [points[0], points[49_999], points[31_234], points[41_234]] {
            assert!(kept.contains(&end), "{end:?}");
        }
        assert!(kept.is_sorted_by_key(|point| point.0));
    }

    #[test]
    fn what_one_layer_gives_to_another_is_kept() {
        let xs: Vec<i32> = (0..20_000).map(|at| at / 20).collect();
        let mut inner: Vec<i32> = vec![50; xs.len()];
        inner[12_345] = 10;
        let kept = columns(&xs, &[inner, vec![100; xs.len()]]);
        assert!(kept.contains(&12_345) && kept.len() < 450, "{}", kept.len());
        assert!(kept.is_sorted() && kept[0] == 0 && kept.last() == Some(&19_999));
    }
}
