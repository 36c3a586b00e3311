//! Charts as plain data, drawn as SVG: lines over two axes, and bars for comparisons.
//!
//! Pure: no clock, no file. Charts never fail: what can't be drawn (no number, a zero on a
//! logarithmic axis) is left out, and a chart with nothing in it is an empty frame. The same data
//! gives the same bytes.
//!
//! - `ruler`: from values to places and ticks
//! - `colours`: one colour a name
//! - `text`: how wide text is, roughly
//! - [`live`]: charts of a live page, with their values beside them
//! - [`html`]: tables and elements of a page; [`well_formed`]: a check for tests
//! - `reports`, with the feature of that name: charts of reports, by `plotters`

mod colours;
mod escape;
pub mod html;
pub mod live;
#[cfg(feature = "reports")]
mod reports;
mod ruler;
mod text;
pub mod well_formed;

pub use colours::Colours;
pub use escape::{escaped, visible_text};
#[cfg(feature = "reports")]
pub use reports::{Bars, Chart, Group, Mark, Series, Style};

use cinnabar_text::Unit;

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
