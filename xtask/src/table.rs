//! Tables in Markdown, for the terminal and for `docs/`.

/// Rows under a heading, the first column to the left and the others to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub(crate) fn new<T: ToString>(heading: &[T]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row; it has as many cells as the heading.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|column| {
                self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            line(&mut text, &cells);
            if number == 0 {
                let rules: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(column, &width)| match column {
                        0 => "-".repeat(width),
                        _ => format!("{}:", "-".repeat(width.saturating_sub(1).max(1))),
                    })
                    .collect();
                line(&mut text, &rules);
            }
        }
        text
    }
}

fn line(text: &mut String, cells: &[String]) {
    text.push_str("| ");
    text.push_str(&cells.join(" | "));
    text.push_str(" |\n");
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "IOPS"]);
        table.row(vec!["a".into(), "12345".into()]);
        assert_eq!(table.render(), "| name |  IOPS |\n| ---- | ----: |\n| a    | 12345 |\n");
    }
}
