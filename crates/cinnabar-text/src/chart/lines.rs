//! Lines with bands: a mean with what is around it, what was predicted beside what came; and points.

use super::events::finish;
use super::grid::{behind, first_row, shortened};
use super::layout::{Plot, Upright};
use super::pen::{Pen, Pixel};
use super::reduce::GAP_MIN;
use super::signs::{Key, Sign, fill, shape, stroke};
use super::svg::{BASELINE, FONT, HALO, path, text};
use super::{
    Across, Cell, Figure, Grid, Head, Look, NAME_MAX, POINTS_MAX, SERIES_MAX, colour_of, reduce,
};
use crate::chart::Axis;
use crate::chart::ruler::{Ruler, draws};
use crate::chart::text::{cut, width};

/// More lines are not drawn.
pub const LINES_MAX: usize = 20;
/// Shapes on a line, if there are several lines.
const SHAPES: usize = 4;
/// A line of at most so many points of its own has a shape on each, so that one sees what was measured.
const MARKED_MAX: usize = 40;

/// Values over time or anything else. Of more than [`LINES_MAX`] lines the first are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// What it shows.
    pub head: Head,
    /// From bottom to top.
    pub y: Axis,
    /// Where the values stand, from left to right; what goes back is left out.
    pub xs: Vec<f64>,
    /// Drawn in this order.
    pub lines: Vec<Line>,
    /// Lines from left to right, with their names: "30 ms".
    pub limits: Vec<(f64, String)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Where its values stand, if not where those of all others do.
    pub xs: Vec<f64>,
    /// One for each x. What can't be drawn leaves a gap.
    pub values: Vec<f64>,
    /// What is around it.
    pub band: Option<Band>,
    /// How it is drawn.
    pub style: Style,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Through.
    #[default]
    Line,
    /// Broken: for what is predicted or compared with.
    Dashed,
    /// A value holds until the next one.
    Steps,
    /// Points that no line joins.
    Points,
}

/// An area from one value to another, in the colour of its line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// The name of its lower edge in tables; empty if that is the line itself.
    pub low_name: String,
    /// Its lower edge, one for each x.
    pub low: Vec<f64>,
    /// The name of its upper edge: "p99".
    pub high_name: String,
    /// Its upper edge.
    pub high: Vec<f64>,
}

impl Line {
    /// A line without a band.
    pub fn new(name: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { name: name.into(), values: values.into(), ..Self::default() }
    }

    /// With an area from the line up to other values.
    #[must_use]
    pub fn up_to(mut self, name: impl Into<String>, high: impl Into<Vec<f64>>) -> Self {
        let (high_name, high) = (name.into(), high.into());
        let (low_name, low) = (String::new(), self.values.clone());
        self.band = Some(Band { low_name, low, high_name, high });
        self
    }

    /// Broken.
    #[must_use]
    pub fn dashed(self) -> Self {
        Self { style: Style::Dashed, ..self }
    }

    /// Each value holds until the next one.
    #[must_use]
    pub fn steps(self) -> Self {
        Self { style: Style::Steps, ..self }
    }

    /// The line and the edges of its band.
    fn all(&self) -> impl Iterator<Item = &Vec<f64>> {
        let band = self.band.iter().flat_map(|band| [&band.low, &band.high]);
        std::iter::once(&self.values).chain(band)
    }
}

