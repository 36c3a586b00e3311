//! The one table: rows under a header, as text for a terminal; pages have it as HTML.

use crate::shown;

/// Narrower than this, a text in several lines reads worse than one that the terminal cuts.
const WRAPPED_MIN: usize = 20;

/// Rows under a header; all columns but the first `left` are flushed right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows; may be empty, and is left out in text.
    pub caption: String,
    /// How many columns are text.
    pub left: usize,
    /// Names of the columns.
    pub header: Vec<String>,
    /// The cells; rows may be shorter than the header.
    pub rows: Vec<Vec<String>>,
    /// Columns that narrow text does without, those that matter least first.
    pub least: &'static [&'static str],
}

impl Table {
    /// A table without rows, the first `left` columns of which are text, the others numbers.
    pub fn new<T: AsRef<str>>(left: usize, header: &[T]) -> Self {
        let header = header.iter().map(|cell| cell.as_ref().to_owned()).collect();
        Self { left, header, ..Self::default() }
    }

    /// With a line above that says what it shows.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Names the columns that a narrow terminal does without, those that matter least first.
    #[must_use]
    pub fn least(self, least: &'static [&'static str]) -> Self {
        Self { least, ..self }
    }

    /// With one more row.
    #[must_use]
    pub fn row<T: Into<String>>(mut self, row: impl IntoIterator<Item = T>) -> Self {
        self.rows.push(row.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table as text of at most `room` columns, if that can be done; `None`: all there is. Characters of
    /// its cells that can't be seen are [written out](shown()).
    pub fn render(&self, room: Option<usize>) -> String {
        let cells = |row: &Vec<String>| row.iter().map(|cell| shown(cell).into_owned()).collect();
        let rows = self.rows.iter().map(cells).collect();
        let (header, left, least) = (self.header.clone(), self.left, self.least);
        Self { left, header, rows, least, ..Self::default() }.rendered(room)
    }

    fn rendered(&self, room: Option<usize>) -> String {
        let mut columns = self.columns();
        let mut hidden = Vec::new();
        for name in self.least {
            let at = columns
                .iter()
                .position(|(column, _)| self.header.get(*column).is_some_and(|it| it == name));
            if let Some(at) = at.filter(|_| room.is_some_and(|room| total(&columns) > room)) {
                hidden.push(columns.remove(at).0);
            }
        }
        let room = room.filter(|room| total(&columns) > *room);
        let mut text = String::new();
        for row in self.all() {
            text += &self.line(row, &columns, room);
        }
        hidden.sort_unstable();
        if !hidden.is_empty() {
            let names: Vec<&str> =
                hidden.iter().map(|column| self.header[*column].as_str()).collect();
            text += &["(a wider terminal has ", &names.join(", "), ", too)\n"].concat();
        }
        text
    }

    /// The header and the rows.
    fn all(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.header).chain(&self.rows)
    }

    /// Numbers of all columns, and their widths.
    fn columns(&self) -> Vec<(usize, usize)> {
        let columns = self.all().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.all().filter_map(|row| row.get(column));
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

    /// Rows could be made to look like others.
    #[test]
    fn a_cell_shows_what_is_in_it() {
        let table = Table::new(1, &["name", "n"]);
        let table = table.row(["vm1", "1"]).row(["\u{202E}1mv", "2"]).row(["vm1\u{200B}", "3"]);
        let text = "name         n\nvm1          1\n\\u{202e}1mv  2\nvm1\\u{200b}  3\n";
        assert_eq!(table.render(None), text);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, &["NAME", "READS"]);
        table.push(vec!["vm1".into(), "7".into()]);
        table.push(vec!["größer".into(), "12345678".into()]);
        assert_eq!(table.render(None), "NAME       READS\nvm1            7\ngrößer  12345678\n");
    }

    #[test]
    fn a_narrow_terminal_does_without_what_matters_least() {
        let mut table =
            Table::new(1, &["NAME", "SHARE", "HITS", "READS"]).least(&["READS", "SHARE"]);
        table.push(vec!["vm1".into(), "0..100%".into(), "50.0%".into(), "1234".into()]);
        let whole = "NAME    SHARE   HITS  READS\nvm1   0..100%  50.0%   1234\n";
        assert_eq!(table.render(None), whole);
        assert_eq!(table.render(Some(27)), whole);
        let less =
            "NAME    SHARE   HITS\nvm1   0..100%  50.0%\n(a wider terminal has READS, too)\n";
        assert_eq!(table.render(Some(26)), less);
        let least = "NAME   HITS\nvm1   50.0%\n(a wider terminal has SHARE, READS, too)\n";
        assert_eq!(table.render(Some(12)), least);
        assert_eq!(table.render(Some(3)), least, "names and hits stay");
    }

    #[test]
    fn long_facts_go_on_below_themselves() {
        let mut table = Table::new(2, &["cache", "cache.img"]);
        table.push(vec!["state".into(), "serving, with words enough to go on".into()]);
        let text = "cache  cache.img\nstate  serving, with words\n       enough to go on\n";
        assert_eq!(table.render(Some(27)), text);
    }
}
