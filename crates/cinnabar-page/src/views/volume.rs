//! A volume: what more cache would bring it, what it does, why it has what it has.

use crate::charts::volume::{curve_of, share_of};
use crate::data::Data;
use crate::facts::{Facts, UNKNOWN, size};
use crate::html::{Grid, el, escaped, section, wrap};
use crate::views::{link_to, trouble, volume_parts};
use crate::{actions, charts};
use cinnabar_manager::report::{CurvePoint, ExplainReport, ShareReport};
use cinnabar_text::{Unit, percent};

/// `None`: there is no such volume.
pub(crate) fn html(data: &Data, facts: &Facts) -> Option<String> {
    let (volume, raw) = data.own()?;
    let charts = ["volume-hits", "volume-iops", "volume-latency", "volume-share"];
    let share = share_of(data);
    let own_share = share.and_then(|share| share.target_bytes.or(share.granted_bytes));
    let pinned = share.and_then(|share| share.pinned_bytes).or(own_share);
    let size_text = cinnabar_text::write_size(pinned.unwrap_or(1 << 30));
    Some(
        [
            volume_parts::tiles(data, facts, volume),
            section("more", "What would more cache bring?", &more(data, share)),
            section("why", "Why it has this share", &why(data)),
            section("charts", "Over time", &charts::all(&charts, data)),
            section("requests", "Requests", &charts::all(&["volume-histogram"], data)),
            section("reuse", "Reuse, and what bypassed the cache", &volume_parts::reuse(data)),
            section("writes", "Write policy", &volume_parts::writes(data, facts, volume, raw)),
            volume_parts::hybrid(volume),
            volume_parts::relatives(volume),
            section("counters", "Counters", &volume_parts::counters(facts, volume)),
            section(
                "actions",
                "Change it",
                &actions::of_volume(data, &volume.name, volume.mode, &size_text),
            ),
        ]
        .concat(),
    )
}

fn more(data: &Data, share: Option<&ShareReport>) -> String {
    let Some(share) = share else {
        return match &data.explain {
            Some(Err(reason)) => trouble(reason),
            _ => el("p", "The manager has not seen it yet."),
        };
    };
    let words = format!(
        "{} of its reads are expected to hit with {}; {} did in the last interval. The next GiB would add {}.",
        percent(share.expected_hits),
        share.target_bytes.map_or_else(|| size(share.held_bytes), size),
        share.actual_hits.map_or_else(|| UNKNOWN.to_owned(), percent),
        percent(share.next_gib_hits),
    );
    el("p id=\"worth\"", &words) + &marker(data, share) + &charts::all(&["volume-curve"], data)
}

/// The share as a slider: the script moves it and says what is expected at another size. Without a
/// script the numbers of the curve are in the chart's table.
fn marker(data: &Data, share: &ShareReport) -> String {
    let capacity = data.explain.as_ref().and_then(|explain| explain.as_ref().ok());
    let capacity = capacity.map_or(0, |explain| explain.plan.capacity_bytes);
    let now = share.target_bytes.or(share.granted_bytes).unwrap_or(share.held_bytes);
    let max = if share.max_bytes > 0 { share.max_bytes.min(capacity) } else { capacity };
    let curve = curve_of(data);
    if max == 0 || curve.is_empty() {
        return String::new();
    }
    let point = |(size, hits): (u64, f64)| format!("[{size},{hits:.5}]");
    let points = curve.iter().map(|at| point((at.size_bytes, at.hits)));
    let points: Vec<String> = std::iter::once(point((0, 0.0))).chain(points).collect();
    let expected = hits_at(curve, now);
    let text = format!("{}: {} expected to hit", size(now), percent(expected));
    format!(
        "<div class=\"marker\" id=\"share\" hidden data-curve=\"[{}]\" data-reads=\"{}\">\
         <span id=\"share-label\">Share</span> \
         <div class=\"track\"><div id=\"share-marker\" class=\"thumb\" role=\"slider\" tabindex=\"0\" \
         aria-labelledby=\"share-label\" aria-valuemin=\"{}\" aria-valuemax=\"{max}\" \
         aria-valuenow=\"{}\" aria-valuetext=\"{}\"></div></div> \
         <output id=\"share-text\" for=\"share-marker\">{}</output></div>\n",
        points.join(","),
        share.mix.reads,
        share.min_bytes.min(max),
        now.min(max),
        escaped(&text),
        escaped(&text),
    )
}

/// The part of its reads that hit at a size, between the points of its curve.
fn hits_at(curve: &[CurvePoint], size_bytes: u64) -> f64 {
    let mut before = (0.0, 0.0);
    for point in curve {
        let here = (point.size_bytes as f64, point.hits);
        if size_bytes as f64 <= here.0 {
            let part = (size_bytes as f64 - before.0) / (here.0 - before.0).max(1.0);
            return before.1 + (here.1 - before.1) * part;
        }
        before = here;
    }
    before.1
}

fn why(data: &Data) -> String {
    let explain = match &data.explain {
        Some(Ok(explain)) => explain,
        Some(Err(reason)) => return trouble(reason),
        None => return String::new(),
    };
    let words: String = explain.words.iter().map(|sentence| el("li", sentence)).collect();
    wrap("ul id=\"words\"", &words) + &rivals(data, explain)
}

fn rivals(data: &Data, explain: &ExplainReport) -> String {
    let columns =
        [("Rival", false), ("Target", true), ("Held", true), ("Next GiB, read blocks", true)];
    let mut grid = Grid::new("rivals", "Who else wants room, most first", &columns);
    for rival in &explain.neighbours {
        grid.row(vec![
            link_to(data, &rival.volume),
            size(rival.target_bytes),
            size(rival.held_bytes),
            Unit::Count.show(rival.next_gib_reads),
        ]);
    }
    if grid.is_empty() { String::new() } else { grid.html() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_told_between_points_of_the_curve() {
        let point = |size_bytes, hits| CurvePoint { size_bytes, hits };
        let curve = [point(100, 0.2), point(200, 0.6)];
        let at = |size| (hits_at(&curve, size) * 1000.0).round();
        assert_eq!((at(0), at(50), at(150), at(200), at(900)), (0.0, 100.0, 400.0, 600.0, 600.0));
    }
}
