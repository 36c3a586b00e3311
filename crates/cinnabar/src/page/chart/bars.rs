//! Groups of lying bars.

use super::frame::{Header, Key, Labels, MARGIN, axes};
use super::paint::{Area, FONT, Painted, WIDTH, colour, label, svg};
use super::ruler::Ruler;
use super::text::{cut, width};
use super::{Axis, Bars, Group};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::ops::Range;

/// From one bar to the next, and how much of it is bar.
const PITCH: i32 = 34;
/// See [`PITCH`].
const THICK: i32 = 30;
/// Between two groups.
const BETWEEN: i32 = 22;
/// Height of the tick labels and the label below.
const BELOW: i32 = 76;
/// A label longer than that is cut.
const LABEL_MAX: f64 = 420.0;
/// More groups than that are not drawn: nobody reads them.
const GROUPS_MAX: usize = 1000;
/// Nor more bars of a group.
const EACH_MAX: usize = 50;

/// What is drawn, counted.
struct Rows<'a> {
    bars: &'a Bars,
    groups: &'a [Group],
    /// Bars of the largest group.
    each: i32,
    /// Labels as wide as they may be.
    labels: Vec<String>,
}

/// Draws the chart.
pub(super) fn draw(bars: &Bars) -> String {
    let groups = &bars.groups[..bars.groups.len().min(GROUPS_MAX)];
    let each = groups.iter().map(|group| group.values.len()).max().unwrap_or(0).clamp(1, EACH_MAX);
    let axis = Axis::linear(bars.label.clone(), bars.unit);
    let values = groups.iter().flat_map(|group| group.values.iter().copied());
    let ruler = Ruler::new(&axis, values.chain([0.0]), true);
    let keys = bars.names.iter().enumerate();
    let keys = keys.map(|(index, name)| Key { index, style: None, name: name.clone() }).collect();
    let header = Header::new(&bars.title, keys);
    let rows = Rows {
        bars,
        groups,
        each: i32::try_from(each).expect("there is a maximum"),
        labels: groups.iter().map(|group| cut(&group.label, FONT, LABEL_MAX)).collect(),
    };
    let count = i32::try_from(groups.len().max(1)).expect("there is a maximum");
    let height = (rows.each * PITCH + BETWEEN) * count + BELOW + 2 * MARGIN;
    svg(&bars.title, header.height + height, |area| {
        header.paint(area)?;
        rows.paint(&area.split_vertically(header.height).1, &ruler)
    })
}

impl Rows<'_> {
    fn paint(&self, area: &Area, ruler: &Ruler) -> Painted {
        let show = |value: &f64| self.bars.unit.show(*value);
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(|text| width(&text, FONT)).fold(0.0, f64::max).ceil() as i32
        };
        let left = widest(&mut self.labels.iter().cloned()) + 24;
        let values = self.groups.iter().flat_map(|group| &group.values);
        // Room for the number behind the longest bar.
        let right = MARGIN + widest(&mut values.map(show)) + 12;
        let mut context = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_right(right)
            .x_label_area_size(BELOW)
            .y_label_area_size(left)
            .build_cartesian_2d(ruler.clone(), Bands { count: self.groups.len() })?;
        let title = ruler.title(&self.bars.label);
        axes(
            &mut context,
            &Labels {
                title: &cut(&title, FONT, f64::from(WIDTH - left - right)),
                tick: &|tick| ruler.label(*tick),
            },
            &Labels { title: "", tick: &|group| self.labels[*group].clone() },
            false,
        )?;
        let inside = context.plotting_area().strip_coord_spec();
        let top = inside.get_base_pixel().1;
        for (number, group) in self.groups.iter().enumerate() {
            let middle = context.plotting_area().map_coordinate(&(0.0, number)).1 - top;
            self.group(&inside, ruler, group, middle - self.each * PITCH / 2)?;
        }
        Ok(())
    }

    fn group(&self, inside: &Area, ruler: &Ruler, group: &Group, first: i32) -> Painted {
        let end = inside.dim_in_pixel().0.cast_signed() - 1;
        let at = |value| ruler.place(value).map(|place| (place * f64::from(end)).round() as i32);
        let zero = at(0.0).unwrap_or(0);
        for (index, value) in group.values.iter().take(EACH_MAX).enumerate() {
            let row = i32::try_from(index).expect("there is a maximum");
            let high = first + row * PITCH + (PITCH - THICK) / 2;
            let tip = at(*value).filter(|tip| (0..=end).contains(tip)).unwrap_or(zero);
            let corners = [(tip.min(zero), high), (tip.max(zero), high + THICK)];
            inside.draw(&Rectangle::new(corners, colour(index).filled()))?;
            // Right of the bar, even if it goes to the left: there is room.
            let beside = (tip.max(zero) + 10, high + THICK / 2);
            label(inside, &self.bars.unit.show(*value), beside, HPos::Left, LABEL_MAX)?;
        }
        Ok(())
    }
}

/// The axis of the groups, the first one at the top.
struct Bands {
    count: usize,
}

impl Ranged for Bands {
    type FormatOption = DefaultFormatting;
    type ValueType = usize;

    fn map(&self, group: &usize, (bottom, top): (i32, i32)) -> i32 {
        let part = (*group as f64 + 0.5) / self.count.max(1) as f64;
        top + (f64::from(bottom - top) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<usize> {
        (0..self.count).collect()
    }

    fn range(&self) -> Range<usize> {
        0..self.count
    }
}
