//! What is true of every page: well-formed, the same twice, and harmless whatever is in it.

use super::{Axis, Groups, Lines, Page, Section, Style};
use cinnabar_text::chart::well_formed::{HOSTILE, assert_well_formed};
use cinnabar_text::{Table, Unit};

fn everything(text: &str) -> Page {
    let x = Axis::linear(text, Unit::Seconds);
    let y = Axis::log(text, Unit::Micros);
    let points = [(0.0, 10.0), (60.0, 2000.0), (120.0, 0.0), (180.0, 50.0)];
    let chart = Lines::new(text, x, y)
        .series(text, Style::Line, points)
        .series(text, Style::Dashed, points)
        .series(text, Style::Steps, points)
        .series(text, Style::Points, points)
        .limit(30.0, text);
    let bars = Groups::new(text, text, Unit::Bytes, &[text, text]).group(text, [4096.0, f64::NAN]);
    let table = Table::new(1, &[text, text]).caption(text).row([text, text]);
    let section = Section::new(text).text(text).table(table).chart(chart).bars(bars);
    Page::new(text, text).section(section)
}

fn body_of(page: &Page) -> String {
    let html = page.to_html();
    html.strip_prefix("<!DOCTYPE html>\n").expect("it says what it is").to_owned()
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
        let chart = Lines::new(title, axis(), axis());
        names.iter().fold(chart, |chart, name| chart.series(*name, Style::Steps, points))
    };
    let bars = Groups::new("bars", "", Unit::Count, &["c"]).group("g", [1.0]);
    let first = Section::new("").chart(line("one", &["a", "b"])).bars(bars);
    let second = Section::new("").chart(line("two", &["b"])).chart(line("three", &["d", "c"]));
    let html = Page::new("t", "").section(first).section(second).to_html();
    let [ab, c, b, other] = colours_of(&html).try_into().expect("four drawings");
    assert_eq!((ab.len(), c.len(), b.len(), other.len()), (2, 1, 1, 2));
    assert!(b.is_subset(&ab), "one name, one colour: {ab:?} {b:?}");
    assert!(c.is_disjoint(&ab) && c.is_subset(&other), "{ab:?} {c:?} {other:?}");
    assert!(other.is_disjoint(&ab));
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
    let chart = Lines::new(title, axis(), axis()).series("a", Style::Line, [(0.0, 1.0)]);
    let html = Page::new("t", "").section(Section::new("").chart(chart)).to_html();
    let bold = |text: &str| html.contains(&format!("font-weight=\"bold\">{text}"));
    assert!(bold("Read latency") && !bold(title), "{html}");
}
