//! What happened, with reasons, the newest first.

use crate::data::Data;
use crate::html::{Grid, el, escaped, name, section};
use crate::views::link_to;
use crate::words::moment;
use cinnabar_config::history::EventReport;

/// Events that are shown; all of them on request.
const EVENTS_FIRST: usize = 100;

pub(crate) fn html(data: &Data) -> String {
    let filter = format!(
        "<form class=\"filter\" id=\"event-filter\" method=\"get\" action=\"/ui/events\" role=\"search\">\
         <label>Only events with <input type=\"search\" name=\"filter\" maxlength=\"64\" value=\"{}\"></label> \
         <button>Show</button></form>\n",
        escaped(&data.filter)
    );
    section("events", "Events since the daemon started", &(filter + &table(data)))
}

/// The word of a kind, as the control API has it.
fn kind(event: &EventReport) -> String {
    let kind = serde_json::to_value(event.kind).unwrap_or_default();
    kind.as_str().unwrap_or_default().replace('_', " ")
}

/// What changed, in words.
fn change(event: &EventReport) -> String {
    match (&event.before, &event.after, &event.plan) {
        (_, _, Some(plan)) => format!(
            "{} for {} volumes, {}",
            plan.allocator,
            plan.volumes,
            if plan.applied { "carried out" } else { "not carried out" }
        ),
        (Some(before), Some(after), None) => format!("{before} \u{2192} {after}"),
        (Some(one), None, None) | (None, Some(one), None) => one.clone(),
        (None, None, None) => String::new(),
    }
}

/// Whether it has the word that is looked for.
fn has(event: &EventReport, word: &str) -> bool {
    let texts =
        [Some(kind(event)), event.volume.clone(), Some(change(event)), event.reason.clone()];
    let word = word.to_lowercase();
    texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&word))
}

fn table(data: &Data) -> String {
    let columns = [
        ("When (UTC)", false),
        ("What", false),
        ("Volume", false),
        ("Change", false),
        ("Why", false),
    ];
    let mut grid = Grid::new("event-table", "Events, the newest first", &columns);
    let shown = data.events.iter().rev().filter(|event| has(event, &data.filter));
    let all = shown.clone().count();
    let most = if data.all_rows { usize::MAX } else { EVENTS_FIRST };
    for event in shown.take(most) {
        let volume = event.volume.as_deref();
        let served = volume.filter(|name| data.report.volumes.iter().any(|one| one.name == **name));
        let volume = match (served, volume) {
            (Some(served), _) => link_to(data, served),
            (None, Some(gone)) => name(gone),
            (None, None) => String::new(),
        };
        grid.row_with(
            format!(" data-kind=\"{}\"", escaped(&kind(event).replace(' ', "_"))),
            vec![
                moment(event.at_ms),
                escaped(&kind(event)),
                volume,
                escaped(&change(event)),
                escaped(event.reason.as_deref().unwrap_or_default()),
            ],
        );
    }
    if grid.is_empty() {
        return el("p id=\"no-events\"", "None, as far as they are kept (the newest 1024).");
    }
    let more = if all > most {
        let query = crate::html::in_url(&data.filter);
        let link = format!("/ui/events?filter={query}&rows=all");
        format!(
            "<p>The newest {most} of {all}: <a class=\"all-rows\" href=\"{}\">show all {all}</a></p>",
            escaped(&link)
        )
    } else {
        String::new()
    };
    grid.html() + &more
}
