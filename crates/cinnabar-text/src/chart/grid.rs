//! The values of a chart as rows: a table for people and screen readers, CSV for spreadsheets.

use super::calendar::{ZONE, iso, short};
use super::{Across, COLUMNS_MAX, EVENTS_MAX, Event, Head, NAME_MAX, POINTS_MAX};
use crate::chart::escape::visible_text;
use crate::chart::html;
use crate::{Table, Unit};

/// Cells of a grid.
pub(super) const CELLS_MAX: usize = 2_000_000;
const TABLE_COLUMNS_MAX: usize = 13;
/// Characters of a column's name in a table.
const TABLE_NAME_MAX: usize = 40;
/// What makes a spreadsheet take a cell for a formula, also in the width of ideographs.
const FORMULAS: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    Number(f64, Unit),
    /// Milliseconds since 1970.
    Time(f64),
}

/// Rows of values under a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// What they are.
    pub caption: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// What the numbers of each column are, for the header of CSV; empty for text.
    pub units: Vec<&'static str>,
    /// From top to bottom.
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub(super) fn new(caption: &str) -> Self {
        Self { caption: shortened(caption, NAME_MAX), ..Self::default() }
    }

    /// Events, in the order of time.
    pub(super) fn of_events(head: &Head) -> Self {
        let mut grid = Self::new(&format!("{}: events", shortened(&head.title, NAME_MAX)));
        grid.first_column(head);
        grid.column("event", "");
        let mut events: Vec<&Event> = head.events.iter().collect();
        events.sort_by(|one, other| one.at.total_cmp(&other.at));
        for event in &events[events.len().saturating_sub(EVENTS_MAX)..] {
            let cells = [Cell::first(head, event.at), Cell::Text(event.text.clone())];
            grid.row(cells.into_iter());
        }
        grid
    }

    /// With one more column; those beyond the maximum are left out of the header and of rows.
    pub(super) fn column(&mut self, name: &str, unit: &'static str) {
        if self.header.len() < COLUMNS_MAX {
            self.header.push(shortened(name, NAME_MAX));
            self.units.push(unit);
        }
    }

    /// A column for what is from left to right.
    pub(super) fn first_column(&mut self, head: &Head) {
        match &head.across {
            Across::Time { .. } => self.column("time", ZONE),
            Across::Values(axis) => {
                let name = if axis.label.is_empty() { "x" } else { &axis.label };
                self.column(name, behind(axis.unit));
            }
        }
    }

    pub(super) fn row(&mut self, cells: impl Iterator<Item = Cell>) {
        self.rows.push(cells.take(self.header.len()).collect());
    }

    /// An HTML table of at most so many rows: of more, every second, third, and so on, with the last
    /// one.
    pub fn table(&self, rows_max: usize) -> String {
        let nth = self.rows.len().div_ceil(rows_max.max(1)).max(1);
        let columns = self.header.len().min(TABLE_COLUMNS_MAX);
        let mut caption = self.caption.clone();
        let mut remarks = Vec::new();
        if nth > 1 {
            remarks.push(format!("1 of {nth} rows"));
        }
        if columns < self.header.len() {
            remarks.push(format!("{columns} of {} columns", self.header.len()));
        }
        if !remarks.is_empty() {
            caption += &[" (", &remarks.join(", "), "; all are in the CSV file)"].concat();
        }
        let header: Vec<String> = (self.header.iter().take(columns))
            .map(|name| shortened(&visible_text(name), TABLE_NAME_MAX))
            .collect();
        let text = |row: &Vec<Cell>| row.iter().skip(1).all(|cell| matches!(cell, Cell::Text(_)));
        let left = if self.rows.iter().all(text) { columns } else { 1 };
        let mut table = Table::new(left, &header).caption(caption);
        // The last row is the latest.
        let skipped = self.rows.len().saturating_sub(1) % nth;
        for row in self.rows.iter().skip(skipped).step_by(nth) {
            table.push(row.iter().take(columns).map(Cell::shown).collect());
        }
        html::table(&table)
    }

    /// CSV with a header, as RFC 4180 says.
    pub fn csv(&self) -> String {
        let name = |(name, unit): (&String, &&str)| match *unit {
            "" => text(name),
            unit => text(&format!("{name} ({unit})")),
        };
        let header: Vec<String> = self.header.iter().zip(&self.units).map(name).collect();
        let mut csv = header.join(",") + "\r\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::csv).collect();
            csv += &cells.join(",");
            csv += "\r\n";
        }
        csv
    }

    /// The first value, the last one and the extremes of each column, in words.
    pub(super) fn summary(&self, columns_max: usize) -> String {
        let columns = self.header.iter().enumerate().skip(1);
        let sentence = |(column, name): (usize, &String)| {
            let values = || self.rows.iter().filter_map(move |row| row.get(column)?.number());
            let (last, unit) = values().next_back()?;
            let (least, most) = values().fold((last, last), |(least, most), (value, _)| {
                (value.min(least), value.max(most))
            });
            let [last, least, most] = [last, least, most].map(|value| unit.show(value));
            let name = shortened(name, TABLE_NAME_MAX);
            Some(format!("{name}: last {last}, least {least}, most {most}"))
        };
        let mut found: Vec<String> =
            columns.clone().take(columns_max).filter_map(sentence).collect();
        let more = columns.count().saturating_sub(columns_max);
        if more > 0 {
            found.push(format!("and {more} more"));
        }
        found.join("; ")
    }
}

