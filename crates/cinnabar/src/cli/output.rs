//! Writing data to stdout, for people and for programs.
//!
//! Called by every command. A reader that goes away early (`| head`) ends the command quietly.

use super::failure::Failure;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};

/// Writes bytes.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(Failure { code: 0, message: String::new(), hint: String::new() })
        }
        Err(error) => Err(Failure::at_run_time(
            format!("can't write to stdout: {error}"),
            "is the disk full?",
        )),
    }
}

/// Writes text.
pub(super) fn text(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Writes an object as one line of JSON, or several if people read it.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let written = if std::io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let line = written.map_err(|error| Failure::at_run_time(error.to_string(), ""))?;
    text(&(line + "\n"))
}

/// Whether colours are welcome.
pub(super) fn colour(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !unwanted && stream.is_terminal()
}

/// A table with a header; all columns but the first `left` are flushed right.
pub(super) struct Table {
    left: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(super) fn new(left: usize, header: &[&str]) -> Self {
        Self { left, rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The text.
    pub(super) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = width - cell.chars().count();
                let (before, behind) = if column < self.left { (0, gap) } else { (gap, 0) };
                let cell = [&" ".repeat(before), cell.as_str(), &" ".repeat(behind)].concat();
                line += if column == 0 { "" } else { "  " };
                line += &cell;
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, &["NAME", "READS"]);
        table.row(vec!["vm1".into(), "7".into()]);
        table.row(vec!["größer".into(), "12345678".into()]);
        assert_eq!(table.render(), "NAME       READS\nvm1            7\ngrößer  12345678\n");
    }
}
