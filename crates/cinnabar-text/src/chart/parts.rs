//! Lying bars of parts: what a whole consists of, RAM or writes, with each part's size in the legend.

use super::grid::{behind, number, raw, shortened};
use super::layout::header;
use super::pen::Pen;
use super::signs::{Key, Sign, fill};
use super::svg::{BASELINE, FONT, LINE, MARGIN, attribute, root, text};
use super::{Cell, Figure, Grid, Head, Look, NAME_MAX, SERIES_MAX, colour_of};
use crate::chart::escape::escaped;
use crate::chart::text::{cut, width};
use crate::{Unit, percent};
use std::fmt::Write;

/// Bars that are drawn.
const BARS_MAX: usize = 50;
/// Height of a bar.
const THICK: i32 = 40;

/// Wholes and their parts. Of more than [`SERIES_MAX`] parts the last are drawn as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// What it shows; its axis, events and markers are not used.
    pub head: Head,
    /// What the numbers are.
    pub unit: Unit,
    /// Names of the parts.
    pub names: Vec<String>,
    /// From top to bottom: one bar each.
    pub bars: Vec<Part>,
}

/// One bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The whole; may be empty if there is one bar.
    pub name: String,
    /// One for each part.
    pub values: Vec<f64>,
}

impl Part {
    /// A bar.
    pub fn new(name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { name: name.into(), values: values.into() }
    }

    /// What is no number, or below zero, is nothing.
    fn at(&self, part: usize) -> f64 {
        let value = self.values.get(part).copied().filter(|value| value.is_finite());
        value.unwrap_or(0.0).clamp(0.0, 1e300)
    }

    /// A part as it is drawn: the last one is all that are left.
    fn drawn(&self, part: usize, names: usize) -> f64 {
        if part + 1 < SERIES_MAX || names <= SERIES_MAX {
            return self.at(part);
        }
        (part..names).map(|part| self.at(part)).sum()
    }
}

impl Figure for Parts {
    fn svg(&self, look: &Look) -> String {
        let count = self.names.len().min(SERIES_MAX);
        let bars = &self.bars[..self.bars.len().min(BARS_MAX)];
        let keys: Vec<Key> = (0..count).map(|place| self.key(look, place)).collect();
        let wide = i32::from(look.width.clamp(320, 8192));
        let mut body = String::new();
        let mut top = header(&mut body, &self.head, look, &keys, wide) + 8;
        let sum = |bar: &Part| (0..count).map(|part| bar.drawn(part, self.names.len())).sum();
        let sums: Vec<f64> = bars.iter().map(sum).collect();
        let most = sums.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let shown = |sum: &f64| self.unit.show(*sum);
        let behind = sums.iter().map(|sum| width(&shown(sum), FONT)).fold(0.0, f64::max);
        let (left, right) = (MARGIN, wide - MARGIN - behind.ceil() as i32 - 12);
        let first = top;
        for (bar, sum) in bars.iter().zip(&sums) {
            if !bar.name.is_empty() {
                let name = cut(&shortened(&bar.name, NAME_MAX), FONT, f64::from(wide - 2 * MARGIN));
                text(&mut body, (left, top + LINE / 2 + BASELINE), "", &name);
                top += LINE;
            }
            let mut before = 0.0;
            let at = |value: f64| left + (value / most * f64::from(right - left)).round() as i32;
            for (place, key) in keys.iter().enumerate() {
                let value = bar.drawn(place, self.names.len());
                let (from, to) = (at(before), at(before + value));
                before += value;
                let mut pen = Pen::default();
                pen.rectangle((from, top), (to, top + THICK));
                if from < to {
                    let title = self.tooltip(place, value, *sum);
                    let looks = format!("data-series=\"{place}\" {}", fill(key.index));
                    let edge = "class=\"edge\" stroke=\"#fff\" stroke-width=\"2\"";
                    let path = pen.path();
                    write!(body, "<path {looks} {edge} d=\"{path}\"><title>{title}</title></path>")
                        .expect("a string takes everything");
                }
            }
            text(&mut body, (at(before) + 10, top + THICK / 2 + BASELINE), "", &shown(sum));
            top += THICK + 16;
        }
        let mut data = String::new();
        let edges = [("left", left), ("right", right), ("top", first), ("bottom", top)];
        for (name, edge) in edges {
            attribute(&mut data, name, &edge.to_string());
        }
        for (name, value) in [("x0", 0.0), ("x1", most), ("y0", bars.len() as f64), ("y1", 0.0)] {
            attribute(&mut data, name, &number(value));
        }
        for (name, value) in [("x", raw(self.unit)), ("y", "row")] {
            attribute(&mut data, &format!("scale-{name}"), "linear");
            attribute(&mut data, &format!("unit-{name}"), value);
        }
        root(&self.head, &self.summary(bars, count), (wide, top + MARGIN), &data, &body)
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        grid.column("part", "");
        for (place, bar) in self.bars.iter().enumerate() {
            let name = match (bar.name.is_empty(), place) {
                (false, _) => bar.name.clone(),
                (true, 0) => "size".to_owned(),
                (true, _) => format!("size {}", place + 1),
            };
            grid.column(&name, behind(self.unit));
        }
        for (part, name) in self.names.iter().enumerate() {
            let value = |bar: &Part| bar.values.get(part).copied().unwrap_or(f64::NAN);
            let values = self.bars.iter().map(|bar| Cell::Number(value(bar), self.unit));
            grid.row(std::iter::once(Cell::Text(name.clone())).chain(values));
        }
        grid
    }
}

impl Parts {
    /// With one bar its legend has sizes, too.
    fn key(&self, look: &Look, place: usize) -> Key {
        let name = self.name(place);
        let index = colour_of(look, &name, place);
        let size = |bar: &Part| self.unit.show(bar.drawn(place, self.names.len()));
        let name = match &self.bars[..] {
            [bar] => format!("{} {}", shortened(&name, 60), size(bar)),
            _ => name,
        };
        Key { index, sign: Sign::Area, name }
    }

    fn name(&self, place: usize) -> String {
        if place + 1 == SERIES_MAX && self.names.len() > SERIES_MAX {
            return format!("{} others", self.names.len() - place);
        }
        shortened(&self.names[place], NAME_MAX)
    }

    fn tooltip(&self, place: usize, value: f64, sum: f64) -> String {
        let part = percent(value / sum.max(f64::MIN_POSITIVE));
        escaped(&format!("{}: {} ({part})", self.name(place), self.unit.show(value)))
    }

    fn summary(&self, bars: &[Part], count: usize) -> String {
        let part = |bar: &Part, place: usize| {
            let value = bar.drawn(place, self.names.len());
            format!("{} {}", shortened(&self.name(place), 40), self.unit.show(value))
        };
        let bar = |bar: &Part| {
            let parts: Vec<String> = (0..count).map(|place| part(bar, place)).collect();
            let name = shortened(&bar.name, 40);
            let name = if name.is_empty() { name } else { name + ": " };
            name + &parts.join(", ")
        };
        let bars: Vec<String> = bars.iter().take(SERIES_MAX).map(bar).collect();
        bars.join("; ")
    }
}
