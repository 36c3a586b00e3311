//! From a series to the points that are drawn: gaps, steps, what lies outside, and no more points
//! than one can see.

use super::{Series, Style};
use crate::ruler::Ruler;
use std::collections::BTreeSet;

/// Dots nearer than that are one.
const DOT_CELL: i32 = 6;

/// A place in the plot as fractions of its width and height, y upwards.
type Place = (f64, f64);
/// A place in the drawing.
pub(super) type Pixel = (i32, i32);

/// The joined lines of a series, in pixels of a plot of that size.
pub(super) fn lines(series: &Series, x: &Ruler, y: &Ruler, size: Pixel) -> Vec<Vec<Pixel>> {
    let mut lines = Vec::new();
    for run in runs(series, x, y) {
        let run = if series.style == Style::Steps { stairs(&run) } else { run };
        for piece in inside(&run) {
            lines.push(thinned(
                &piece.into_iter().map(|place| pixel(place, size)).collect::<Vec<_>>(),
            ));
        }
    }
    lines
}

/// The points of a series that lie inside, in pixels; of those that hide each other only one.
pub(super) fn dots(series: &Series, x: &Ruler, y: &Ruler, size: Pixel) -> Vec<Pixel> {
    pick(runs(series, x, y).into_iter().flatten(), size)
}

/// The points that no line joins to another one, and that would not be seen without a dot.
pub(super) fn lonely(series: &Series, x: &Ruler, y: &Ruler, size: Pixel) -> Vec<Pixel> {
    pick(runs(series, x, y).into_iter().filter(|run| run.len() == 1).flatten(), size)
}

fn pick(places: impl Iterator<Item = Place>, size: Pixel) -> Vec<Pixel> {
    let visible = |(x, y): &Place| (0.0..=1.0).contains(x) && (0.0..=1.0).contains(y);
    let mut taken = BTreeSet::new();
    places
        .filter(visible)
        .map(|place| pixel(place, size))
        .filter(|(x, y)| taken.insert((x / DOT_CELL, y / DOT_CELL)))
        .collect()
}

/// Points without a gap between them.
fn runs(series: &Series, x: &Ruler, y: &Ruler) -> Vec<Vec<Place>> {
    let place = |point: &(f64, f64)| Some((x.place(point.0)?, y.place(point.1)?));
    let places: Vec<Option<Place>> = series.points.iter().map(place).collect();
    places
        .split(Option::is_none)
        .map(|run| run.iter().copied().flatten().collect())
        .filter(|run: &Vec<Place>| !run.is_empty())
        .collect()
}

/// With a corner where each value ends.
fn stairs(run: &[Place]) -> Vec<Place> {
    let corners = run.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    run.first().copied().into_iter().chain(corners).collect()
}

/// The parts of a line that lie in the plot.
fn inside(run: &[Place]) -> Vec<Vec<Place>> {
    let mut pieces: Vec<Vec<Place>> = Vec::new();
    let mut end = None;
    for pair in run.windows(2) {
        let Some((from, to)) = clipped(pair[0], pair[1]) else {
            end = None;
            continue;
        };
        match pieces.last_mut() {
            Some(piece) if end == Some(from) => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
        end = Some(to);
    }
    pieces
}

/// The part of a segment that lies in the unit square (Liang and Barsky's way).
fn clipped(from: Place, to: Place) -> Option<(Place, Place)> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    for (delta, room) in [(-dx, from.0), (dx, 1.0 - from.0), (-dy, from.1), (dy, 1.0 - from.1)] {
        if delta == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if delta < 0.0 {
            enter = enter.max(room / delta);
        } else {
            leave = leave.min(room / delta);
        }
    }
    if enter > leave {
        return None;
    }
    let at = |part: f64| (from.0 + dx * part, from.1 + dy * part);
    let start = if enter > 0.0 { at(enter) } else { from };
    Some((start, if leave < 1.0 { at(leave) } else { to }))
}

