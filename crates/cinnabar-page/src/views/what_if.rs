//! What would be with another size of the cache, or another allocator: answered from the sampled
//! curves, without changing anything.

use crate::data::{Data, WhatIf};
use crate::facts::{UNKNOWN, change, size};
use crate::html::{Grid, el, escaped, in_url, section, wrap};
use crate::plans::{Compared, compared};
use crate::views::{link_to, trouble};
use crate::{ROWS_FIRST, actions, charts};
use cinnabar_policy::sizing::Allocator;
use cinnabar_text::percent;

/// Curves end at so many times the cache: what is larger can't be told apart.
const CURVES_REACH: u64 = 2;

pub(crate) fn html(data: &Data) -> String {
    let Some(what_if) = &data.what_if else { return String::new() };
    let mut html = section("ask", "Another size, or another allocator", &form(data, what_if));
    let reason = what_if.wrong.as_ref().or(what_if.now.as_ref().err());
    if let Some(reason) = reason.or(what_if.then.as_ref().err()) {
        return html + &section("answer", "Answer", &trouble(reason));
    }
    html += &section("answer", "Answer", &answer(data, what_if));
    let apply = el(
        "p class=\"hint\"",
        "Applying a plan divides the cache as large as it is. Its size is changed with \
         cinnabar cache resize SIZE.",
    );
    let apply = apply + &actions::of_plan(data, what_if.allocator.as_deref());
    html + &section("apply", "Carry it out", &apply)
}

fn form(data: &Data, what_if: &WhatIf) -> String {
    let capacity = what_if.now.as_ref().map_or(0, |plan| plan.capacity_bytes);
    let asked = what_if.size_bytes.unwrap_or(capacity);
    let option = |one: &str, label: &str| {
        let chosen =
            if what_if.allocator.as_deref().unwrap_or_default() == one { " selected" } else { "" };
        format!("<option value=\"{one}\"{chosen}>{label}</option>")
    };
    let options: String = std::iter::once(option("", "the current one"))
        .chain(Allocator::ALL.iter().map(|one| option(one.name(), one.name())))
        .collect();
    let text = if asked == 0 { String::new() } else { cinnabar_text::write_size(asked) };
    let choice = |times: &u64| {
        let bytes = capacity / 4 * times;
        let allocator =
            what_if.allocator.as_deref().map(in_url).map(|one| format!("&allocator={one}"));
        let href = format!("/ui/what-if?size={bytes}{}", allocator.unwrap_or_default());
        let href = escaped(&href);
        // Of a size that is no multiple of four the quarter was cut.
        let current = if size(bytes) == size(asked) { " aria-current=\"true\"" } else { "" };
        wrap("li", &wrap(&format!("a href=\"{href}\"{current}"), &size(bytes)))
    };
    let times: &[u64] = if capacity == 0 { &[] } else { &[1, 2, 4, 8] };
    let choices: String = times.iter().map(choice).collect();
    let words = format!(
        "Now it is {}. Expected hits are those of a cache that keeps everything, from sampled \
         accesses of {} volumes.",
        if capacity == 0 { UNKNOWN.to_owned() } else { size(capacity) },
        data.report.volumes.len()
    );
    format!(
        "<form class=\"filter\" id=\"what-if\" method=\"get\" action=\"/ui/what-if\">\
         <label>Room for data <input name=\"size\" maxlength=\"24\" value=\"{}\"></label> \
         <label>Allocator <select name=\"allocator\">{options}</select></label> \
         <button>Answer</button></form>\n<ul class=\"choices\">{choices}</ul>{}",
        escaped(&text),
        el("p class=\"hint\"", &words)
    )
}

/// The part of all reads that hit.
fn together(rows: &[Compared], of: impl Fn(&Compared) -> f64) -> Option<f64> {
    let reads: u64 = rows.iter().map(|row| row.reads).sum();
    let hits: f64 = rows.iter().map(|row| of(row) * row.reads as f64).sum();
    (reads > 0 && hits.is_finite()).then(|| hits / reads as f64)
}

fn answer(data: &Data, what_if: &WhatIf) -> String {
    let rows = compared(what_if);
    let or_unknown = |part: Option<f64>| part.map_or_else(|| UNKNOWN.to_owned(), percent);
    let now = together(&rows, |row| row.now);
    let then = together(&rows, |row| row.then);
    let words = format!(
        "{} of all reads are expected to hit now, {} would then.",
        or_unknown(now),
        or_unknown(then)
    );
    let capacity = what_if.now.as_ref().map_or(0, |plan| plan.capacity_bytes);
    let beyond = what_if.size_bytes.filter(|asked| *asked > capacity.saturating_mul(CURVES_REACH));
    let note = beyond.map(|_| {
        format!(
            "Accesses are remembered for up to {}, {CURVES_REACH} times the cache: what a larger one \
             would hit beyond that is not known, and not counted here.",
            size(capacity.saturating_mul(CURVES_REACH))
        )
    });
    let note = note.map(|text| el("p class=\"note\" id=\"what-if-beyond\"", &text));
    let columns = [
        ("Volume", false),
        ("Share now", true),
        ("Share then", true),
        ("Expected hits now", true),
        ("Then", true),
        ("Change", true),
    ];
    let mut grid = Grid::new("what-if-table", "As it is, and as it would be", &columns);
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| UNKNOWN.to_owned(), size);
    for row in rows.iter().take(ROWS_FIRST) {
        grid.row(vec![
            link_to(data, &row.volume),
            bytes(row.shares[0]),
            bytes(row.shares[1]),
            percent(row.now),
            percent(row.then),
            change(row.then - row.now),
        ]);
    }
    el("p id=\"what-if-answer\"", &words)
        + &note.unwrap_or_default()
        + &charts::beside(&["what-if"], data, &grid.html())
}
