//! What is true of every page: well-formed, the same twice, and harmless whatever is in it.

use super::{Axis, Bars, Chart, Page, Section, Style};
use cinnabar_text::{Table, Unit};

/// A name that wants to be markup wherever it is put.
pub(in crate::page) const HOSTILE: &str =
    "</td></pre></text></svg></title><script>alert(1)</script>\" onload='x' & \u{202E}\0]]>";

/// Panics unless the text is one element of XML: tags closed in order, attributes in quotes and
/// named once, only known entities, no character that XML forbids.
pub(in crate::page) fn assert_well_formed(text: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..);
    assert_eq!(text.find(|c| !allowed(c)), None, "a character that is none");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.trim();
    while let Some((before, behind)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a stray > in {before}");
        assert_entities(before);
        assert!(before.trim().is_empty() || !open.is_empty(), "text outside of everything");
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else {
            let (inner, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let (name, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "the tag <{tag}>");
            assert_attributes(attributes);
            if !empty {
                open.push(name);
            }
        }
        assert!(!open.is_empty() || rest.is_empty(), "one element: {rest}");
    }
    assert!(open.is_empty() && rest.is_empty(), "all closed: {open:?}");
}

fn assert_attributes(attributes: &str) {
    let mut rest = attributes.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").expect("an attribute has a value in quotes");
        let (value, behind) = behind.split_once('"').expect("quotes end");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "attribute {name}");
        assert!(!names.contains(&name), "{name} twice");
        assert_entities(value);
        names.push(name);
        rest = behind.trim_start();
    }
}

fn assert_entities(text: &str) {
    for entity in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "apos;", "#39;"];
        assert!(known.iter().any(|known| entity.starts_with(known)), "&{entity}");
    }
}

fn everything(text: &str) -> Page {
    let x = Axis::linear(text, Unit::Seconds);
    let y = Axis::log(text, Unit::Micros);
    let points = [(0.0, 10.0), (60.0, 2000.0), (120.0, 0.0), (180.0, 50.0)];
    let chart = Chart::new(text, x, y)
        .series(text, Style::Line, points)
        .series(text, Style::Dashed, points)
        .series(text, Style::Steps, points)
        .series(text, Style::Points, points)
        .limit(30.0, text)
        .event(90.0, text);
    let bars = Bars::new(text, text, Unit::Bytes, &[text, text]).group(text, [4096.0, f64::NAN]);
    let table = Table::new(1, &[text, text]).caption(text).row([text, text]);
    let section = Section::new(text).text(text).table(table).chart(chart).bars(bars);
    Page::new(text, text).section(section.preformatted(text))
}

fn body_of(page: &Page) -> String {
    let html = page.to_html();
    html.strip_prefix("<!DOCTYPE html>\n").expect("it says what it is").to_owned()
}

#[test]
fn the_checker_finds_what_is_wrong() {
    assert_well_formed("<a b=\"c\"><d/>text &amp; more</a>");
    for wrong in [
        "<a>",
        "<a></b>",
        "<a></a><b></b>",
        "<a b=c></a>",
        "<a b=\"1\" b=\"2\"></a>",
        "<a>&x</a>",
        "<a>></a>",
        "<a>\u{1}</a>",
        "text",
        "<a b=\"&\"></a>",
    ] {
        let found = std::panic::catch_unwind(|| assert_well_formed(wrong));
        assert!(found.is_err(), "{wrong} is not well-formed");
    }
}

#[test]
fn a_page_is_well_formed_and_the_same_twice() {
    let page = everything("cache of 25 %");
    assert_well_formed(&body_of(&page));
    assert_eq!(page.to_html(), everything("cache of 25 %").to_html());
    assert_well_formed(&body_of(&Page::default()));
    assert_well_formed(&body_of(&everything("")));
}