fn pixel((x, y): Place, (width, height): Pixel) -> Pixel {
    let at = |part: f64, size: i32| (part * f64::from(size - 1)).round() as i32;
    (at(x, width), at(1.0 - y, height))
}

/// At most four points a column of pixels, which look the same as all of them.
fn thinned(points: &[Pixel]) -> Vec<Pixel> {
    let mut kept: Vec<Pixel> = Vec::new();
    for column in points.chunk_by(|one, other| one.0 == other.0) {
        let ends = [0, column.len() - 1];
        let by_height = |index: &usize| column[*index].1;
        let lowest = (0..column.len()).min_by_key(by_height);
        let highest = (0..column.len()).max_by_key(by_height);
        let seen: BTreeSet<usize> = ends.into_iter().chain(lowest).chain(highest).collect();
        kept.extend(seen.into_iter().map(|index| column[index]));
    }
    // A line of one point is drawn as nothing, but two equal ones are a speck.
    if kept.len() > 2 {
        kept.dedup();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;
    use cinnabar_text::Unit;

    const SIZE: Pixel = (101, 101);

    fn unit_ruler() -> Ruler {
        let axis = Axis::linear("", Unit::Count).between(0.0, 1.0);
        Ruler::new(&axis, [].into_iter(), [].into_iter())
    }

    fn series(style: Style, points: &[(f64, f64)]) -> Series {
        Series { name: String::new(), points: points.to_vec(), style }
    }

    #[test]
    fn what_is_no_number_leaves_a_gap() {
        let ruler = unit_ruler();
        let points = [(0.0, 0.0), (0.1, 0.1), (0.2, f64::NAN), (0.5, 0.5), (f64::INFINITY, 0.1)];
        let series = series(Style::Line, &points);
        assert_eq!(lines(&series, &ruler, &ruler, SIZE), [vec![(0, 100), (10, 90)]]);
        assert_eq!(lonely(&series, &ruler, &ruler, SIZE), [(50, 50)]);
        assert_eq!(dots(&series, &ruler, &ruler, SIZE), [(0, 100), (10, 90), (50, 50)]);
    }

    #[test]
    fn steps_hold_until_the_next() {
        let ruler = unit_ruler();
        let series = series(Style::Steps, &[(0.0, 0.2), (0.5, 0.8)]);
        assert_eq!(lines(&series, &ruler, &ruler, SIZE), [vec![(0, 80), (50, 80), (50, 20)]]);
    }

    #[test]
    fn lines_end_at_the_bounds() {
        let ruler = unit_ruler();
        // Up through the top and down again: two pieces.
        let series = series(Style::Line, &[(0.0, 0.5), (0.5, 1.5), (1.0, 0.5), (2.0, -9.0)]);
        let found = lines(&series, &ruler, &ruler, SIZE);
        assert_eq!(found, [vec![(0, 50), (25, 0)], vec![(75, 0), (100, 50)]]);
        assert_eq!(dots(&series, &ruler, &ruler, SIZE), [(0, 50), (100, 50)]);
        assert_eq!(clipped((-1.0, 2.0), (2.0, 2.0)), None);
    }

    #[test]
    fn a_million_points_are_no_more_than_one_can_see() {
        let ruler = unit_ruler();
        let wave =
            |index: u32| (f64::from(index) / 1e6, f64::from(index % 1000 * 919 % 1000) / 999.0);
        let points: Vec<(f64, f64)> = (0..1_000_000).map(wave).collect();
        let found = lines(&series(Style::Line, &points), &ruler, &ruler, SIZE);
        assert_eq!(found.len(), 1);
        assert!(found[0].len() <= 404, "{}", found[0].len());
        assert!(found[0].contains(&(0, 100)) && found[0].iter().any(|place| place.1 == 0));
        assert!(dots(&series(Style::Points, &points), &ruler, &ruler, SIZE).len() <= 26 * 26);
    }
}
