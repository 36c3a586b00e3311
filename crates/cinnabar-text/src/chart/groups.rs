//! Lying bars side by side, in groups: each with its value behind it.

use super::grid::{behind, number, raw, shortened};
use super::layout::header;
use super::pen::Pen;
use super::signs::{Key, Sign, fill};
use super::svg::{BASELINE, FONT, LINE, MARGIN, attribute, path, root, text};
use super::{Across, Cell, Figure, Grid, Head, Look, NAME_MAX, Part, SERIES_MAX, colour_of};
use crate::Unit;
use crate::chart::escape::escaped;
use crate::chart::text::{cut, width};
use std::fmt::Write;

/// Groups that are drawn.
const GROUPS_MAX: usize = 50;
/// Height of a bar, and from one to the next.
const THICK: i32 = 30;
/// See [`THICK`].
const PITCH: i32 = 36;
/// Between two groups.
const BETWEEN: i32 = 16;

/// Values that are compared: of each volume now and then, say. Of more than [`SERIES_MAX`] bars of a
/// group the first are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// What it shows; its axis, events and markers are not used.
    pub head: Head,
    /// What groups are of: `volume`.
    pub of: String,
    /// What the numbers are.
    pub unit: Unit,
    /// One name for each bar of a group.
    pub names: Vec<String>,
    /// From top to bottom.
    pub groups: Vec<Part>,
    /// What a bar as long as the drawing stands for, 1 of ratios; otherwise the largest value.
    pub whole: Option<f64>,
}

impl Figure for Groups {
    fn svg(&self, look: &Look) -> String {
        let groups = &self.groups[..self.groups.len().min(GROUPS_MAX)];
        let keys = self.keys(look);
        let wide = i32::from(look.width.clamp(320, 8192));
        let mut body = String::new();
        // One name is in the title.
        let named = if keys.len() > 1 { &keys[..] } else { &[] };
        let first = header(&mut body, &self.head, look, named, wide) + 8;
        let drawn = || groups.iter().flat_map(|group| (0..keys.len()).map(|bar| value(group, bar)));
        let most = drawn().fold(self.whole.unwrap_or(0.0), f64::max).max(f64::MIN_POSITIVE);
        let behind = drawn().map(|value| width(&self.unit.show(value), FONT)).fold(FONT, f64::max);
        let (left, right) = (MARGIN, wide - MARGIN - behind.ceil() as i32 - 12);
        let mut top = first;
        for group in groups {
            let name = shortened(&group.name, NAME_MAX);
            let name = cut(&name, FONT, f64::from(wide - 2 * MARGIN));
            text(&mut body, (left, top + LINE / 2 + BASELINE), "", &name);
            top += LINE;
            for (place, key) in keys.iter().enumerate() {
                self.bar(&mut body, group, (place, key), (left, right, top), most);
                top += PITCH;
            }
            top += BETWEEN;
        }
        let mut data = String::new();
        for (name, edge) in [("left", left), ("right", right), ("top", first), ("bottom", top)] {
            attribute(&mut data, name, &edge.to_string());
        }
        for (name, value) in [("x0", 0.0), ("x1", most), ("y0", groups.len() as f64), ("y1", 0.0)] {
            attribute(&mut data, name, &number(value));
        }
        for (name, value) in [("x", raw(self.unit)), ("y", "row")] {
            attribute(&mut data, &format!("scale-{name}"), "linear");
            attribute(&mut data, &format!("unit-{name}"), value);
        }
        root(&self.head, &self.summary(groups), (wide, top + MARGIN), &data, &body)
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        grid.column(&self.of, "");
        for name in &self.names {
            grid.column(name, behind(self.unit));
        }
        for group in &self.groups {
            let value = |bar: usize| group.values.get(bar).copied().unwrap_or(f64::NAN);
            let values = (0..self.names.len()).map(|bar| Cell::Number(value(bar), self.unit));
            grid.row(std::iter::once(Cell::Text(group.name.clone())).chain(values));
        }
        grid
    }
}

/// What is no number, or below zero, is a bar without length.
fn value(group: &Part, bar: usize) -> f64 {
    let value = group.values.get(bar).copied().filter(|value| value.is_finite());
    value.unwrap_or(0.0).clamp(0.0, 1e300)
}

impl Groups {
    /// Without groups; a bar as long as the drawing is the largest value.
    pub fn new(title: impl Into<String>, of: &str, unit: Unit, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let head = Head::new(title, Across::default());
        Self { head, of: of.to_owned(), unit, names, ..Self::default() }
    }

    /// With one more group.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        self.groups.push(Part::new(name, values));
        self
    }

    fn keys(&self, look: &Look) -> Vec<Key> {
        let key = |(place, name): (usize, &String)| Key {
            index: colour_of(look, name, place),
            sign: Sign::Area,
            name: shortened(name, NAME_MAX),
        };
        self.names.iter().take(SERIES_MAX).enumerate().map(key).collect()
    }

    /// A bar on the whole that it is a part of, if there is one.
    fn bar(
        &self,
        body: &mut String,
        group: &Part,
        (place, key): (usize, &Key),
        (left, right, top): (i32, i32, i32),
        most: f64,
    ) {
        let value = value(group, place);
        let to = left + (value / most * f64::from(right - left)).round() as i32;
        if self.whole.is_some() {
            let mut pen = Pen::default();
            pen.rectangle((left, top), (right, top + THICK));
            path(body, &pen, "fill=\"currentColor\" fill-opacity=\".08\"");
        }
        let known = group.values.get(place).copied().unwrap_or(f64::NAN);
        let shown = self.unit.show(known);
        if left < to {
            let mut pen = Pen::default();
            pen.rectangle((left, top), (to, top + THICK));
            let title =
                escaped(&format!("{}: {}: {shown}", shortened(&group.name, NAME_MAX), key.name));
            let (looks, path) = (fill(key.index), pen.path().to_owned());
            write!(
                body,
                "<path data-series=\"{place}\" {looks} d=\"{path}\"><title>{title}</title></path>"
            )
            .expect("a string takes everything");
        }
        // On the whole, values are below each other behind it.
        let behind = if self.whole.is_some() { right } else { to };
        text(body, (behind + 10, top + THICK / 2 + BASELINE), "", &shown);
    }

    fn summary(&self, groups: &[Part]) -> String {
        let group = |group: &Part| {
            let value = |(place, name): (usize, &String)| {
                let known = group.values.get(place).copied().unwrap_or(f64::NAN);
                format!("{} {}", shortened(name, 40), self.unit.show(known))
            };
            let values: Vec<String> =
                self.names.iter().take(SERIES_MAX).enumerate().map(value).collect();
            format!("{}: {}", shortened(&group.name, 40), values.join(", "))
        };
        groups.iter().take(SERIES_MAX).map(group).collect::<Vec<_>>().join("; ")
    }
}
