//! Groups of lying bars.

use super::colours::colour;
use super::frame::{Header, Key, Labels, MARGIN, axes};
use super::paint::{Area, FONT, Painted, WIDTH, label, svg};
use super::{Bars, Group};
use crate::Axis;
use crate::Colours;
use crate::ruler::Ruler;
use crate::text::{cut, width};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::ops::Range;

/// From one bar to the next, and how much of it is bar.
const PITCH: i32 = 46;
/// See [`PITCH`].
const THICK: i32 = 40;
/// Between two groups.
const BETWEEN: i32 = 22;
/// Height of a group's label above its bars.
const ABOVE: i32 = 52;
/// Height of the tick labels and the label below.
const BELOW: i32 = 128;
/// Left of the bars.
const LEFT: i32 = 24;
/// More groups than that are not drawn: nobody reads them.
const GROUPS_MAX: usize = 1000;
/// Nor more bars of a group.
const EACH_MAX: usize = 50;

/// What is drawn, counted.
struct Rows<'a> {
    bars: &'a Bars,
    colours: &'a Colours,
    groups: &'a [Group],
    /// From a group to the next one.
    pitch: i32,
}

/// Draws the chart.
pub(super) fn draw(bars: &Bars, colours: &Colours) -> String {
    let groups = &bars.groups[..bars.groups.len().min(GROUPS_MAX)];
    let each = groups.iter().map(|group| group.values.len()).max().unwrap_or(0).clamp(1, EACH_MAX);
    let axis = Axis::linear(bars.label.clone(), bars.unit);
    let values = groups.iter().flat_map(|group| group.values.iter().copied());
    let ruler = Ruler::new(&axis, values.chain([0.0]), [].into_iter());
    let keys = bars.names.iter().enumerate();
    let key = |(place, name): (usize, &String)| Key {
        index: colours.of_bar(bars, place),
        style: None,
        name: name.clone(),
    };
    let header = Header::new(&bars.title, keys.map(key).collect());
    let each = i32::try_from(each).expect("there is a maximum");
    let rows = Rows { bars, colours, groups, pitch: ABOVE + each * PITCH + BETWEEN };
    let count = i32::try_from(groups.len().max(1)).expect("there is a maximum");
    let height = rows.pitch * count + BELOW + 2 * MARGIN;
    svg(&bars.title, header.height + height, |area| {
        header.paint(area)?;
        rows.paint(&area.split_vertically(header.height).1, &ruler)
    })
}

impl Rows<'_> {
    fn paint(&self, area: &Area, ruler: &Ruler) -> Painted {
        let values = self.groups.iter().flat_map(|group| &group.values);
        let widths = values.map(|value| width(&self.bars.unit.show(*value), FONT));
        // Room for the number behind the longest bar, and for half of the last tick's label.
        let right = MARGIN + widths.fold(FONT * 2.0, f64::max).ceil() as i32 + 16;
        let mut context = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_right(right)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(ruler.clone(), Bands { count: self.groups.len() })?;
        let across = f64::from(context.plotting_area().dim_in_pixel().0);
        let widest = ruler.labels().map(|label| width(label, FONT)).fold(0.0, f64::max);
        let each = (widest + FONT / 2.0) / across;
        let title = ruler.title(&self.bars.label);
        axes(
            &mut context,
            &Labels {
                title: &cut(&title, FONT, f64::from(WIDTH - LEFT - right)),
                tick: &|tick| ruler.label(*tick, each),
            },
            &Labels { title: "", tick: &|_| String::new() },
            false,
        )?;
        let inside = context.plotting_area().strip_coord_spec();
        let top = inside.get_base_pixel().1;
        for (number, group) in self.groups.iter().enumerate() {
            let middle = context.plotting_area().map_coordinate(&(0.0, number)).1 - top;
            let high = middle - self.pitch / 2;
            let text = (6, high + ABOVE / 2 + 6);
            label(&inside, &group.label, text, HPos::Left, f64::from(WIDTH - 2 * LEFT))?;
            self.group(&inside, ruler, group, high + ABOVE)?;
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
            inside.draw(&Rectangle::new(
                corners,
                colour(self.colours.of_bar(self.bars, index)).filled(),
            ))?;
            // Right of the bar, even if it goes to the left: there is room.
            let beside = (tip.max(zero) + 10, high + THICK / 2);
            label(inside, &self.bars.unit.show(*value), beside, HPos::Left, f64::from(WIDTH))?;
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
