//! A page as HTML: one file, nothing to load, nothing that runs.
//!
//! All text goes through `escaped`; charts escape their own.

use super::chart::Colours;
use super::escape::escaped;
use super::{Page, Part, Section, Table};
use std::fmt::Write;

/// Looks; dark where the reader prefers it, light on paper.
const STYLE: &str = include_str!("style.css");
/// Even if something slipped through: no script, no resource from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A table of so many columns needs no folding.
const FOLDED_FROM: usize = 3;
/// More rows are a list that nobody reads as blocks: they scroll, the first column stays.
const FOLDED_ROWS_MAX: usize = 40;
/// More rows are behind the table's caption, if it has one.
const OPEN_ROWS_MAX: usize = 40;

/// The whole file.
pub(super) fn page(page: &Page) -> String {
    let title = escaped(&page.title);
    let version = env!("CARGO_PKG_VERSION");
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"generator\" content=\"cinnabar {version}\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n"
    );
    if !page.subtitle.is_empty() {
        push(&mut html, "p class=\"subtitle\"", &page.subtitle);
    }
    html += "</header>\n<main>\n";
    let parts = page.sections.iter().flat_map(|section| &section.parts);
    let colours = parts.fold(Colours::default(), |colours, part| match part {
        Part::Chart(chart) => colours.with_chart(chart),
        Part::Bars(bars) => colours.with_bars(bars),
        Part::Text(_) | Part::Preformatted(_) | Part::Table(_) => colours,
    });
    for section in &page.sections {
        html += &self::section(section, &colours);
    }
    html + "</main>\n</body>\n</html>\n"
}

fn section(section: &Section, colours: &Colours) -> String {
    let mut html = String::from("<section>\n");
    if !section.heading.is_empty() {
        push(&mut html, "h2", &section.heading);
    }
    let is_chart = |part: &Part| matches!(part, Part::Chart(_) | Part::Bars(_));
    // Charts in a row stand side by side where there is room.
    for parts in section.parts.chunk_by(|one, next| is_chart(one) && is_chart(next)) {
        let charts = parts.first().is_some_and(is_chart);
        html += if charts { "<div class=\"charts\">\n" } else { "" };
        for part in parts {
            push_part(&mut html, part, colours);
        }
        html += if charts { "</div>\n" } else { "" };
    }
    html + "</section>\n"
}

fn push_part(html: &mut String, part: &Part, colours: &Colours) {
    match part {
        Part::Text(text) => push(html, "p", text),
        Part::Preformatted(text) => push(html, "pre", text),
        Part::Table(table) => *html += &self::table(table),
        Part::Chart(chart) => figure(html, &chart.to_svg_in(colours)),
        Part::Bars(bars) => figure(html, &bars.to_svg_in(colours)),
    }
}

/// A long table with a caption is behind that: who wants to see it opens it.
fn table(table: &Table) -> String {
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

fn figure(html: &mut String, svg: &str) {
    html.push_str("<figure>\n");
    html.push_str(svg);
    html.push_str("</figure>\n");
}

/// An element with text in it; `tag` is its name and its attributes.
fn push(html: &mut String, tag: &str, text: &str) {
    let name = tag.split(' ').next().unwrap_or(tag);
    writeln!(html, "<{tag}>{}</{name}>", escaped(text)).expect("a string takes everything");
}