impl Cell {
    /// Of the first column.
    pub(super) fn first(head: &Head, x: f64) -> Self {
        match &head.across {
            Across::Time { .. } => Self::Time(x),
            Across::Values(axis) => Self::Number(x, axis.unit),
        }
    }

    fn number(&self) -> Option<(f64, Unit)> {
        match self {
            Self::Number(value, unit) if value.is_finite() => Some((*value, *unit)),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => shortened(text, NAME_MAX),
            Self::Number(value, unit) => unit.show(*value),
            Self::Time(ms) => short(*ms),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) => self::text(&shortened(text, NAME_MAX)),
            Self::Number(value, _) if value.is_finite() => number(*value),
            Self::Number(..) => String::new(),
            Self::Time(ms) => iso(*ms),
        }
    }
}

/// The first of so many rows that is shown; of too many the last are.
pub(super) fn first_row(rows: usize, columns: usize) -> usize {
    let rows_max = (CELLS_MAX / (columns.min(COLUMNS_MAX) + 1)).min(POINTS_MAX);
    rows.saturating_sub(rows_max)
}

/// What a unit's numbers are in CSV and for scripts.
pub(super) const fn raw(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        Unit::Micros => "us",
        Unit::Seconds => "s",
        Unit::Bytes => "bytes",
        Unit::Ratio => "ratio",
    }
}

/// The same behind a name, which needs no "count".
pub(super) const fn behind(unit: Unit) -> &'static str {
    if matches!(unit, Unit::Count) { "" } else { raw(unit) }
}

/// A number in full, which every program can read.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if (1e-6..1e16).contains(&size) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

pub(super) fn shortened(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
    }
}

/// Text as a cell of CSV: harmless, and in quotes where it must be.
fn text(text: &str) -> String {
    let mut safe = visible_text(text).replace('\n', " ");
    if safe.trim_start().starts_with(FORMULAS) || safe.starts_with('\t') {
        safe.insert(0, '\'');
    }
    let quoted = safe.contains(['"', ',', ';', '\t', '\r']) || safe.trim() != safe;
    if quoted { format!("\"{}\"", safe.replace('"', "\"\"")) } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_formulas() {
        let cases = [
            ("vm1", "vm1"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
            ("@sum(a, b)", "\"'@sum(a, b)\""),
            ("\t=1", "\"'\t=1\""),
            ("  =1", "'  =1"),
            (" x", "\" x\""),
            ("＝1", "'＝1"),
            ("a\r\n=1", "a\u{FFFD} =1"),
            ("say \"x\", y", "\"say \"\"x\"\", y\""),
        ];
        for (name, cell) in cases {
            assert_eq!(text(name), cell);
        }
    }

    #[test]
    fn numbers_are_whole_and_readable() {
        for value in [0.0, 1.0, -3.5, 0.1, 1e-9, 1e300, 123_456_789_012.0, f64::MIN_POSITIVE] {
            let text = number(value);
            assert!(text.len() < 30 && text.parse() == Ok(value), "{text}");
        }
        let mut grid = Grid::new("values");
        grid.column("time", ZONE);
        grid.column("hits", behind(Unit::Ratio));
        grid.row([Cell::Time(0.0), Cell::Number(0.25, Unit::Ratio)].into_iter());
        grid.row([Cell::Time(1500.0), Cell::Number(f64::NAN, Unit::Ratio)].into_iter());
        let csv = "time (UTC),hits (ratio)\r\n1970-01-01T00:00:00Z,0.25\r\n\
                   1970-01-01T00:00:01.500Z,\r\n";
        assert_eq!(grid.csv(), csv);
        assert!(grid.table(9).contains("25 %") && !grid.table(9).contains("rows"));
        assert_eq!(grid.summary(5), "hits: last 25 %, least 25 %, most 25 %");
    }

    #[test]
    fn a_long_table_is_thinned_and_ends_with_the_latest() {
        let mut grid = Grid::new("values");
        grid.column("n", "");
        for name in 0..2000 {
            grid.column(&format!("c{name}"), "");
        }
        assert_eq!(grid.header.len(), COLUMNS_MAX);
        for row in 0..1001 {
            grid.row((0..3000).map(|_| Cell::Number(f64::from(row), Unit::Count)));
        }
        let html = grid.table(50);
        let rows = html.matches("<tr>").count() - 1;
        assert!((40..=50).contains(&rows), "{rows}");
        assert!(html.contains("1 of 21 rows, 13 of 1000 columns"), "{}", &html[..200]);
        assert!(html.trim_end().contains(">1k</td>\n</tr>\n</tbody>"), "the last row is there");
    }
}
