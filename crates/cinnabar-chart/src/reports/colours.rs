//! Numbers of the names in charts of reports, and colours as `plotters` wants them.

use super::{Bars, Chart};
use crate::colours::{self, Colours, Rgb};
use plotters::style::RGBColor;

impl Colours {
    /// With the names of a chart's series.
    #[must_use]
    pub fn with_chart(mut self, chart: &Chart) -> Self {
        for (place, series) in chart.series.iter().enumerate() {
            self.add(named(&series.name, &chart.title, place));
        }
        self
    }

    /// With the names of bars.
    #[must_use]
    pub fn with_bars(mut self, bars: &Bars) -> Self {
        let count = bars.groups.iter().map(|group| group.values.len()).max().unwrap_or(0);
        for place in 0..count.max(bars.names.len()) {
            self.add(of_bar(bars, place));
        }
        self
    }

    /// The number of a chart's series.
    pub(super) fn of_series(&self, chart: &Chart, place: usize) -> usize {
        self.index(&named(&chart.series[place].name, &chart.title, place))
    }

    /// The number of the bars at a place of each group.
    pub(super) fn of_bar(&self, bars: &Bars, place: usize) -> usize {
        self.index(&of_bar(bars, place))
    }

    fn index(&self, name: &str) -> usize {
        self.of_name(name).unwrap_or(0)
    }
}

fn of_bar(bars: &Bars, place: usize) -> String {
    named(bars.names.get(place).map_or("", String::as_str), &bars.title, place)
}

/// What has no name is a thing of its own chart.
fn named(name: &str, title: &str, place: usize) -> String {
    if name.trim().is_empty() { format!("{title}\n{place}") } else { name.to_owned() }
}

/// The colour of a number.
pub(super) fn colour(index: usize) -> RGBColor {
    let Rgb(red, green, blue) = colours::colour(index);
    RGBColor(red, green, blue)
}
