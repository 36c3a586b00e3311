//! Charts as plain data, drawn as SVG, and their values as tables and CSV: for the daemon's page and
//! for reports.
//!
//! Pure: no clock, no file. Charts never fail: what can't be drawn (no number, a zero on a
//! logarithmic axis) is left out, and a chart with nothing in it is an empty frame. The same data
//! gives the same bytes.
//!
//! A page that draws itself again every few seconds needs small drawings: a few kilobytes each, no
//! more points than can be seen, and the plot's place and range on the `svg` element, so that a
//! script can turn a pointer into a time and a value:
//!
//! - `data-left`, `-right`, `-top`, `-bottom`: the plot, in units of the `viewBox`
//! - `data-x0`, `-x1`, `-y0`, `-y1`: the values at its left, right, lower and upper edges
//! - `data-scale-x`, `-y`: `linear` or `log`; `data-unit-x`, `-y`: `ms` since 1970, `count`, `us`,
//!   `s`, `bytes`, `ratio`, or `row` (of a heat map, counted from the top)
//! - `<g data-marker="share" data-at="...">`: a marker; its `transform` alone moves it
//! - `<g data-at="...">` in `<g class="events">`: an event, with its text as a tooltip
//! - `<path data-series="3">`: what is drawn for a name of the legend, `<g data-key="3">`
//!
//! Nothing has a `style` attribute and nothing runs, so the strictest content security policy does.
//! Text is in the colour of the page's text; [`CSS`] has what depends on light and dark. Without it,
//! saved in a file, a drawing looks right on white paper.
//!
//! ```
//! use cinnabar_text::chart::{Across, Axis, Figure, Head, Layer, Look, Stacked};
//! use crate::Unit;
//!
//! let shares = Stacked {
//!     head: Head::new("Shares", Across::Time { from_ms: 0.0, to_ms: 60_000.0 })
//!         .event(30_000.0, "vm1 grows: 9 % more hits"),
//!     y: Axis::linear("share", Unit::Bytes),
//!     xs: vec![0.0, 30_000.0, 60_000.0],
//!     layers: vec![Layer::new("vm1", [1e9, 2e9, 2e9]), Layer::new("vm2", [3e9, 2e9, 2e9])],
//!     steps: true,
//! };
//! assert!(shares.svg(&Look::default()).starts_with("<svg "));
//! assert!(shares.csv().starts_with("time (UTC),vm1 (bytes),vm2 (bytes)\r\n"));
//! ```

mod calendar;
mod colours;
mod escape;
mod events;
mod grid;
mod groups;
mod heat;
mod histogram;
pub mod html;
mod layout;
mod lines;
mod parts;
mod pen;
mod reduce;
mod ruler;
mod signs;
mod stacked;
mod svg;
mod text;
pub mod well_formed;

pub use colours::Colours;
pub use escape::{escaped, visible_text};
pub use grid::{Cell, Grid};
pub use groups::Groups;
pub use heat::Heat;
pub use histogram::{Buckets, Histogram};
pub use lines::{Band, LINES_MAX, Line, Lines, Style};
pub use parts::{Part, Parts};
pub use stacked::{Layer, Stacked};

use crate::Unit;

/// Rules for what depends on light and dark; they want `--paper` to be the colour of the page. The
/// page may choose by `data-theme` on its root element; otherwise the reader's system does. Text is
/// 11 to 16 pixels high in a figure that is a container (`container-type: inline-size`).
pub const CSS: &str = include_str!("chart.css");

/// More layers or lines are not drawn each on its own: nobody tells more colours apart.
pub const SERIES_MAX: usize = 12;
/// Values of a series that are looked at; of longer ones the last.
pub const POINTS_MAX: usize = 100_000;
/// Names of a grid; the rest is left out, and its caption says so.
pub const COLUMNS_MAX: usize = 1000;
/// Rows of a heat map that are drawn.
pub const ROWS_MAX: usize = 200;
/// Events that are drawn, the latest; those that lie on each other are one.
pub const EVENTS_MAX: usize = 500;
/// Characters of a name or a text.
pub const NAME_MAX: usize = 200;

/// What a chart shows, apart from its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// Its name.
    pub title: String,
    /// A sentence for those who can't see it; may be empty: then the values are summed up.
    pub summary: String,
    /// From left to right.
    pub across: Across,
    /// What happened.
    pub events: Vec<Event>,
    /// What can be moved.
    pub markers: Vec<Marker>,
}

/// The axis from left to right.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Clock time, in milliseconds since 1970.
    Time {
        /// At the left edge.
        from_ms: f64,
        /// At the right edge.
        to_ms: f64,
    },
    /// Anything else.
    Values(Axis),
}

impl Default for Across {
    fn default() -> Self {
        Self::Values(Axis::default())
    }
}

/// Something that happened, or a place worth a name: "p99".
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Where on the axis.
    pub at: f64,
    /// What.
    pub text: String,
}

/// An upright line that a script may move.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    /// What the script knows it by: "share".
    pub name: String,
    /// Where on the axis.
    pub at: f64,
    /// What it says.
    pub text: String,
}

/// How large, and in which colours.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Width in units of the drawing; text is 32 of them high, so that the 960 of the default can be
    /// read on a telephone. A page whose figures are containers ([`CSS`]) has smaller text where they
    /// are wider.
    pub width: u16,
    /// Height of the plot, without its title, legend and labels.
    pub height: u16,
    /// Whether the title is part of the drawing, as in a file; a page has a heading.
    pub titled: bool,
    /// A page's colours; a chart has its own otherwise.
    pub colours: Option<&'a Colours>,
}

impl Default for Look<'_> {
    fn default() -> Self {
        Self { width: 960, height: 340, titled: false, colours: None }
    }
}

/// A chart that a page shows, with its values beside it.
pub trait Figure {
    /// The `svg` element, as wide as its place.
    fn svg(&self, look: &Look) -> String;

    /// All values.
    fn grid(&self) -> Grid;

    /// The values as an HTML table of at most so many rows: of more, every second, third, ...
    fn table(&self, rows_max: usize) -> String {
        self.grid().table(rows_max)
    }

    /// All values as RFC 4180 says, numbers in full. No name is a formula for a spreadsheet.
    fn csv(&self) -> String {
        self.grid().csv()
    }
}

impl Head {
    /// Without events and markers.
    pub fn new(title: impl Into<String>, across: Across) -> Self {
        Self { title: title.into(), across, ..Self::default() }
    }

    /// With a sentence for those who can't see the chart.
    #[must_use]
    pub fn summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = summary.into();
        self
    }

    /// With one more event.
    #[must_use]
    pub fn event(mut self, at: f64, text: impl Into<String>) -> Self {
        self.events.push(Event { at, text: text.into() });
        self
    }

    /// Its events, for those who can't see them.
    pub fn events(&self) -> Grid {
        Grid::of_events(self)
    }

    /// With one more marker.
    #[must_use]
    pub fn marker(mut self, name: impl Into<String>, at: f64, text: impl Into<String>) -> Self {
        self.markers.push(Marker { name: name.into(), at, text: text.into() });
        self
    }
}

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

/// The colour of a name: the page's, or that of its place in the chart.
fn colour_of(look: &Look, name: &str, place: usize) -> usize {
    look.colours.and_then(|colours| colours.of_name(name)).unwrap_or(place)
}

#[cfg(test)]
mod tests;
