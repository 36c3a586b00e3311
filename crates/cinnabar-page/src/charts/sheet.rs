//! Numbers of a chart, and which chart they make.

use cinnabar_text::Unit;
use cinnabar_text::chart::{
    Across, Axis, Figure, Groups, Head, Layer, Line, Lines, Part, Parts, Stacked,
};

/// What a row is of, and how rows are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Shape {
    /// A line for each column, over time.
    #[default]
    Lines,
    /// Each column on top of those before, over time.
    Stacked,
    /// A line for each column, over values.
    Curve(Unit),
    /// A bar for each row and column.
    Bars,
    /// A bar for each row, its parts the columns.
    Parts,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sheet {
    pub title: String,
    pub shape: Shape,
    /// What rows are of.
    pub x: String,
    /// What is measured.
    pub y: String,
    pub unit: Unit,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// Moments, with what happened.
    pub events: Vec<(f64, String)>,
    /// A place that a script may move: what it knows it by, where, what it says.
    pub marker: Option<(&'static str, f64, String)>,
    /// The axis of values: from where to where.
    pub bounds: Option<(f64, f64)>,
    /// From where to where in milliseconds since 1970, over time.
    pub range: (f64, f64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Column {
    pub name: String,
    pub style: Style,
}

/// How the line of a column is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// Through.
    #[default]
    Line,
    /// Broken.
    Dashed,
    /// Each value holds until the next.
    Steps,
    /// The upper edge of a band over the line before.
    UpTo,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Where.
    pub at: f64,
    /// Its label, in a sheet of bars.
    pub label: String,
    /// A value for each column; no number: none is known.
    pub values: Vec<f64>,
}

impl Row {
    pub(super) fn at(at: f64, values: impl Into<Vec<f64>>) -> Self {
        Self { at, label: String::new(), values: values.into() }
    }

    pub(super) fn label(label: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { at: 0.0, label: label.into(), values: values.into() }
    }
}

impl Sheet {
    /// Over time, of these columns.
    pub(super) fn over_time(title: &str, y: &str, unit: Unit, columns: &[(&str, Style)]) -> Self {
        let column = |(name, style): &(&str, Style)| Column { name: (*name).into(), style: *style };
        let columns = columns.iter().map(column).collect();
        let (title, y) = (title.to_owned(), y.to_owned());
        Self { title, x: "time".into(), y, unit, columns, ..Self::default() }
    }

    pub(super) fn bars(title: &str, x: &str, y: &str, unit: Unit, columns: &[&str]) -> Self {
        let named: Vec<(&str, Style)> = columns.iter().map(|name| (*name, Style::Line)).collect();
        Self { shape: Shape::Bars, x: x.into(), ..Self::over_time(title, y, unit, &named) }
    }

    /// One bar, of parts with names.
    pub(super) fn parts(title: &str, unit: Unit, parts: &[(&str, u64)]) -> Self {
        let named: Vec<(&str, Style)> =
            parts.iter().map(|(name, _)| (*name, Style::Line)).collect();
        let values: Vec<f64> = parts.iter().map(|(_, value)| *value as f64).collect();
        let rows =
            if values.iter().sum::<f64>() > 0.0 { vec![Row::label("", values)] } else { vec![] };
        Self { shape: Shape::Parts, rows, ..Self::over_time(title, "", unit, &named) }
    }

    pub(super) fn figure(self) -> Box<dyn Figure> {
        match self.shape {
            Shape::Lines | Shape::Curve(_) => Box::new(self.lines()),
            Shape::Stacked => Box::new(self.stacked()),
            Shape::Parts => Box::new(self.as_parts()),
            Shape::Bars => Box::new(self.groups()),
        }
    }

    fn head(&self) -> Head {
        let across = match self.shape {
            Shape::Curve(unit) => Across::Values(Axis::linear(self.x.clone(), unit)),
            _ => Across::Time { from_ms: self.range.0, to_ms: self.range.1 },
        };
        let head = Head::new(self.title.clone(), across);
        let head = self.events.iter().fold(head, |head, (at, text)| head.event(*at, text.clone()));
        match &self.marker {
            Some((name, at, text)) => head.marker(*name, *at, text.clone()),
            None => head,
        }
    }

    fn upright(&self) -> Axis {
        // A mean and what 99 of 100 did not exceed are often far apart.
        let y = if self.unit == Unit::Micros {
            Axis::log(self.y.clone(), self.unit)
        } else {
            Axis::linear(self.y.clone(), self.unit)
        };
        self.bounds.map_or(y.clone(), |(low, high)| y.between(low, high))
    }

    fn values(&self, column: usize) -> Vec<f64> {
        self.rows.iter().map(|row| row.values.get(column).copied().unwrap_or(f64::NAN)).collect()
    }

    fn lines(&self) -> Lines {
        let mut lines: Vec<Line> = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            let (name, values) = (column.name.clone(), self.values(at));
            match column.style {
                Style::UpTo => {
                    if let Some(below) = lines.pop() {
                        lines.push(below.up_to(name, values));
                    }
                }
                Style::Line => lines.push(Line::new(name, values)),
                Style::Dashed => lines.push(Line::new(name, values).dashed()),
                Style::Steps => lines.push(Line::new(name, values).steps()),
            }
        }
        let xs = self.rows.iter().map(|row| row.at).collect();
        Lines { head: self.head(), y: self.upright(), xs, lines, limits: Vec::new() }
    }

    fn stacked(&self) -> Stacked {
        let layer =
            |(at, column): (usize, &Column)| Layer::new(column.name.clone(), self.values(at));
        let steps = self.columns.first().is_some_and(|column| column.style == Style::Steps);
        Stacked {
            head: self.head(),
            y: self.upright(),
            xs: self.rows.iter().map(|row| row.at).collect(),
            layers: self.columns.iter().enumerate().map(layer).collect(),
            steps,
        }
    }

    fn as_parts(&self) -> Parts {
        let bar = |row: &Row| Part::new(row.label.clone(), row.values.clone());
        Parts {
            head: self.head(),
            unit: self.unit,
            names: self.columns.iter().map(|column| column.name.clone()).collect(),
            bars: self.rows.iter().map(bar).collect(),
        }
    }

    fn groups(&self) -> Groups {
        let group = |row: &Row| Part::new(row.label.clone(), row.values.clone());
        Groups {
            head: self.head(),
            of: self.x.clone(),
            unit: self.unit,
            names: self.columns.iter().map(|column| column.name.clone()).collect(),
            groups: self.rows.iter().map(group).collect(),
            // A part is seen beside all.
            whole: (self.unit == Unit::Ratio).then_some(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_numbers_beside_them() {
        let mut sheet = Sheet::bars("Hits", "volume", "part", Unit::Ratio, &["now", "then"]);
        sheet.rows.push(Row::label("=cmd()", [0.25, f64::NAN]));
        let figure = sheet.figure();
        let csv = figure.csv();
        assert!(csv.starts_with("volume,now (ratio),then (ratio)\r\n"), "{csv}");
        assert!(!csv.contains("\r\n=cmd()") && csv.contains(",0.25,"), "{csv}");
        assert!(figure.table(10).contains("25 %"));
    }

    #[test]
    fn a_column_that_is_an_upper_edge_makes_a_band() {
        let columns = [("mean", Style::Line), ("99 %", Style::UpTo)];
        let mut sheet = Sheet::over_time("Latency", "latency", Unit::Micros, &columns);
        sheet.rows.push(Row::at(5.0, [1.0, 3.0]));
        let lines = sheet.lines();
        assert_eq!(lines.lines.len(), 1);
        assert_eq!(lines.lines[0].band.as_ref().map(|band| band.high.clone()), Some(vec![3.0]));
    }
}
