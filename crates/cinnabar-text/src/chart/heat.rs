//! Heat maps: one value for each row and column, as a colour of a scale that is one of lightness, so
//! that everybody can tell more from less.

use super::events::finish;
use super::grid::{CELLS_MAX as GRID_CELLS_MAX, behind, shortened};
use super::layout::{Plot, Upright};
use super::pen::Pen;
use super::svg::{FONT, LINE, MARGIN, path, text};
use super::{Cell, Figure, Grid, Head, Look, NAME_MAX, POINTS_MAX, ROWS_MAX, SERIES_MAX};
use crate::chart::Axis;
use crate::chart::ruler::{Ruler, draws};
use crate::chart::text::{cut, width};
use std::fmt::Write;

/// Colours from little to much on white paper; [`super::CSS`] has them for both.
pub(super) const RAMP: [&str; 9] = [
    "#dbe9f6", "#bfd9ee", "#9dc5e3", "#75add5", "#4c93c3", "#2b78ac", "#155d8f", "#0a426c",
    "#062848",
];
/// Cells that are drawn each on its own; of more, neighbours in a row are one, by their largest.
const CELLS_MAX: i32 = 6000;
/// Least width of a cell.
const WIDE_MIN: i32 = 4;

/// Values by rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// What it shows.
    pub head: Head,
    /// What the values are, and whether colours stand for differences or for ratios.
    pub value: Axis,
    /// Where columns begin, and where the last one ends: one more than columns.
    pub edges: Vec<f64>,
    /// From top to bottom: name, and one value for each column; none where it is no number. Of more
    /// than [`ROWS_MAX`] the first are drawn.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Figure for Heat {
    fn svg(&self, look: &Look) -> String {
        let rows = &self.rows[..self.rows.len().min(ROWS_MAX)];
        let count = rows.len().max(1);
        let least = u16::try_from(4 * count).expect("rows have a maximum");
        let look = &Look { height: look.height.max(least), ..*look };
        let each = FONT * 1.2 * count as f64 / f64::from(look.height.max(1));
        let nth = (1..count).find(|nth| *nth as f64 >= each).unwrap_or(count);
        let room = f64::from(look.width) / 4.0;
        let label = |(number, row): (usize, &(String, _))| {
            let shown = if number % nth == 0 { &row.0 } else { "" };
            (number as f64 + 0.5, cut(&shortened(shown, NAME_MAX), FONT, room))
        };
        let title = match (self.rows.len(), rows.len()) {
            (1, _) => "1 row".to_owned(),
            (all, drawn) if all == drawn => format!("{all} rows"),
            (all, drawn) => format!("{drawn} of {all} rows"),
        };
        let upright = Upright {
            // Counted from the top.
            ruler: Ruler::with_ticks(count as f64, 0.0, Vec::new()),
            title,
            unit: "row",
            labels: rows.iter().enumerate().map(label).collect(),
            lines: false,
        };
        let edges = || self.edges.iter().take(POINTS_MAX).copied();
        let values = rows.iter().flat_map(|row| row.1.iter().take(POINTS_MAX).copied());
        // A scale with bounds is all of it, so that a colour means the same a minute later.
        let bounds = self.value.bounds.into_iter().flat_map(|(low, high)| [low, high]);
        let scale = Ruler::new(&self.value, values.chain(bounds), [].into_iter());
        let mut plot = Plot::new(&self.head, look, &[], edges(), &upright);
        self.cells(&mut plot, rows, &scale);
        self.legend(&mut plot, &scale);
        finish(plot, &self.summary(rows))
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        grid.first_column(&self.head);
        for (name, _) in &self.rows {
            grid.column(name, behind(self.value.unit));
        }
        let columns = self.columns().min(GRID_CELLS_MAX / (self.rows.len() + 1));
        for (index, from) in self.edges.iter().take(columns).enumerate() {
            let value = |row: &(String, Vec<f64>)| row.1.get(index).copied().unwrap_or(f64::NAN);
            let values = self.rows.iter().map(|row| Cell::Number(value(row), self.value.unit));
            grid.row(std::iter::once(Cell::first(&self.head, *from)).chain(values));
        }
        grid
    }
}

impl Heat {
    fn columns(&self) -> usize {
        self.edges.len().saturating_sub(1).min(POINTS_MAX)
    }

