//! The figures in what a benchmark printed: each number under a name that is the same in every run.

use std::collections::BTreeMap;

/// Numbers by name, in the order in which they were printed.
pub(super) type Figures = BTreeMap<(usize, String), f64>;

/// Reads a benchmark's output. A cell of a Markdown table is named by its row and column, every other
/// number by its line without the numbers. Names repeat only where the output repeats them: such
/// figures are distinguished by their count.
pub(super) fn read(text: &str) -> Figures {
    let mut figures = Figures::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut put = |name: String, value: f64| {
        let count = seen.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        let name = if *count == 1 { name } else { format!("{name} ({count})") };
        let place = figures.len();
        figures.insert((place, name), value);
    };
    let mut heading: Option<Vec<String>> = None;
    for line in text.lines() {
        let Some(cells) = cells(line) else {
            heading = None;
            for (name, value) in of_line(line) {
                put(name, value);
            }
            continue;
        };
        let Some(columns) = &heading else {
            heading = Some(cells);
            continue;
        };
        let (row, rest) = cells.split_first().expect("a table's line has cells");
        for (column, cell) in columns.iter().skip(1).zip(rest) {
            // The first number of a cell counts: what follows is its unit or a remark.
            if let Some(value) = numbers(cell).first().map(|found| found.1) {
                put(format!("{}: {row}: {column}", columns[0]), value);
            }
        }
    }
    figures
}

/// The cells of a line of a Markdown table; of its rule, none with a number.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// A name for each number of a line of text: the line, with `#` for the number and `*` for others.
fn of_line(line: &str) -> Vec<(String, f64)> {
    let found = numbers(line);
    let name = |chosen: usize| {
        let mut name = String::new();
        let mut end = 0;
        for (index, (range, _)) in found.iter().enumerate() {
            name.push_str(&line[end..range.start]);
            name.push(if index == chosen { '#' } else { '*' });
            end = range.end;
        }
        name.push_str(&line[end..]);
        name
    };
    (0..found.len()).map(|index| (name(index), found[index].1)).collect()
}

/// Numbers and where they stand; digits that are part of a word (`p50`, `QD32`) are none.
fn numbers(text: &str) -> Vec<(std::ops::Range<usize>, f64)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'.');
        if !bytes[at].is_ascii_digit() || in_word {
            at += 1;
            continue;
        }
        let mut end = at;
        while end < bytes.len() && (bytes[end].is_ascii_digit() || bytes[end] == b'.') {
            end += 1;
        }
        let number = text[at..end].trim_end_matches('.');
        let end = at + number.len();
        if let Ok(value) = number.parse() {
            found.push((at..end, value));
        }
        at = end.max(at + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn cells_are_named_by_row_and_column_and_lines_by_their_words() {
        let text = "hit, batches of 32: lookup 41 ns\n\n| tmpfs | IOPS QD1 | CPU |\n| --- | --: | --: |\n\
                    | ours, QD1 | 100 | 3.5 us |\n| raw | 200 | - |\n";
        let figures: Vec<_> =
            read(text).into_iter().map(|((_, name), value)| (name, value)).collect();
        let expected = [
            ("hit, batches of #: lookup * ns", 32.0),
            ("hit, batches of *: lookup # ns", 41.0),
            ("tmpfs: ours, QD1: IOPS QD1", 100.0),
            ("tmpfs: ours, QD1: CPU", 3.5),
            ("tmpfs: raw: IOPS QD1", 200.0),
        ];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn a_name_that_repeats_is_counted() {
        let figures = read("CPU 3 us\nCPU 4 us\n");
        let names: Vec<_> = figures.keys().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["CPU # us", "CPU # us (2)"]);
    }
}