impl Figure for Lines {
    fn svg(&self, look: &Look) -> String {
        let lines = &self.lines[..self.lines.len().min(LINES_MAX)];
        let columns: Vec<Vec<usize>> =
            lines.iter().map(|line| self.columns(self.xs_of(line))).collect();
        let drawn = |value: &f64| draws(&self.y, *value);
        let values = lines.iter().zip(&columns).flat_map(|(line, columns)| {
            let xs = self.xs_of(line);
            let shown = columns.iter().filter(|column| self.is_shown(xs[**column]));
            let shown: Vec<usize> = shown.copied().collect();
            let of = move |values: &Vec<f64>| -> Vec<f64> {
                shown.iter().filter_map(|column| values.get(*column).copied()).collect()
            };
            line.all().flat_map(of)
        });
        let limits = self.limits.iter().map(|limit| limit.0);
        let ruler = Ruler::new(&self.y, values.filter(drawn), limits);
        let upright = Upright::of(&self.y, ruler.clone(), look);
        let keys = self.keys(lines, look, &ruler);
        let common = self.columns(&self.xs).into_iter().map(|column| self.xs[column]);
        // A moment without values is a place, a point without a height is none.
        let own = lines.iter().zip(&columns).flat_map(|(line, columns)| {
            let has = |column: &&usize| line.values.get(**column).is_some_and(drawn);
            columns.iter().filter(has).filter_map(|column| line.xs.get(*column).copied())
        });
        let mut plot = Plot::new(&self.head, look, &keys, common.chain(own), &upright);
        for (place, line) in lines.iter().enumerate() {
            if let Some(band) = &line.band {
                let mut pen = Pen::default();
                self.band(&plot, &columns[place], (line, band), &mut pen);
                let fill = fill(keys[place].index);
                let attributes = format!("data-band=\"{place}\" {fill} fill-opacity=\".22\"");
                path(&mut plot.body, &pen, &attributes);
            }
        }
        for (place, line) in lines.iter().enumerate() {
            self.line(&mut plot, &columns[place], line, (place, &keys[place]), lines.len() > 1);
        }
        self.limits(&mut plot);
        finish(plot, &self.grid().summary(SERIES_MAX))
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new(&self.head.title);
        grid.first_column(&self.head);
        let unit = self.y.unit;
        let mut all: Vec<&[f64]> = vec![&self.xs];
        // Of each column where its values stand, and they.
        let mut columns: Vec<(&[f64], &[f64])> = Vec::new();
        for line in &self.lines {
            grid.column(&line.name, behind(unit));
            let xs = self.xs_of(line);
            if !all.contains(&xs) {
                all.push(xs);
            }
            columns.push((xs, &line.values));
            let Some(band) = &line.band else { continue };
            for (name, values) in [(&band.low_name, &band.low), (&band.high_name, &band.high)] {
                if !name.is_empty() {
                    grid.column(&format!("{} {name}", line.name), behind(unit));
                    columns.push((xs, values));
                }
            }
        }
        for xs in all {
            let here = columns.iter().map(|(of, values)| if *of == xs { *values } else { &[] });
            let here: Vec<&[f64]> = here.collect();
            let first = first_row(xs.len(), columns.len());
            for (index, x) in xs.iter().enumerate().skip(first) {
                let value = |values: &&[f64]| values.get(index).copied().unwrap_or(f64::NAN);
                let values = here.iter().map(|values| Cell::Number(value(values), unit));
                grid.row(std::iter::once(Cell::first(&self.head, *x)).chain(values));
            }
        }
        grid
    }
}

