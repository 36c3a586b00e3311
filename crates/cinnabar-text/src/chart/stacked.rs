//! Areas on each other: how a whole is divided, over time.

use super::events::finish;
use super::grid::{behind, first_row};
use super::layout::{Plot, Upright};
use super::pen::Pen;
use super::reduce;
use super::signs::{Key, OTHERS, Sign, fill};
use super::svg::path;
use super::{Across, Cell, Figure, Grid, Head, Look, POINTS_MAX, SERIES_MAX, colour_of};
use crate::chart::Axis;
use crate::chart::ruler::Ruler;
use std::borrow::Cow;

/// Shares of a whole over time. Of more than [`SERIES_MAX`] layers the smallest are drawn as one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacked {
    /// What it shows.
    pub head: Head,
    /// From bottom to top.
    pub y: Axis,
    /// Where the values stand, from left to right; what goes back is left out.
    pub xs: Vec<f64>,
    /// From the lowest to the highest.
    pub layers: Vec<Layer>,
    /// Whether a value holds until the next one, or changes evenly.
    pub steps: bool,
}

/// A part of the whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// For the legend.
    pub name: String,
    /// One for each x. What is no number, or below zero, is nothing; where no layer has a number
    /// there is a gap.
    pub values: Vec<f64>,
}

impl Layer {
    /// A layer.
    pub fn new(name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { name: name.into(), values: values.into() }
    }

    fn at(&self, index: usize) -> Option<f64> {
        self.values.get(index).copied().filter(|value| value.is_finite())
    }
}

impl Figure for Stacked {
    fn svg(&self, look: &Look) -> String {
        let layers = self.drawn();
        let key = |(place, layer): (usize, &Cow<Layer>)| Key {
            index: match layer {
                Cow::Borrowed(layer) => colour_of(look, &layer.name, place),
                Cow::Owned(_) => OTHERS,
            },
            sign: Sign::Area,
            name: layer.name.clone(),
        };
        let keys: Vec<Key> = layers.iter().enumerate().map(key).collect();
        let runs = self.runs(&layers);
        let xs = || runs.iter().flatten().map(|index| self.xs[*index]);
        let total =
            |index: &usize| layers.iter().filter_map(|layer| part(layer, *index)).sum::<f64>();
        let shown = runs.iter().flatten().filter(|index| self.is_shown(**index));
        let totals: Vec<f64> = shown.map(total).collect();
        let ruler = Ruler::new(&self.y, totals.into_iter().chain([0.0]), [].into_iter());
        let upright = Upright::of(&self.y, ruler, look);
        let mut plot = Plot::new(&self.head, look, &keys, xs(), &upright);
        let mut pens: Vec<Pen> = layers.iter().map(|_| Pen::default()).collect();
        // A gap that can't be seen is none.
        let place = |index: Option<&usize>| index.and_then(|index| plot.x(self.xs[*index]));
        let near = |one: &Vec<usize>, next: &Vec<usize>| {
            let ends = place(one.last()).zip(place(next.first()));
            ends.is_some_and(|(end, begin)| begin - end <= reduce::GAP_MIN)
        };
        for runs in runs.chunk_by(near) {
            self.run(&plot, &layers, &runs.concat(), &mut pens);
        }
        // From the highest layer on: each covers those below it down to the bottom, so that a line
        // between two layers is drawn once.
        plot.body += "<g class=\"edge\" stroke=\"#fff\" stroke-width=\"1\">";
        for (place, pen) in pens.iter().enumerate().rev() {
            let attributes = format!("data-series=\"{place}\" {}", fill(keys[place].index));
            path(&mut plot.body, pen, &attributes);
        }
        plot.body += "</g>";
        finish(plot, &self.grid().summary(SERIES_MAX))
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        grid.first_column(&self.head);
        for layer in &self.layers {
            grid.column(&layer.name, behind(self.y.unit));
        }
        for index in first_row(self.xs.len(), self.layers.len())..self.xs.len() {
            let value = |layer: &Layer| layer.values.get(index).copied().unwrap_or(f64::NAN);
            let values = self.layers.iter().map(|layer| Cell::Number(value(layer), self.y.unit));
            grid.row(std::iter::once(Cell::first(&self.head, self.xs[index])).chain(values));
        }
        grid
    }
}

