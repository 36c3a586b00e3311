//! Histograms: how often values of each bucket came, on an axis that is mostly one of ratios.

use super::events::finish;
use super::grid::{CELLS_MAX, behind};
use super::layout::{Plot, Upright};
use super::pen::{Pen, Pixel};
use super::signs::{Key, Sign, fill, stroke};
use super::svg::path;
use super::{Across, Cell, Figure, Grid, Head, Look, SERIES_MAX, colour_of, reduce};
use crate::chart::Axis;
use crate::chart::ruler::{Ruler, draws};

/// Buckets that are looked at.
const BUCKETS_MAX: usize = 10_000;
/// A bar so wide has a gap beside it.
const GAP_FROM: i32 = 8;

/// How often values came. The first series is bars, others are lines over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// What it shows; from left to right the values that were counted, `Axis::log("latency",
    /// Unit::Micros)`.
    pub head: Head,
    /// How often.
    pub y: Axis,
    /// Where buckets begin, and where the last one ends: one more than buckets.
    pub edges: Vec<f64>,
    /// With and without the cache, say.
    pub series: Vec<Buckets>,
}

/// One series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// For the legend.
    pub name: String,
    /// One for each bucket.
    pub counts: Vec<f64>,
}

impl Buckets {
    /// A series.
    pub fn new(name: impl Into<String>, counts: impl Into<Vec<f64>>) -> Self {
        Self { name: name.into(), counts: counts.into() }
    }

    fn at(&self, bucket: usize) -> f64 {
        let count = self.counts.get(bucket).copied().filter(|count| count.is_finite());
        count.unwrap_or(0.0).max(0.0)
    }
}

impl Figure for Histogram {
    fn svg(&self, look: &Look) -> String {
        let series = &self.series[..self.series.len().min(SERIES_MAX)];
        let buckets = self.shown(series);
        let key = |(place, series): (usize, &Buckets)| Key {
            index: colour_of(look, &series.name, place),
            sign: if place == 0 { Sign::Area } else { Sign::Line { dashed: false } },
            name: series.name.clone(),
        };
        let mut keys: Vec<Key> = series.iter().enumerate().map(key).collect();
        if self.series.len() > series.len() {
            let name = format!("({} more are in the table)", self.series.len() - series.len());
            keys.push(Key { index: 0, sign: Sign::Remark, name });
        }
        let counts = series.iter().flat_map(|one| buckets.iter().map(|bucket| one.at(*bucket)));
        let ruler = Ruler::new(&self.y, counts.chain([0.0]), [].into_iter());
        let upright = Upright::of(&self.y, ruler, look);
        let across = |edge: &f64| match &self.head.across {
            Across::Values(axis) => draws(axis, *edge),
            Across::Time { .. } => true,
        };
        let edges = buckets.iter().flat_map(|bucket| [self.edges[*bucket], self.edges[bucket + 1]]);
        let edges = edges.filter(across);
        let mut plot = Plot::new(&self.head, look, &keys, edges, &upright);
        for (place, series) in series.iter().enumerate() {
            let mut pen = Pen::default();
            if place == 0 {
                self.bars(&plot, &buckets, series, &mut pen);
            } else {
                pen.through(&reduce::line(&self.outline(&plot, &buckets, series)));
            }
            let index = keys[place].index;
            let looks = if place == 0 { fill(index) } else { stroke(index, false) };
            path(&mut plot.body, &pen, &format!("data-series=\"{place}\" {looks}"));
        }
        finish(plot, &self.grid().summary(SERIES_MAX))
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        let (unit, name) = match &self.head.across {
            Across::Values(axis) => (behind(axis.unit), axis.label.as_str()),
            Across::Time { .. } => ("UTC", "time"),
        };
        grid.column(&format!("{name} from"), unit);
        grid.column("to", unit);
        for series in &self.series {
            grid.column(&series.name, behind(self.y.unit));
        }
        for bucket in 0..self.buckets().min(CELLS_MAX / (self.series.len() + 2)) {
            let edges = [self.edges[bucket], self.edges[bucket + 1]];
            let edges = edges.map(|edge| Cell::first(&self.head, edge));
            let counts = self.series.iter().map(|one| Cell::Number(one.at(bucket), self.y.unit));
            grid.row(edges.into_iter().chain(counts));
        }
        grid
    }
}

impl Histogram {
    fn buckets(&self) -> usize {
        self.edges.len().saturating_sub(1).min(BUCKETS_MAX)
    }

    /// Without those at the ends that are empty in all series, and those that are none.
    fn shown(&self, series: &[Buckets]) -> Vec<usize> {
        let full = |bucket: &usize| series.iter().any(|one| one.at(*bucket) > 0.0);
        let buckets = 0..self.buckets();
        let first = buckets.clone().find(full).unwrap_or(0);
        let last = buckets.clone().rfind(full).unwrap_or(self.buckets().saturating_sub(1));
        let mut end = f64::NEG_INFINITY;
        let forward = |bucket: &usize| {
            let (from, to) = (self.edges[*bucket], self.edges[bucket + 1]);
            let forward = from < to && from >= end;
            end = if forward { to } else { end };
            forward
        };
        buckets.filter(|bucket| (first..=last).contains(bucket)).filter(forward).collect()
    }

    /// From where to where a bucket goes; one that begins at 0 begins at the edge of an axis of
    /// ratios.
    fn span(&self, plot: &Plot, bucket: usize) -> Option<(i32, i32)> {
        let (from, to) = (self.edges[bucket], self.edges[bucket + 1]);
        if !plot.overlaps(from, to) {
            return None;
        }
        Some((plot.x_within(from).unwrap_or(plot.left), plot.x_within(to)?))
    }

    fn bars(&self, plot: &Plot, buckets: &[usize], series: &Buckets, pen: &mut Pen) {
        let spans = buckets.iter().filter_map(|bucket| self.span(plot, *bucket));
        let least = spans.map(|(from, to)| to - from).min().unwrap_or(0);
        if least < GAP_FROM {
            pen.through(&reduce::line(&self.outline(plot, buckets, series)));
            pen.close();
            return;
        }
        for bucket in buckets.iter().filter(|bucket| series.at(**bucket) > 0.0) {
            let Some((from, to)) = self.span(plot, *bucket) else { continue };
            let y = plot.y(series.at(*bucket)).unwrap_or(plot.bottom);
            // What came at all is seen.
            pen.rectangle((from + 1, y.min(plot.bottom - 1)), (to - 1, plot.bottom));
        }
    }

    /// The upper edge of all buckets, from the bottom to the bottom.
    fn outline(&self, plot: &Plot, buckets: &[usize], series: &Buckets) -> Vec<Pixel> {
        let mut line: Vec<Pixel> = Vec::new();
        for bucket in buckets {
            let Some((from, to)) = self.span(plot, *bucket) else { continue };
            let y = plot.y(series.at(*bucket)).unwrap_or(plot.bottom);
            match line.last().copied() {
                Some((x, _)) if x == from => {}
                Some((x, _)) => line.extend([(x, plot.bottom), (from, plot.bottom)]),
                None => line.push((from, plot.bottom)),
            }
            line.extend([(from, y), (to, y)]);
        }
        line.extend(line.last().map(|(x, _)| (*x, plot.bottom)));
        line
    }
}
