//! Parts of HTML pages that reports and the page of the daemon share.
//!
//! All text goes through `escaped`.

use crate::Table;
use crate::chart::escape::escaped;
use std::fmt::Write;

/// A table of so many columns needs no folding.
const FOLDED_FROM: usize = 3;
/// More rows are a list that nobody reads as blocks: they scroll, the first column stays.
const FOLDED_ROWS_MAX: usize = 40;
/// More rows are behind the table's caption, if it has one.
const OPEN_ROWS_MAX: usize = 40;

/// A long table with a caption is behind that: who wants to see it opens it.
pub fn table(table: &Table) -> String {
    if table.rows.len() <= OPEN_ROWS_MAX || table.caption.is_empty() {
        return open_table(table, &table.caption);
    }
    let mut html = String::from("<details>");
    push(&mut html, "summary class=\"caption\"", &table.caption);
    html + &open_table(table, "") + "</details>\n"
}

/// A table in a place of its own, which scrolls if the table is wider. On a narrow screen rows that
/// are not too many fold: a row is a block, a cell a line of it, behind the name of its column.
fn open_table(table: &Table, caption: &str) -> String {
    let folds = table.header.len() > FOLDED_FROM && table.rows.len() <= FOLDED_ROWS_MAX;
    let class = if folds { "wide fold" } else { "wide" };
    let mut html = format!("<div class=\"{class}\" tabindex=\"0\">");
    if !caption.is_empty() {
        push(&mut html, "p class=\"caption\"", caption);
    }
    html += "<table>\n";
    let class = |column: usize| if column < table.left { "" } else { " class=\"number\"" };
    html += "<thead><tr>";
    for (column, cell) in table.header.iter().enumerate() {
        push(&mut html, &format!("th scope=\"col\"{}", class(column)), cell);
    }
    html += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let name = table.header.get(column).filter(|name| folds && !name.is_empty());
            let name =
                name.map_or(String::new(), |name| format!(" data-name=\"{}\"", escaped(name)));
            push(&mut html, &format!("td{}{name}", class(column)), cell);
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table></div>\n"
}

/// An element with text in it; `tag` is its name and its attributes.
pub fn push(html: &mut String, tag: &str, text: &str) {
    let name = tag.split(' ').next().unwrap_or(tag);
    writeln!(html, "<{tag}>{}</{name}>", escaped(text)).expect("a string takes everything");
}