impl Stacked {
    /// The layers that are drawn; those that are one for all that is left over are owned.
    fn drawn(&self) -> Vec<Cow<'_, Layer>> {
        if self.layers.len() <= SERIES_MAX {
            return self.layers.iter().map(Cow::Borrowed).collect();
        }
        let size = |layer: &Layer| {
            let finite = layer.values.iter().filter(|value| value.is_finite());
            finite.map(|value| value.max(0.0)).sum::<f64>()
        };
        let mut sizes: Vec<(f64, usize)> = self.layers.iter().map(size).zip(0..).collect();
        sizes.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let (large, small) = sizes.split_at(SERIES_MAX - 1);
        let mut large: Vec<usize> = large.iter().map(|(_, place)| *place).collect();
        large.sort_unstable();
        let mut others = vec![f64::NAN; self.xs.len()];
        for (_, place) in small {
            for (index, sum) in others.iter_mut().enumerate() {
                if let Some(value) = part(&self.layers[*place], index) {
                    *sum = if sum.is_nan() { value } else { *sum + value };
                }
            }
        }
        let others = Layer::new(format!("{} others", small.len()), others);
        let large = large.into_iter().map(|place| Cow::Borrowed(&self.layers[place]));
        large.chain([Cow::Owned(others)]).collect()
    }

    /// Places of values without a gap between them, x growing.
    fn runs(&self, layers: &[Cow<Layer>]) -> Vec<Vec<usize>> {
        let mut runs = vec![Vec::new()];
        let mut last = f64::NEG_INFINITY;
        for index in self.xs.len().saturating_sub(POINTS_MAX)..self.xs.len() {
            let x = self.xs[index];
            if !x.is_finite() || x < last {
                continue;
            }
            last = x;
            if layers.iter().any(|layer| layer.at(index).is_some()) {
                runs.last_mut().expect("it begins with one").push(index);
            } else if runs.last().is_some_and(|run| !run.is_empty()) {
                runs.push(Vec::new());
            }
        }
        runs
    }

    fn is_shown(&self, index: usize) -> bool {
        match self.head.across {
            Across::Time { from_ms, to_ms } => (from_ms..=to_ms).contains(&self.xs[index]),
            Across::Values(_) => true,
        }
    }

    /// Draws a run of values.
    fn run(&self, plot: &Plot, layers: &[Cow<Layer>], run: &[usize], pens: &mut [Pen]) {
        let mut xs = Vec::new();
        let mut tops: Vec<Vec<i32>> = vec![Vec::new(); layers.len()];
        for index in run {
            let Some(x) = plot.x(self.xs[*index]) else { continue };
            xs.push(x);
            let mut sum = 0.0;
            for (layer, tops) in layers.iter().zip(&mut tops) {
                sum += part(layer, *index).unwrap_or(0.0);
                tops.push(plot.bottom - plot.y(sum).unwrap_or(plot.top));
            }
        }
        let columns = reduce::columns(&xs, &tops);
        let (Some(first), Some(last)) = (xs.first(), xs.last()) else { return };
        // A value alone has a width, too.
        let last = if first == last { first + 2 } else { *last };
        for (tops, pen) in tops.iter().zip(pens) {
            let mut line = vec![(*first, plot.bottom)];
            for column in &columns {
                let y = plot.bottom - tops[*column];
                let before = line.last().copied().filter(|_| self.steps && line.len() > 1);
                if let Some((_, before)) = before {
                    line.push((xs[*column], before));
                }
                line.push((xs[*column], y));
            }
            line.push((last, line[line.len() - 1].1));
            line.push((last, plot.bottom));
            pen.through(&reduce::straightened(line));
            pen.close();
        }
    }
}

/// What a layer adds.
fn part(layer: &Layer, index: usize) -> Option<f64> {
    layer.at(index).map(|value| value.max(0.0))
}