#[test]
fn hostile_text_is_shown_not_obeyed() {
    let html = body_of(&everything(HOSTILE));
    assert_well_formed(&html);
    for forbidden in ["<script", "]]>", " onload='", "\" onload", "\u{202E}", "\0"] {
        assert!(!html.contains(forbidden), "{forbidden:?}");
    }
    assert!(html.contains("<td>&lt;/td&gt;&lt;/pre&gt;"), "the name itself is there");
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    let html = everything("plain").to_html();
    let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for forbidden in
        ["<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", "//"]
    {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    for needed in ["lang=\"en\"", "charset=\"utf-8\"", "name=\"viewport\"", "default-src 'none'"] {
        assert!(html.contains(needed), "{needed}");
    }
}

#[test]
fn numbers_are_flushed_right() {
    let table = Table::new(1, &["volume", "reads"]).row(["vm1", "7"]);
    let html = Page::new("t", "").section(Section::new("").table(table)).to_html();
    assert!(html.contains("<td>vm1</td>\n<td class=\"number\">7</td>"), "{html}");
    assert!(html.contains("<th scope=\"col\" class=\"number\">reads</th>"), "{html}");
    assert!(!html.contains("class=\"caption\"") && !html.contains("class=\"subtitle\""));
}

/// The colours of what is drawn, by the number of the chart.
fn colours_of(html: &str) -> Vec<std::collections::BTreeSet<String>> {
    let colours = |svg: &str| {
        let after = svg.split("=\"#").skip(1).filter_map(|rest| rest.get(..6));
        after.map(str::to_owned).collect()
    };
    html.split("<svg").skip(1).map(colours).collect()
}

#[test]
fn one_colour_a_name_on_a_page_and_never_one_for_two() {
    let axis = || Axis::linear("", Unit::Count);
    let points = [(0.0, 1.0), (1.0, 2.0)];
    let line = |title: &str, names: &[&str]| {
        let chart = Chart::new(title, axis(), axis());
        names.iter().fold(chart, |chart, name| chart.series(*name, Style::Steps, points))
    };
    let bars = Bars::new("bars", "", Unit::Count, &["c"]).group("g", [1.0]);
    let first = Section::new("").chart(line("one", &["a", "b"])).bars(bars);
    let second = Section::new("").chart(line("two", &["b"])).chart(line("three", &["", "c"]));
    let html = Page::new("t", "").section(first).section(second).to_html();
    let [ab, c, b, other] = colours_of(&html).try_into().expect("four drawings");
    assert_eq!((ab.len(), c.len(), b.len(), other.len()), (2, 1, 1, 2));
    assert!(b.is_subset(&ab), "one name, one colour: {ab:?} {b:?}");
    assert!(c.is_disjoint(&ab) && c.is_subset(&other), "{ab:?} {c:?} {other:?}");
    assert!(other.is_disjoint(&ab), "what has no name is none of the others");
}

#[test]
fn every_table_scrolls_or_folds() {
    let row = |length: usize| vec!["1"; length];
    let table = |columns: usize, rows: usize| {
        (0..rows).fold(Table::new(1, &row(columns)), |table, _| table.row(row(columns)))
    };
    let section = Section::new("").table(table(2, 3)).table(table(14, 5)).table(table(9, 400));
    let html = Page::new("t", "").section(section).to_html();
    let before: Vec<&str> = html.split("<table>").collect();
    for before in &before[..3] {
        let place = before.rsplit_once("<div class=\"").expect("in a place of its own").1;
        assert!(place.starts_with("wide"), "{place}");
    }
    assert_eq!(html.matches("<table>").count(), 3);
    assert_eq!(html.matches("class=\"wide fold\"").count(), 1, "neither a small nor a long one");
    assert_eq!(html.matches("data-name=\"1\"").count(), 5 * 14, "each cell knows its column");
    assert!(html.contains(".wide { overflow-x: auto;"), "and the place scrolls");
    for rule in [".fold thead { display: none; }", "content: attr(data-name)", "position: sticky"] {
        assert!(html.contains(rule), "{rule}");
    }
}

#[test]
fn a_long_table_is_behind_its_caption() {
    let long = |rows: usize| {
        let table = Table::new(1, &["value", "is"]).caption("all of them");
        let table = (0..rows).fold(table, |table, row| table.row([format!("v{row}"), "1".into()]));
        Page::new("a page", "").section(Section::new("a section").table(table)).to_html()
    };
    assert!(long(41).contains("<details><summary class=\"caption\">all of them</summary>"));
    assert!(!long(40).contains("<details>"));
}

#[test]
fn a_bold_title_is_broken_before_it_leaves_the_chart() {
    let title = "Read latency by working-set size, with prefetch by the file server";
    let axis = || Axis::linear("", Unit::Count);
    let chart = Chart::new(title, axis(), axis()).series("a", Style::Line, [(0.0, 1.0)]);
    let html = Page::new("t", "").section(Section::new("").chart(chart)).to_html();
    assert!(
        html.contains("Read latency by working-set size") && !html.contains(&format!(">{title}<"))
    );
}
