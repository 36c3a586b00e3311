//! A page as HTML: one file, nothing to load, nothing that runs.
//!
//! All text goes through `escaped`; charts escape their own.

use super::escape::escaped;
use super::{Page, Part, Section, Table};
use std::fmt::Write;

/// Looks; dark where the reader prefers it, light on paper.
const STYLE: &str = include_str!("style.css");
/// Even if something slipped through: no script, no resource from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

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
    for section in &page.sections {
        html += &self::section(section);
    }
    html + "</main>\n</body>\n</html>\n"
}

fn section(section: &Section) -> String {
    let mut html = String::from("<section>\n");
    if !section.heading.is_empty() {
        push(&mut html, "h2", &section.heading);
    }
    for part in &section.parts {
        match part {
            Part::Text(text) => push(&mut html, "p", text),
            Part::Preformatted(text) => push(&mut html, "pre", text),
            Part::Table(table) => html += &self::table(table),
            Part::Chart(chart) => figure(&mut html, &chart.to_svg()),
            Part::Bars(bars) => figure(&mut html, &bars.to_svg()),
        }
    }
    html + "</section>\n"
}

fn table(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    if !table.caption.is_empty() {
        push(&mut html, "caption", &table.caption);
    }
    let class = |column: usize| if column < table.left { "" } else { " class=\"number\"" };
    html += "<thead><tr>";
    for (column, cell) in table.header.iter().enumerate() {
        push(&mut html, &format!("th scope=\"col\"{}", class(column)), cell);
    }
    html += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            push(&mut html, &format!("td{}", class(column)), cell);
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
