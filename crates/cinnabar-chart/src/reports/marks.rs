//! Reference lines and where their labels have room.

use super::Mark;
use super::paint::{Area, FONT, INK, Painted, REFERENCE, label, line};
use super::path::Pixel;
use crate::ruler::Ruler;
use crate::text::width;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// Height of a label.
const TALL: i32 = 46;
/// Between a line and its label.
const GAP: i32 = 8;
/// Rows in which the labels of vertical lines may stand.
const ROWS: i32 = 8;

/// Where a label may stand: left edge and middle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spot {
    left: i32,
    middle: i32,
    width: i32,
}

impl Spot {
    fn meets(self, other: Self) -> bool {
        self.left < other.left + other.width + 2 * GAP
            && other.left < self.left + self.width + 2 * GAP
            && (self.middle - other.middle).abs() < TALL
    }

    fn within(self, (width, height): Pixel) -> bool {
        let high = self.middle - TALL / 2;
        self.left >= 0 && self.left + self.width <= width && high >= 0 && high + TALL <= height
    }
}

/// Draws them; those beyond the axes are left out.
pub(super) fn paint(area: &Area, marks: &[Mark], x: &Ruler, y: &Ruler, size: Pixel) -> Painted {
    let mut taken: Vec<Spot> = Vec::new();
    for mark in marks {
        let (text, ruler, at) = match mark {
            Mark::Horizontal { at, label } => (label, y, *at),
            Mark::Vertical { at, label } => (label, x, *at),
        };
        let Some(place) = ruler.place(at).filter(|place| (0.0..=1.0).contains(place)) else {
            continue;
        };
        let wide = width(text, FONT).min(f64::from(size.0 / 2)).ceil() as i32;
        let (ends, spots) = if matches!(mark, Mark::Horizontal { .. }) {
            let at = ((1.0 - place) * f64::from(size.1 - 1)).round() as i32;
            ([(0, at), (size.0 - 1, at)], beside_horizontal(at, wide, size.0))
        } else {
            let at = (place * f64::from(size.0 - 1)).round() as i32;
            ([(at, 0), (at, size.1 - 1)], beside_vertical(at, wide))
        };
        line(area, ends.to_vec(), INK.mix(0.8).stroke_width(REFERENCE))?;
        let spot = choose(&spots, &taken, size);
        taken.push(spot);
        label(area, text, (spot.left, spot.middle), HPos::Left, f64::from(wide))?;
    }
    Ok(())
}

/// What the legend says of horizontal and vertical lines that lie beyond the axes: a limit far from
/// all that was measured would leave the chart empty.
pub(super) fn beyond(marks: &[Mark], x: &Ruler, y: &Ruler) -> impl Iterator<Item = String> {
    marks.iter().filter_map(move |mark| {
        let (text, place, words) = match mark {
            Mark::Horizontal { at, label } => (label, y.place(*at)?, ["below", "above"]),
            Mark::Vertical { at, label } => (label, x.place(*at)?, ["left", "right"]),
        };
        let beyond = !(0.0..=1.0).contains(&place);
        beyond.then(|| format!("({text}: outside, {})", words[usize::from(place > 0.5)]))
    })
}

/// Above and below the line: at its right end, at its left one, in the middle.
fn beside_horizontal(at: i32, width: i32, end: i32) -> Vec<Spot> {
    let lefts = [end - GAP - width, GAP, (end - width) / 2];
    let middles = [at - TALL / 2 - 2, at + TALL / 2 + 2];
    let spot = |left| middles.map(|middle| Spot { left, middle, width });
    lefts.into_iter().flat_map(spot).collect()
}

/// Right and left of the line, from the top down.
fn beside_vertical(at: i32, width: i32) -> Vec<Spot> {
    let middles = (0..ROWS).map(|row| TALL / 2 + 2 + row * TALL);
    let lefts = [at + GAP, at - GAP - width];
    middles.flat_map(|middle| lefts.map(|left| Spot { left, middle, width })).collect()
}

/// The first spot with room; else the first that is not cut off; else the first.
fn choose(spots: &[Spot], taken: &[Spot], size: Pixel) -> Spot {
    let mut whole = spots.iter().copied().filter(|spot| spot.within(size));
    let free = whole.clone().find(|spot| !taken.iter().any(|other| spot.meets(*other)));
    free.or_else(|| whole.next()).unwrap_or(spots[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_out_of_each_others_way() {
        let size = (1000, 400);
        let mut taken: Vec<Spot> = Vec::new();
        for at in [200, 205, 210, 395, 5] {
            let spot = choose(&beside_horizontal(at, 120, size.0), &taken, size);
            assert!(spot.within(size), "{spot:?}");
            assert!(!taken.iter().any(|other| spot.meets(*other)), "{spot:?} {taken:?}");
            taken.push(spot);
        }
        taken.clear();
        for at in [500, 510, 520, 990, 3] {
            let spot = choose(&beside_vertical(at, 120), &taken, size);
            assert!(spot.within(size), "{spot:?}");
            assert!(!taken.iter().any(|other| spot.meets(*other)), "{spot:?} {taken:?}");
            taken.push(spot);
        }
    }

    #[test]
    fn without_room_there_still_is_a_label() {
        let size = (100, 30);
        let taken = beside_vertical(50, 300);
        assert_eq!(choose(&taken, &taken, size), taken[0]);
    }
}
