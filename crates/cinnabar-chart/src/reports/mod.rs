//! Charts of reports: lines over two axes, and bars for comparisons, drawn by `plotters`.
//!
//! `to_svg` gives one alone, `to_svg_in` one in the colours of a page.
//!
//! - `path`: what of a line is seen
//! - `frame`: what all charts share; `plot`, `marks`: lines; `bars`: bars
//! - `colours`, `range`: colours and rulers as `plotters` wants them
//! - `paint`: colours, shapes, and the SVG that `plotters` writes

mod bars;
mod colours;
mod frame;
mod marks;
mod paint;
mod path;
mod plot;
mod range;

use crate::{Axis, Colours};
use cinnabar_text::Unit;

/// Lines, points and reference lines over two axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What it shows; wrapped if long.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Drawn in this order; the names make the legend.
    pub series: Vec<Series>,
    /// Reference lines.
    pub marks: Vec<Mark>,
}

/// What belongs together in a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// For the legend; empty for none.
    pub name: String,
    /// (x, y) in the order in which they are joined. A value that can't be drawn leaves a gap.
    pub points: Vec<(f64, f64)>,
    /// How.
    pub style: Style,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Joined by straight lines; few points are marked, too, so that one sees what was measured.
    #[default]
    Line,
    /// Each value holds until the next one's x.
    Steps,
    /// Not joined.
    Points,
    /// Joined by a broken line: for what is expected, modelled or compared with.
    Dashed,
}

/// A reference line with a label.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// From left to right at a y: a limit.
    Horizontal {
        /// Where.
        at: f64,
        /// What it means: "30 ms".
        label: String,
    },
    /// From bottom to top at an x: an event.
    Vertical {
        /// Where.
        at: f64,
        /// What it means.
        label: String,
    },
}

/// Bars side by side, in groups, lying below the group's label. At most 1000 groups of 50 bars
/// are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What it shows; wrapped if long.
    pub title: String,
    /// What is measured, without its unit.
    pub label: String,
    /// What the numbers are.
    pub unit: Unit,
    /// One name for each bar of a group: the legend.
    pub names: Vec<String>,
    /// From top to bottom.
    pub groups: Vec<Group>,
}

/// The bars of one label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they belong to.
    pub label: String,
    /// In the order of the names; one that is no number is shown as missing.
    pub values: Vec<f64>,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, ..Self::default() }
    }

    /// With one more series.
    #[must_use]
    pub fn series(
        mut self,
        name: impl Into<String>,
        style: Style,
        points: impl Into<Vec<(f64, f64)>>,
    ) -> Self {
        self.series.push(Series { name: name.into(), points: points.into(), style });
        self
    }

    /// With one more horizontal reference line.
    #[must_use]
    pub fn limit(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::Horizontal { at, label: label.into() });
        self
    }

    /// With one more vertical reference line.
    #[must_use]
    pub fn event(mut self, at: f64, label: impl Into<String>) -> Self {
        self.marks.push(Mark::Vertical { at, label: label.into() });
        self
    }

    /// The chart as an `svg` element that is as wide as the place it is put into.
    pub fn to_svg(&self) -> String {
        self.to_svg_in(&Colours::default().with_chart(self))
    }

    /// The same in the colours of a page.
    pub fn to_svg_in(&self, colours: &Colours) -> String {
        plot::draw(self, colours)
    }
}

impl Bars {
    /// Bars of the given names, no group yet.
    pub fn new(
        title: impl Into<String>,
        label: impl Into<String>,
        unit: Unit,
        names: &[&str],
    ) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.into(), label: label.into(), unit, names, groups: Vec::new() }
    }

    /// With one more group.
    #[must_use]
    pub fn group(mut self, label: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        self.groups.push(Group { label: label.into(), values: values.into() });
        self
    }

    /// The chart as an `svg` element that is as wide as the place it is put into.
    pub fn to_svg(&self) -> String {
        self.to_svg_in(&Colours::default().with_bars(self))
    }

    /// The same in the colours of a page.
    pub fn to_svg_in(&self, colours: &Colours) -> String {
        bars::draw(self, colours)
    }
}

#[cfg(test)]
mod tests;
