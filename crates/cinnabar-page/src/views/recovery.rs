//! What the last start found on the device, and the journal since.

use crate::data::Data;
use crate::facts::{Facts, number, size_of};
use crate::html::{Grid, el, escaped, pairs, section, wrap};
use crate::views::{all_rows, link_to};
use crate::words::warmth as warmth_words;
use crate::{ROWS_FIRST, alerts};
use cinnabar_config::status::report::{HealthReport, LoadedReport, StartKind};
use cinnabar_text::Unit;

pub(crate) fn html(data: &Data, facts: &Facts) -> String {
    [
        section("health", "Now", &health(data, facts)),
        section("start", "The last start", &start(data)),
        section("warmth", "What volumes kept", &warmth(data)),
        section("journal", "Journal", &journal(facts)),
        write_log(data),
    ]
    .concat()
}

fn health(data: &Data, facts: &Facts) -> String {
    let words = match &data.report.cache.health {
        HealthReport::Opening => "The device is being opened.".to_owned(),
        HealthReport::Loading { pages, of } => {
            format!(
                "The index is being loaded: {pages} of {of} pages. Requests pass through meanwhile."
            )
        }
        HealthReport::Serving => "The device is in use.".to_owned(),
        HealthReport::PassThrough { reason } => {
            format!("The device is not in use, requests pass through: {reason}.")
        }
        HealthReport::Closed => "The device is closed.".to_owned(),
    };
    let rows = [
        ("State", facts.html("cache:state")),
        ("Device", escaped(&words)),
        ("Times it was lost", facts.html("cache:device_losses")),
        ("Times it was replaced", facts.html("cache:device_replacements")),
    ];
    let alerts = alerts::alerts(data);
    pairs("health-facts", &rows) + &alerts::html(&alerts, "Everything works as configured.")
}

fn start(data: &Data) -> String {
    let Some(loaded) = &data.report.cache.loaded else {
        return el("p", "Nothing is known of it yet: no index was loaded.");
    };
    let LoadedReport { start, seconds, blocks, replayed_blocks, .. } = *loaded;
    let kind = match start {
        StartKind::New => "The device was new, or was used without crash safety.",
        StartKind::Clean => "The session before ended by a clean stop.",
        StartKind::Crashed => "The session before ended by a crash; the journal was replayed.",
        StartKind::Damaged => "Its metadata left doubts: everything was dropped.",
    };
    let counted = |blocks: u64| {
        format!("<data value=\"{blocks}\">{}</data> ({})", number(blocks), size_of(blocks))
    };
    let rows = [
        ("How", escaped(kind)),
        ("It took", Unit::Seconds.show(seconds)),
        ("Blocks cached then", counted(blocks)),
        ("Of those, newer than the checkpoint", counted(replayed_blocks)),
        ("Not believed: no flush covers them", counted(loaded.unflushed_blocks)),
        ("Dropped: in active regions", counted(loaded.doubtful_blocks)),
        ("Dropped: overwritten", counted(loaded.overwritten_blocks)),
        ("Metadata pages read", number(loaded.pages)),
        ("Damaged pages", number(loaded.damaged_pages)),
    ];
    pairs("start-facts", &rows)
}

fn warmth(data: &Data) -> String {
    let mut grid = Grid::new(
        "warmth-table",
        "Kept from the last run",
        &[("Volume", false), ("What became of its blocks", false)],
    );
    let rows = if data.all_rows { usize::MAX } else { ROWS_FIRST };
    for volume in data.report.volumes.iter().take(rows) {
        grid.row(vec![link_to(data, &volume.name), escaped(&warmth_words(volume))]);
    }
    let all = data.report.volumes.len();
    grid.html() + &all_rows(data, "/ui/recovery", all.min(rows), all)
}

fn journal(facts: &Facts) -> String {
    let rows = [
        ("Records", facts.html("cache:journal_records")),
        ("Durable writes", facts.html("cache:journal_writes")),
        ("Rewritten to make room", facts.html("cache:journal_rebases")),
        ("Active regions", facts.html("cache:active_regions")),
        ("What a crash would cost, at most", facts.html("cache:doubt_blocks")),
        ("Checkpoints", facts.html("cache:checkpoints")),
    ];
    pairs("journal-facts", &rows)
}

fn write_log(data: &Data) -> String {
    let Some(log) = &data.report.cache.write_log else { return String::new() };
    let mut rows = vec![
        ("Device", wrap("code", &escaped(&log.device))),
        (
            "Holds",
            format!(
                "{} of {}",
                crate::facts::size(log.used_bytes),
                crate::facts::size(log.size_bytes)
            ),
        ),
        ("Chunks", number(log.chunks)),
        ("Flushes", number(log.flushes)),
    ];
    for half in &log.halves {
        let state = serde_json::to_value(half.state).unwrap_or_default();
        let text =
            format!("{}: {} {}", half.device, state.as_str().unwrap_or_default(), half.reason);
        rows.push(("Half", escaped(&text)));
    }
    section("write-log", "Write log", &pairs("write-log-facts", &rows))
}
