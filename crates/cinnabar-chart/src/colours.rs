//! Which colour a name has: one colour a name over a whole page, and never one colour for two names.

use super::{Bars, Chart};
use plotters::style::RGBColor;

/// Each can be told from white and from the dark page's paper (a contrast of 3 at least), and from
/// those before it as well as possible, by colour-blind readers, too. The first ones are Okabe and
/// Ito's, a little darker.
const PALETTE: [RGBColor; 26] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xC5, 0x65, 0xA0),
    RGBColor(0x70, 0x67, 0x43),
    RGBColor(0x8F, 0x1F, 0xFF),
    RGBColor(0xD1, 0x00, 0x15),
    RGBColor(0x5A, 0x84, 0x96),
    RGBColor(0x6B, 0x7A, 0xFF),
    RGBColor(0xD1, 0x00, 0xBC),
    RGBColor(0xAE, 0x8D, 0x42),
    RGBColor(0x34, 0x98, 0x1B),
    RGBColor(0x8C, 0x54, 0x7B),
    RGBColor(0xFF, 0x4D, 0x70),
    RGBColor(0x90, 0x89, 0xD2),
    RGBColor(0xBD, 0x51, 0x51),
    RGBColor(0x7E, 0x96, 0x5A),
    RGBColor(0x1F, 0x78, 0xFF),
    RGBColor(0xA6, 0x67, 0xE4),
    RGBColor(0xFF, 0x3D, 0xC5),
    RGBColor(0xB6, 0x86, 0x8B),
    RGBColor(0x6F, 0x69, 0xA5),
    RGBColor(0xCC, 0x24, 0x78),
    RGBColor(0xB4, 0x00, 0xE0),
    RGBColor(0x4D, 0x5C, 0xE0),
    RGBColor(0xFF, 0x4B, 0x1F),
];

/// A number for each name, in the order in which they are met; it decides colour and marker.
#[derive(Clone, Debug, Default)]
pub struct Colours {
    names: Vec<String>,
}

impl Colours {
    /// With one more name, unless it is there already.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.add(name.to_owned());
        self
    }

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

    fn add(&mut self, name: String) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    /// The number of a name, if it has one.
    pub fn of_name(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|one| one == name)
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

/// The colour of a number. Beyond the palette colours still differ, but markers and the order of the
/// legend tell more.
pub(super) fn colour(index: usize) -> RGBColor {
    let RGBColor(red, green, blue) = PALETTE[index % PALETTE.len()];
    let round = index / PALETTE.len();
    let shade = |part: u8, bits: usize| part ^ ((round >> bits & 7) as u8) << 1;
    RGBColor(shade(red, 0), shade(green, 3), shade(blue, 6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn parts(RGBColor(red, green, blue): RGBColor) -> (u8, u8, u8) {
        (red, green, blue)
    }

    #[test]
    fn colours_differ_and_can_be_seen_on_both_papers() {
        let all: BTreeSet<_> = (0..1000).map(|index| parts(colour(index))).collect();
        assert_eq!(all.len(), 1000);
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let light = |(red, green, blue): (u8, u8, u8)| {
            0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
        };
        let dark = light((0x16, 0x18, 0x1b));
        for one in PALETTE {
            let light = light(parts(one));
            assert!(1.05 / (light + 0.05) >= 3.0, "{one:?} on white");
            assert!((light + 0.05) / (dark + 0.05) >= 3.0, "{one:?} on the dark page");
        }
    }
}