    /// One path a colour: a line as thick as its row for each run of cells.
    fn cells(&self, plot: &mut Plot, rows: &[(String, Vec<f64>)], scale: &Ruler) {
        let mut pens: [Pen; RAMP.len()] = Default::default();
        let width = plot.right - plot.left;
        let rows_drawn = i32::try_from(rows.len()).expect("rows have a maximum");
        let least = width * rows_drawn / CELLS_MAX + 1;
        let spans = self.spans(plot, least.max(WIDE_MIN));
        let mut thick = 1;
        for (number, (_, values)) in rows.iter().enumerate() {
            let edges = [number as f64, number as f64 + 1.0].map(|edge| plot.y(edge));
            let [Some(top), Some(bottom)] = edges else { continue };
            thick = thick.max(bottom - top);
            let step = |&(from, to, _, _): &(usize, usize, i32, i32)| {
                let cells = values.get(from..to.min(values.len())).unwrap_or_default();
                let drawn = cells.iter().copied().filter(|value| draws(&self.value, *value));
                drawn.reduce(f64::max).map(|value| step_of(scale, value))
            };
            let middle = i32::midpoint(top, bottom);
            for run in spans.chunk_by(|one, next| step(one) == step(next) && one.3 == next.2) {
                if let Some(step) = step(&run[0]) {
                    pens[step].through(&[(run[0].2, middle), (run[run.len() - 1].3, middle)]);
                }
            }
        }
        plot.body += "<g fill=\"none\" shape-rendering=\"crispEdges\">";
        for (step, pen) in pens.iter().enumerate() {
            let colour = format!("class=\"heat h{step}\" stroke=\"{}\"", RAMP[step]);
            path(&mut plot.body, pen, &format!("{colour} stroke-width=\"{thick}\""));
        }
        plot.body += "</g>";
    }

    /// Columns from which to which, and from where to where: neighbours together until they are as
    /// wide as `least`.
    fn spans(&self, plot: &Plot, least: i32) -> Vec<(usize, usize, i32, i32)> {
        let mut spans: Vec<(usize, usize, i32, i32)> = Vec::new();
        for column in 0..self.columns() {
            let edges = [self.edges[column], self.edges[column + 1]];
            let order = edges[0] < edges[1] && plot.overlaps(edges[0], edges[1]);
            let [Some(from), Some(to)] = edges.map(|edge| plot.x_within(edge)) else { continue };
            match spans.last_mut() {
                _ if !order => {}
                Some(last) if last.1 == column && last.3 - last.2 < least => {
                    (last.1, last.3) = (column + 1, to);
                }
                Some(last) if from < last.3 => {}
                _ => spans.push((column, column + 1, from, to)),
            }
        }
        spans
    }

    /// Above the plot, right: the colours from little to much.
    fn legend(&self, plot: &mut Plot, scale: &Ruler) {
        let (low, high) = scale.ends();
        let [low, high] = [low, high].map(|end| self.value.unit.show(end));
        let name = cut(&shortened(&self.value.label, NAME_MAX), FONT, f64::from(plot.right) / 3.0);
        let before = if name.is_empty() { low } else { format!("{name}: {low}") };
        let [wide, behind] = [&before, &high].map(|text| width(text, FONT).ceil() as i32);
        let middle = plot.title_middle();
        let right = plot.right - behind - 12;
        let steps = i32::try_from(RAMP.len()).expect("a few");
        let each = ((right - MARGIN - wide - 8) / steps).clamp(2, 26);
        let mut left = (right - each * steps).max(MARGIN + wide + 8);
        text(&mut plot.body, (left - wide - 8, middle + 9), "", &before);
        for (step, colour) in RAMP.iter().enumerate() {
            let mut pen = Pen::default();
            pen.through(&[(left, middle), (left + each, middle)]);
            let class = format!("class=\"heat h{step}\" stroke=\"{colour}\"");
            path(&mut plot.body, &pen, &format!("{class} stroke-width=\"{}\"", LINE - 14));
            left += each;
        }
        text(&mut plot.body, (left + 8, middle + 9), "", &high);
    }

    fn summary(&self, rows: &[(String, Vec<f64>)]) -> String {
        let mut summary = format!("{} rows, {} columns", self.rows.len(), self.columns());
        for (name, values) in rows.iter().take(SERIES_MAX) {
            let finite = || values.iter().copied().filter(|value| value.is_finite());
            let (Some(least), Some(most)) = (finite().reduce(f64::min), finite().reduce(f64::max))
            else {
                continue;
            };
            let [least, most] = [least, most].map(|value| self.value.unit.show(value));
            let name = shortened(name, 40);
            write!(summary, "; {name}: least {least}, most {most}").expect("it takes everything");
        }
        summary
    }
}

#[expect(clippy::cast_sign_loss, reason = "it is between 0 and 1")]
fn step_of(scale: &Ruler, value: f64) -> usize {
    let place = scale.place(value).unwrap_or(0.0).clamp(0.0, 1.0);
    ((place * RAMP.len() as f64) as usize).min(RAMP.len() - 1)
}
