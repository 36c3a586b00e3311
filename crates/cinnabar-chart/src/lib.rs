//! Charts as plain data, drawn as SVG: lines over two axes, and bars for comparisons.
//!
//! `to_svg` gives one alone, `to_svg_in` one in the colours of a page. Pure: no clock, no file.
//! Charts never fail: what can't be drawn (no number, a zero on a logarithmic axis) is left out, and
//! a chart with nothing in it is an empty frame. The same data gives the same bytes.
//!
//! - `ruler`: from values to places and ticks; `path`: what of a line is seen
//! - `frame`: what all charts share; `plot`, `marks`: lines; `bars`: bars
//! - `colours`: one colour a name
//! - `text`: how wide text is, roughly; `paint`: colours, shapes, and the SVG that plotters writes
//! - [`live`]: charts of a live page, with their values beside them
//! - [`html`]: tables and elements of a page; [`well_formed`]: a check for tests

mod bars;
mod colours;
mod escape;
mod frame;
pub mod html;
pub mod live;
mod marks;
mod paint;
mod path;
mod plot;
mod ruler;
mod text;
pub mod well_formed;

pub use colours::Colours;
pub use escape::{escaped, visible_text};

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

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What is measured, without its unit: "mean response time".
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// What the numbers are.
    pub unit: Unit,
    /// From where to where at most; lines are cut off there. An axis is as wide as the values need,
    /// so that one sees where something happens: 0 is on it only if that leaves little of it empty.
    pub bounds: Option<(f64, f64)>,
}

/// How values become places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    #[default]
    Linear,
    /// Equal ratios are equally far apart; zeros and negative values are left out.
    Log,
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

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, ..Self::default() }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, unit) }
    }

    /// From `low` to `high` at most, whatever the values are.
    #[must_use]
    pub fn between(mut self, low: f64, high: f64) -> Self {
        self.bounds = Some((low, high));
        self
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
