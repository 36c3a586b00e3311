//! Writing data to stdout, for people and for programs.
//!
//! A reader that goes away early (`| head`) ends the command quietly.

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

/// Columns of the terminal that stdout is; `None` for files and pipes, which get all there is.
fn terminal_width() -> Option<usize> {
    // Tests must not depend on where they are started.
    if cfg!(test) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Narrower than this, a text in several lines reads worse than one that the terminal cuts.
const WRAPPED_MIN: usize = 20;

/// A table with a header; all columns but the first `left` are flushed right.
pub(super) struct Table {
    left: usize,
    least: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(super) fn new(left: usize, header: &[&str]) -> Self {
        let header = header.iter().map(|cell| (*cell).to_owned()).collect();
        Self { left, least: &[], rows: vec![header] }
    }

    /// Names the columns that a narrow terminal does without, those that matter least first.
    pub(super) fn least(self, least: &'static [&'static str]) -> Self {
        Self { least, ..self }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The text, as wide as the terminal at most if that can be done.
    pub(super) fn render(&self) -> String {
        self.render_within(terminal_width())
    }

    fn render_within(&self, room: Option<usize>) -> String {
        let mut columns = self.columns();
        let mut hidden = Vec::new();
        for name in self.least {
            let at = columns
                .iter()
                .position(|(column, _)| self.rows[0].get(*column).is_some_and(|it| it == name));
            if let Some(at) = at.filter(|_| room.is_some_and(|room| total(&columns) > room)) {
                hidden.push(columns.remove(at).0);
            }
        }
        let room = room.filter(|room| total(&columns) > *room);
        let mut text = String::new();
        for row in &self.rows {
            text += &self.line(row, &columns, room);
        }
        hidden.sort_unstable();
        if !hidden.is_empty() {
            let names: Vec<&str> =
                hidden.iter().map(|column| self.rows[0][*column].as_str()).collect();
            text += &["(a wider terminal has ", &names.join(", "), ", too)\n"].concat();
        }
        text
    }

    /// Numbers of all columns, and their widths.
    fn columns(&self) -> Vec<(usize, usize)> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(|column| (column, width(column))).collect()
    }

    /// A row; its last column, if that is text, goes on below itself where there is no room.
    fn line(&self, row: &[String], columns: &[(usize, usize)], room: Option<usize>) -> String {
        let mut line = String::new();
        for (index, (column, width)) in columns.iter().enumerate() {
            let Some(cell) = row.get(*column) else { break };
            line += if index == 0 { "" } else { "  " };
            let gap = " ".repeat(width - cell.chars().count());
            if *column >= self.left {
                line += &gap;
                line += cell;
                continue;
            }
            let begin = line.chars().count();
            let left =
                room.map(|room| room.saturating_sub(begin)).filter(|left| *left >= WRAPPED_MIN);
            match left.filter(|_| index + 1 == columns.len()) {
                Some(left) => line += &wrapped(cell, left, begin),
                None => line = [line.as_str(), cell, &gap].concat(),
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

/// Width of a row.
fn total(columns: &[(usize, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2)
}

/// A text in lines of at most `room` characters, cut between words; all but the first begin `indent`
/// columns in.
fn wrapped(text: &str, room: usize, indent: usize) -> String {
    let (mut all, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > room {
            all += "\n";
            all += &" ".repeat(indent);
            length = 0;
        } else if length > 0 {
            all.push(' ');
            length += 1;
        }
        all += word;
        length += more;
    }
    all
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

    #[test]
    fn a_narrow_terminal_does_without_what_matters_least() {
        let mut table =
            Table::new(1, &["NAME", "SHARE", "HITS", "READS"]).least(&["READS", "SHARE"]);
        table.row(vec!["vm1".into(), "0..100%".into(), "50.0%".into(), "1234".into()]);
        let whole = "NAME    SHARE   HITS  READS\nvm1   0..100%  50.0%   1234\n";
        assert_eq!(table.render_within(None), whole);
        assert_eq!(table.render_within(Some(27)), whole);
        let less =
            "NAME    SHARE   HITS\nvm1   0..100%  50.0%\n(a wider terminal has READS, too)\n";
        assert_eq!(table.render_within(Some(26)), less);
        let least = "NAME   HITS\nvm1   50.0%\n(a wider terminal has SHARE, READS, too)\n";
        assert_eq!(table.render_within(Some(12)), least);
        assert_eq!(table.render_within(Some(3)), least, "names and hits stay");
    }

    #[test]
    fn long_facts_go_on_below_themselves() {
        let mut table = Table::new(2, &["cache", "cache.img"]);
        table.row(vec!["state".into(), "serving, with words enough to go on".into()]);
        let text = "cache  cache.img\nstate  serving, with words\n       enough to go on\n";
        assert_eq!(table.render_within(Some(27)), text);
    }
}
