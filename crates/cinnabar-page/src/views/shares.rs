//! How the cache is divided, over time, and why each share moved.

use crate::data::Data;
use crate::facts::{UNKNOWN, change, size};
use crate::html::{Grid, el, escaped, name, section};
use crate::plans::moves_of;
use crate::views::{all_rows, link_to, trouble};
use crate::words::moment;
use crate::{ROWS_FIRST, actions, charts};
use cinnabar_manager::report::{PlanReport, ShareReport};
use cinnabar_text::{Unit, percent};

/// Moves that are shown.
const MOVES_MAX: usize = 100;

pub(crate) fn html(data: &Data) -> String {
    let charts = charts::all(&["shares", "held"], data);
    let mut html = section("over-time", "Over time", &charts);
    match &data.plans {
        Err(reason) => html += &section("plan", "Plan", &trouble(reason)),
        Ok(history) => {
            html += &section("moves", "Moves, and why", &moves(data, &history.plans));
            html += &section("plan", "The newest plan", &plan(data));
            html += &section("apply", "Plan now", &actions::of_plan(data, None));
        }
    }
    html
}

fn or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), size)
}

fn moves(data: &Data, plans: &[PlanReport]) -> String {
    let columns =
        [("When (UTC)", false), ("Volume", false), ("From", true), ("To", true), ("Why", false)];
    let mut grid = Grid::new("moves-table", "Moves of shares, the newest first", &columns);
    let range = data.range.from_ms..=data.range.to_ms;
    let plans = plans.iter().rev();
    let plans = plans.filter(|plan| plan.applied && range.contains(&plan.made_ms));
    let moves = plans.flat_map(|plan| moves_of(plan).map(move |share| (plan, share)));
    for (plan, share) in moves.take(MOVES_MAX) {
        grid.row(vec![
            moment(plan.made_ms),
            link_to(data, &share.volume),
            or_unknown(share.before_bytes),
            or_unknown(share.target_bytes),
            escaped(&why(plan, share)),
        ]);
    }
    if grid.is_empty() {
        return el("p", "No share moved in this range, as far as plans are kept.");
    }
    grid.html()
}

fn why(plan: &PlanReport, share: &ShareReport) -> String {
    let worth = change(share.next_gib_hits);
    format!(
        "{} ({}; {} expected to hit, next GiB {worth})",
        share.why,
        plan.allocator,
        percent(share.expected_hits)
    )
}

fn plan(data: &Data) -> String {
    let Some(plan) = data.plan() else {
        return el("p", "No plan was made yet: one is made behind each interval with requests.");
    };
    let mut text = format!(
        "{} divided {} at {} UTC, of {} requests in {}",
        plan.allocator,
        size(plan.capacity_bytes),
        moment(plan.made_ms),
        Unit::Count.show(plan.requests as f64),
        Unit::Seconds.show(plan.seconds),
    );
    text += if plan.applied { "; it was carried out." } else { "; it was not carried out." };
    if !plan.trouble.is_empty() {
        text = format!("{text} {}", plan.trouble);
    }
    if let Some(budget) = plan.budget {
        text = format!("{text} Budget of SSD writes: {} a day.", size(budget.bytes_per_day));
    }
    let columns = [
        ("Volume", false),
        ("Planned", true),
        ("Target", true),
        ("Granted", true),
        ("Held", true),
        ("Pinned", true),
        ("Expected hits", true),
        ("Actual hits", true),
        ("Why", false),
    ];
    let mut grid = Grid::new("plan-table", "Shares by volume", &columns);
    let rows = if data.all_rows { usize::MAX } else { ROWS_FIRST };
    for share in plan.volumes.iter().take(rows) {
        grid.row(vec![
            link_to(data, &share.volume),
            or_unknown(share.planned_bytes),
            or_unknown(share.target_bytes),
            or_unknown(share.granted_bytes),
            size(share.held_bytes),
            or_unknown(share.pinned_bytes),
            percent(share.expected_hits),
            share.actual_hits.map_or_else(|| UNKNOWN.to_owned(), percent),
            escaped(&share.why),
        ]);
    }
    let shown = plan.volumes.len().min(rows);
    el("p", &text)
        + &pins(data)
        + &grid.html()
        + &all_rows(data, "/ui/shares", shown, plan.volumes.len())
}

fn pins(data: &Data) -> String {
    let Ok(history) = &data.plans else { return String::new() };
    if history.pins.is_empty() {
        return String::new();
    }
    let pins = history.pins.iter().take(MOVES_MAX);
    let pins = pins.map(|pin| format!("{} to {}", name(&pin.volume), size(pin.size_bytes)));
    format!("<p id=\"pins\">Pinned: {}.</p>\n", pins.collect::<Vec<_>>().join(", "))
}