impl Lines {
    /// Without lines, over an axis of values.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { head: Head::new(title, Across::Values(x)), y, ..Self::default() }
    }

    /// With one more line through points of its own, (x, y) with a growing x.
    #[must_use]
    pub fn series(
        mut self,
        name: impl Into<String>,
        style: Style,
        points: impl Into<Vec<(f64, f64)>>,
    ) -> Self {
        let (xs, values) = points.into().into_iter().unzip();
        self.lines.push(Line { name: name.into(), xs, values, style, band: None });
        self
    }

    /// With one more line from left to right.
    #[must_use]
    pub fn limit(mut self, at: f64, name: impl Into<String>) -> Self {
        self.limits.push((at, name.into()));
        self
    }

    fn xs_of<'a>(&'a self, line: &'a Line) -> &'a [f64] {
        if line.xs.is_empty() { &self.xs } else { &line.xs }
    }

    fn keys(&self, lines: &[Line], look: &Look, ruler: &Ruler) -> Vec<Key> {
        let key = |(place, line): (usize, &Line)| Key {
            index: colour_of(look, &line.name, place),
            sign: match line.style {
                Style::Points => Sign::Point,
                style => Sign::Line { dashed: style == Style::Dashed },
            },
            name: match &line.band {
                Some(band) if !band.high_name.is_empty() => {
                    let low = if band.low_name.is_empty() { "" } else { &band.low_name };
                    let to = if low.is_empty() { "to" } else { " to" };
                    format!("{} ({low}{to} {})", line.name, band.high_name)
                }
                _ => line.name.clone(),
            },
        };
        let mut keys: Vec<Key> = lines.iter().enumerate().map(key).collect();
        let mut remark = |name| keys.push(Key { index: 0, sign: Sign::Remark, name });
        if self.lines.len() > lines.len() {
            remark(format!("({} more are in the table)", self.lines.len() - lines.len()));
        }
        for (at, name) in self.limits.iter().take(SERIES_MAX) {
            let place = ruler.place(*at).filter(|place| !(0.0..=1.0).contains(place));
            if let Some(place) = place {
                let side = if place > 0.5 { "above" } else { "below" };
                remark(format!("({}: outside, {side})", shortened(name, NAME_MAX)));
            }
        }
        keys
    }

    /// Places of the values whose x can be drawn and does not go back.
    fn columns(&self, xs: &[f64]) -> Vec<usize> {
        let mut last = f64::NEG_INFINITY;
        let forward = |column: &usize| {
            let x = xs[*column];
            let placed = match &self.head.across {
                Across::Time { .. } => x.is_finite(),
                Across::Values(axis) => draws(axis, x),
            };
            let forward = placed && x >= last;
            last = if forward { x } else { last };
            forward
        };
        (xs.len().saturating_sub(POINTS_MAX)..xs.len()).filter(forward).collect()
    }

    fn is_shown(&self, x: f64) -> bool {
        match self.head.across {
            Across::Time { from_ms, to_ms } => (from_ms..=to_ms).contains(&x),
            Across::Values(_) => true,
        }
    }

    /// The places of values in runs without a gap.
    fn runs(&self, plot: &Plot, columns: &[usize], line: &Line, values: &[f64]) -> Vec<Vec<Pixel>> {
        let (xs, steps) = (self.xs_of(line), line.style == Style::Steps);
        let mut runs: Vec<Vec<Pixel>> = vec![Vec::new()];
        let mut gap = false;
        for column in columns {
            let Some(x) = plot.x(xs[*column]) else { continue };
            let value = values.get(*column).copied().filter(|value| draws(&self.y, *value));
            let Some(y) = value.and_then(|value| plot.y(value)) else {
                gap = true;
                continue;
            };
            let last = runs.last().and_then(|run| run.last());
            if gap && last.is_some_and(|last| x - last.0 > GAP_MIN) {
                runs.push(Vec::new());
            }
            gap = false;
            let run = runs.last_mut().expect("it begins with one");
            let before = run.last().copied().filter(|last| steps && last.1 != y);
            if let Some((_, before)) = before {
                run.push((x, before));
            }
            run.push((x, y));
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    fn line(
        &self,
        plot: &mut Plot,
        columns: &[usize],
        line: &Line,
        (place, key): (usize, &Key),
        shapes: bool,
    ) {
        let runs = self.runs(plot, columns, line, &line.values);
        let few = runs.iter().map(Vec::len).sum::<usize>() <= MARKED_MAX;
        let seen = reduced(&runs);
        let places = if few { runs.concat() } else { seen.concat() };
        let mut looks = fill(key.index);
        if line.style == Style::Points {
            looks = format!("data-series=\"{place}\" {looks}");
        } else {
            let mut pen = Pen::default();
            for run in &seen {
                pen.through(run);
            }
            let stroke = stroke(key.index, line.style == Style::Dashed);
            path(&mut plot.body, &pen, &format!("data-series=\"{place}\" {stroke}"));
        }
        let measured = few && line.style != Style::Steps && !line.xs.is_empty();
        let all = measured || line.style == Style::Points;
        let count = if all { places.len() } else { SHAPES.min(places.len()) };
        let mut pen = Pen::default();
        for number in (0..count).filter(|_| all || shapes) {
            // Not all lines at the same places: they may lie on each other.
            let part = (number * LINES_MAX + place) * places.len() / (count * LINES_MAX);
            shape(&mut pen, key.index, places[part]);
        }
        path(&mut plot.body, &pen, &looks);
    }

    /// From the upper edge back along the lower one, in runs where both are.
    fn band(&self, plot: &Plot, columns: &[usize], (line, band): (&Line, &Band), pen: &mut Pen) {
        let drawn = |value: f64| if draws(&self.y, value) { value } else { f64::NAN };
        // One has gaps where the other has, so that both have the same runs.
        let edge = |one: &[f64], other: &[f64]| -> Vec<f64> {
            let both = |(one, other): (&f64, &f64)| drawn(*one) + 0.0 * drawn(*other);
            one.iter().zip(other).map(both).collect()
        };
        let (high, low) = (edge(&band.high, &band.low), edge(&band.low, &band.high));
        let highs = reduced(&self.runs(plot, columns, line, &high));
        let lows = reduced(&self.runs(plot, columns, line, &low));
        for (high, low) in highs.into_iter().zip(lows) {
            let around: Vec<Pixel> = high.into_iter().chain(low.into_iter().rev()).collect();
            pen.through(&around);
            pen.close();
        }
    }

    fn limits(&self, plot: &mut Plot) {
        for (at, name) in self.limits.iter().take(SERIES_MAX) {
            let Some(y) = plot.y(*at).filter(|_| plot.beyond(*at).is_none()) else { continue };
            let mut pen = Pen::default();
            pen.through(&[(plot.left, y), (plot.right, y)]);
            let attributes = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" \
                              stroke-dasharray=\"5 7\"";
            path(&mut plot.body, &pen, attributes);
            let room = f64::from((plot.right - plot.left) / 2);
            let name = cut(&shortened(name, NAME_MAX), FONT, room);
            let left = plot.right - width(&name, FONT).ceil() as i32 - 6;
            let above = y - plot.top > 30;
            let baseline = if above { y - 8 } else { y + 18 + BASELINE };
            text(&mut plot.body, (left, baseline), HALO, &name);
        }
    }
}

/// No more points than can be seen.
fn reduced(runs: &[Vec<Pixel>]) -> Vec<Vec<Pixel>> {
    runs.iter().map(|run| reduce::line(run)).collect()
}
