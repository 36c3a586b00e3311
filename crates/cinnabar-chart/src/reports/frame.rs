//! What charts share: title, legend, grid and axes.

use super::Style;
use super::colours::colour;
use super::paint::{Area, DASHED, FONT, INK, Painted, SOLID, TITLE_FONT, WIDTH};
use super::paint::{font, label, line, marker};
use crate::text::{width, wrap};
use plotters::chart::ChartContext;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Around everything.
pub(super) const MARGIN: i32 = 16;
/// From one line of text to the next.
const LINE: i32 = 56;
/// A piece of line in the legend, and its distance from the name.
const SWATCH: i32 = 76;
/// See [`SWATCH`].
const GAP: i32 = 16;
/// Bold text is wider than the same text is otherwise.
const BOLD: f64 = 1.15;
/// A title longer than that is cut.
const TITLE_LINES_MAX: usize = 4;

/// One name of the legend.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Which colour and shape; `usize::MAX` for none.
    pub(super) index: usize,
    /// None for a bar.
    pub(super) style: Option<Style>,
    /// What it means.
    pub(super) name: String,
}

impl Key {
    /// A remark.
    pub(super) fn of_text(name: String) -> Self {
        Self { index: usize::MAX, style: None, name }
    }

    /// How wide the piece of it is.
    fn swatch(&self) -> i32 {
        match self.style {
            _ if self.index == usize::MAX => 0,
            None | Some(Style::Points) => SWATCH / 2,
            Some(_) => SWATCH,
        }
    }
}

/// Title and legend, laid out.
#[derive(Debug)]
pub(super) struct Header {
    title: Vec<String>,
    /// With the left edge and the line.
    keys: Vec<(Key, i32, i32)>,
    /// How much room they take.
    pub(super) height: i32,
}

impl Header {
    /// Lays them out; keys without a name are left out.
    pub(super) fn new(title: &str, keys: Vec<Key>) -> Self {
        let room = f64::from(WIDTH);
        let title = wrap(title, TITLE_FONT, room / BOLD, TITLE_LINES_MAX);
        let mut lines = i32::try_from(title.len()).expect("few lines");
        let mut right = f64::INFINITY;
        let mut placed = Vec::new();
        for key in keys.into_iter().filter(|key| !key.name.trim().is_empty()) {
            let needed = (f64::from(key.swatch() + GAP) + width(&key.name, FONT)).min(room);
            if right + needed > room {
                (right, lines) = (0.0, lines + 1);
            }
            placed.push((key, right as i32, lines - 1));
            right += needed + 40.0;
        }
        Self { title, keys: placed, height: MARGIN + lines * LINE }
    }

    /// Draws them at the top.
    pub(super) fn paint(&self, area: &Area) -> Painted {
        let middle = |line: i32| MARGIN + line * LINE + LINE / 2;
        let style = font(TITLE_FONT, HPos::Left, VPos::Center);
        let bold = TextStyle { font: style.font.style(FontStyle::Bold), ..style };
        for (number, text) in (0..).zip(&self.title) {
            area.draw_text(text, &bold, (0, middle(number)))?;
        }
        for (key, left, number) in &self.keys {
            swatch(area, key, (*left, middle(*number)))?;
            let from = left + key.swatch() + GAP;
            let room = f64::from(WIDTH - from);
            label(area, &key.name, (from, middle(*number)), HPos::Left, room)?;
        }
        Ok(())
    }
}

/// A piece of what the name stands for.
fn swatch(area: &Area, key: &Key, (x, y): (i32, i32)) -> Painted {
    let ends = vec![(x, y), (x + key.swatch(), y)];
    let middle = (x + key.swatch() / 2, y);
    match key.style {
        _ if key.index == usize::MAX => Ok(()),
        None => {
            let corners = [(x, y - 17), (x + key.swatch(), y + 17)];
            area.draw(&Rectangle::new(corners, colour(key.index).filled()))
        }
        Some(Style::Points) => marker(area, key.index, middle, 10),
        Some(Style::Dashed) => line(area, ends, colour(key.index).stroke_width(DASHED)),
        Some(Style::Steps) => line(area, ends, colour(key.index).stroke_width(SOLID)),
        Some(Style::Line) => {
            line(area, ends, colour(key.index).stroke_width(SOLID))?;
            marker(area, key.index, middle, 10)
        }
    }
}

/// The labels of an axis, and of its ticks.
pub(super) struct Labels<'a, T> {
    pub(super) title: &'a str,
    pub(super) tick: &'a dyn Fn(&T) -> String,
}

/// Grid, axes and their labels.
pub(super) fn axes<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    x: &Labels<X::ValueType>,
    y: &Labels<Y::ValueType>,
    y_grid: bool,
) -> Painted
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
{
    let text = font(FONT, HPos::Center, VPos::Center);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x.title)
        .y_desc(y.title)
        .x_label_formatter(x.tick)
        .y_label_formatter(y.tick)
        .label_style(text.clone())
        .axis_desc_style(text)
        .axis_style(INK.mix(0.6))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .set_all_tick_mark_size(14);
    if !y_grid {
        mesh.disable_y_mesh();
    }
    mesh.draw()
}
