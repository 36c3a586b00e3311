//! Numbers of a chart: drawn, as CSV, and as a table.

use crate::html::{Grid, escaped};
use crate::words::moment;
use cinnabar_chart::{Axis, Bars, Chart, Group, Style};
use cinnabar_text::Unit;
use std::fmt::Write;

/// Rows of a table in a view; CSV has all of them.
const TABLE_ROWS: usize = 40;

/// What a row is of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Of {
    /// A moment, in milliseconds since 1970.
    #[default]
    Time,
    /// A value on an axis.
    Value(Unit),
    /// A label: bars.
    Label,
}

/// How it is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// A line for each column.
    #[default]
    Lines,
    /// Each column on top of those before.
    Stacked,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sheet {
    pub title: String,
    pub of: Of,
    pub shape: Shape,
    /// What rows are of.
    pub x: String,
    /// What is measured.
    pub y: String,
    pub unit: Unit,
    /// Names of the columns, and how each is drawn.
    pub columns: Vec<(String, Style)>,
    pub rows: Vec<Row>,
    /// Places on the axis of rows, with words.
    pub marks: Vec<(f64, String)>,
    /// The axis of values: from where to where.
    pub bounds: Option<(f64, f64)>,
    /// The range of rows, where it is one of time.
    pub range: Option<(u64, u64)>,
}

/// A row of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Where.
    pub at: f64,
    /// Its label, in a sheet of labels.
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
        let columns = columns.iter().map(|(name, style)| ((*name).to_owned(), *style)).collect();
        let (title, y) = (title.to_owned(), y.to_owned());
        Self { title, x: "time".into(), y, unit, columns, ..Self::default() }
    }

    /// Bars.
    pub(super) fn bars(title: &str, x: &str, y: &str, unit: Unit, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|name| ((*name).to_owned(), Style::Line)).collect();
        let (title, x, y) = (title.to_owned(), x.to_owned(), y.to_owned());
        Self { title, of: Of::Label, x, y, unit, columns, ..Self::default() }
    }

    pub(super) fn svg(&self) -> String {
        match self.of {
            Of::Label => self.drawn_bars(),
            Of::Time | Of::Value(_) => self.drawn_lines(),
        }
    }

    fn drawn_bars(&self) -> String {
        let names = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let group = |row: &Row| Group { label: row.label.clone(), values: row.values.clone() };
        let groups = self.rows.iter().map(group).collect();
        let (title, label) = (self.title.clone(), self.y.clone());
        Bars { title, label, unit: self.unit, names, groups }.to_svg()
    }

    fn drawn_lines(&self) -> String {
        let end = self.rows.last().map_or(0.0, |row| row.at);
        let (x_unit, place): (Unit, Box<dyn Fn(f64) -> f64>) = match self.of {
            Of::Value(unit) => (unit, Box::new(|at| at)),
            Of::Time | Of::Label => (Unit::Seconds, Box::new(move |at| (at - end) / 1000.0)),
        };
        let mut y = Axis::linear(self.y.clone(), self.unit);
        if let Some((low, high)) = self.bounds {
            y = y.between(low, high);
        }
        let mut chart = Chart::new(self.title.clone(), Axis::linear(self.x.clone(), x_unit), y);
        let mut below = vec![0.0; self.rows.len()];
        for (column, (name, style)) in self.columns.iter().enumerate() {
            let value = |row: &Row| row.values.get(column).copied().unwrap_or(f64::NAN);
            if self.shape == Shape::Stacked {
                for (sum, row) in below.iter_mut().zip(&self.rows) {
                    *sum += value(row);
                }
            }
            let points: Vec<(f64, f64)> = match self.shape {
                Shape::Stacked => {
                    self.rows.iter().zip(&below).map(|(row, sum)| (place(row.at), *sum)).collect()
                }
                Shape::Lines => self.rows.iter().map(|row| (place(row.at), value(row))).collect(),
            };
            chart = chart.series(name.clone(), *style, points);
        }
        for (at, label) in &self.marks {
            chart = chart.event(place(*at), label.clone());
        }
        chart.to_svg()
    }

    fn row_name(&self, row: &Row) -> String {
        match self.of {
            Of::Time => moment(row.at as u64),
            Of::Value(unit) => unit.show(row.at),
            Of::Label => row.label.clone(),
        }
    }

    /// All rows; numbers as they are.
    pub(super) fn csv(&self) -> String {
        let first = if self.of == Of::Time { "at_ms" } else { self.x.as_str() };
        let mut csv = field(first);
        for (name, _) in &self.columns {
            csv.push(',');
            csv += &field(name);
        }
        csv += "\r\n";
        for row in &self.rows {
            csv += &match self.of {
                Of::Label => field(&row.label),
                Of::Time | Of::Value(_) => format!("{}", row.at),
            };
            for value in &row.values {
                csv.push(',');
                if value.is_finite() {
                    write!(csv, "{value}").expect("a string takes everything");
                }
            }
            csv += "\r\n";
        }
        csv
    }

    /// A bounded number of rows, evenly taken from all, the newest among them.
    pub(super) fn table(&self) -> String {
        let step = self.rows.len().div_ceil(TABLE_ROWS).max(1);
        let last = self.rows.len().saturating_sub(1);
        let caption = match step {
            1 => self.title.clone(),
            _ => format!("{} (one of {step} samples; CSV has all)", self.title),
        };
        let mut columns: Vec<(&str, bool)> = vec![(self.x.as_str(), false)];
        columns.extend(self.columns.iter().map(|(name, _)| (name.as_str(), true)));
        let mut grid = Grid::new("", &caption, &columns);
        for (_, row) in self.rows.iter().enumerate().filter(|(at, _)| (last - at) % step == 0) {
            let name = escaped(&self.row_name(row));
            let values = row.values.iter().map(|value| escaped(&self.unit.show(*value)));
            grid.row(std::iter::once(name).chain(values).collect::<Vec<_>>());
        }
        grid.html()
    }
}

/// A field of CSV; one that a spreadsheet could take for a formula is text.
fn field(text: &str) -> String {
    let risky = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if risky { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_names_are_harmless() {
        let mut sheet = Sheet::bars("Hits", "volume", "part", Unit::Ratio, &["now", "a,\"b\""]);
        sheet.rows.push(Row::label("=cmd()", [0.25, f64::NAN]));
        assert_eq!(sheet.csv(), "volume,now,\"a,\"\"b\"\"\"\r\n'=cmd(),0.25,\r\n");
        assert!(sheet.table().contains("25 %"));
    }

    #[test]
    fn a_long_table_has_the_newest_row() {
        let mut sheet = Sheet::over_time("Hits", "part", Unit::Ratio, &[("hits", Style::Line)]);
        sheet.rows = (0..360).map(|at| Row::at(f64::from(at) * 10_000.0, [0.5])).collect();
        let table = sheet.table();
        assert!(table.contains(&moment(3_590_000)), "{table}");
        assert_eq!(table.matches("<tr>").count(), 41);
        assert!(table.contains("one of 9 samples"), "{table}");
    }
}
