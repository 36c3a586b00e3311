//! A page as HTML: one file, nothing to load, nothing that runs.
//!
//! All text goes through `escaped`; charts and tables escape their own.

use super::{Page, Part, Section};
use cinnabar_text::chart::html::{push, table};
use cinnabar_text::chart::{CSS, Colours, escaped};

/// Looks; dark where the reader prefers it, light on paper.
const STYLE: &str = include_str!("style.css");
/// Even if something slipped through: no script, no resource from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(super) fn page(page: &Page) -> String {
    let title = escaped(&page.title);
    let version = env!("CARGO_PKG_VERSION");
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"generator\" content=\"cinnabar {version}\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}{CSS}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n"
    );
    if !page.subtitle.is_empty() {
        push(&mut html, "p class=\"subtitle\"", &page.subtitle);
    }
    html += "</header>\n<main>\n";
    let parts = page.sections.iter().flat_map(|section| &section.parts);
    let colours = parts.flat_map(Part::names).fold(Colours::default(), Colours::with_name);
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
    let is_chart = |part: &Part| matches!(part, Part::Lines(_) | Part::Bars(_));
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
        Part::Table(table) => *html += &self::table(table),
        Part::Lines(_) | Part::Bars(_) => {
            *html += "<figure>\n";
            *html += &part.svg(Some(colours)).unwrap_or_default();
            *html += "</figure>\n";
        }
    }
}
