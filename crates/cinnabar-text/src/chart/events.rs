//! Events and markers: upright lines with texts, the last things that are drawn.

use super::grid::{number, shortened};
use super::layout::Plot;
use super::pen::Pen;
use super::svg::{BASELINE, FONT, HALO, LINE, path, text};
use super::{EVENTS_MAX, NAME_MAX, SERIES_MAX};
use crate::chart::escape::escaped;
use crate::chart::text::{cut, width};
use std::fmt::Write;

/// Events nearer than that are one.
const CLUSTER: i32 = 10;
/// Texts in the tooltip of one.
const TEXTS_MAX: usize = 8;
/// Rows in which the texts of events stand.
const ROWS: usize = 2;
/// Of more lines than that, texts would hide what is drawn: they are in the tooltips alone.
const LABELLED_MAX: usize = 4;
/// Width of such a text.
const TEXT_MAX: f64 = 280.0;
/// Wide enough for a thumb.
const THUMB: i32 = 44;

/// Draws them, and gives all as an `svg` element. `summary` is for those who can't see it.
pub(super) fn finish(mut plot: Plot, summary: &str) -> String {
    events(&mut plot);
    markers(&mut plot);
    plot.finish(summary)
}

/// Draws what happened: a broken line, its text if there is room, and as a tooltip.
fn events(plot: &mut Plot) {
    let mut events: Vec<(i32, f64, &str)> = (plot.head().events.iter())
        .filter_map(|event| Some((plot.x(event.at)?, event.at, event.text.as_str())))
        .collect();
    events.sort_by(|one, other| one.1.total_cmp(&other.1));
    let events = &events[events.len().saturating_sub(EVENTS_MAX)..];
    let mut body = String::from("<g class=\"events\" stroke=\"none\">");
    let mut clusters = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|event| event.0 - first.0 < CLUSTER).count();
        let (cluster, behind) = rest.split_at(count);
        rest = behind;
        clusters.push(cluster);
    }
    // A row without room takes no text.
    let start = if clusters.len() > LABELLED_MAX { i32::MAX } else { i32::MIN };
    let mut ends = [start; ROWS];
    for cluster in clusters {
        event(&mut body, plot, cluster, &mut ends);
    }
    body += "</g>";
    if !events.is_empty() {
        plot.body += &body;
    }
}

fn event(body: &mut String, plot: &Plot, cluster: &[(i32, f64, &str)], ends: &mut [i32; ROWS]) {
    let (x, at, first) = cluster[0];
    let texts = cluster.iter().take(TEXTS_MAX).map(|event| shortened(event.2, NAME_MAX));
    let mut tooltip: Vec<String> = texts.collect();
    if cluster.len() > TEXTS_MAX {
        tooltip.push(format!("and {} more", cluster.len() - TEXTS_MAX));
    }
    let tooltip = escaped(&tooltip.join("\n"));
    write!(body, "<g data-at=\"{}\"><title>{tooltip}</title>", number(at)).expect("it takes it");
    let mut pen = Pen::default();
    pen.through(&[(x, plot.top - 4), (x, plot.bottom)]);
    let line = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"";
    path(body, &pen, &format!("{line} stroke-opacity=\".7\" stroke-dasharray=\"4 6\""));
    let mut pen = Pen::default();
    pen.through(&[(x, plot.top + 2), (x - 8, plot.top - 12), (x + 8, plot.top - 12)]);
    pen.close();
    path(body, &pen, "fill=\"currentColor\"");
    let label = match cluster.len() {
        1 => first.to_owned(),
        count => format!("{count} events"),
    };
    let label = cut(&shortened(&label, NAME_MAX), FONT, TEXT_MAX);
    let wide = width(&label, FONT).ceil() as i32;
    let fits = |left: i32, end: i32| left >= plot.left && left + wide <= plot.right && end < left;
    let lefts = [x + 10, x - 10 - wide];
    for (row, end) in (0..).zip(ends) {
        if let Some(left) = lefts.into_iter().find(|left| fits(*left, *end)) {
            let y = plot.top + 6 + LINE / 2 + row * LINE + BASELINE;
            text(body, (left, y), HALO, &label);
            *end = (left + wide).max(x) + 16;
            break;
        }
    }
    *body += "</g>";
}

/// Draws what a script may move: all of it is in a group that only has to be put somewhere else.
fn markers(plot: &mut Plot) {
    for marker in plot.head().markers.iter().take(SERIES_MAX) {
        let Some(x) = plot.x_within(marker.at) else { continue };
        let (top, bottom) = (plot.top, plot.bottom);
        let name = escaped(&shortened(&marker.name, NAME_MAX));
        let label = shortened(&marker.text, NAME_MAX);
        let mut body = format!(
            "<g class=\"marker\" data-marker=\"{name}\" data-at=\"{}\" \
             transform=\"translate({x} 0)\"><title>{}</title>",
            number(marker.at),
            escaped(&label)
        );
        let mut line = Pen::default();
        line.through(&[(0, top), (0, bottom)]);
        let wide = format!("fill=\"none\" stroke=\"transparent\" stroke-width=\"{THUMB}\"");
        path(&mut body, &line, &wide);
        path(&mut body, &line, "fill=\"none\" stroke=\"currentColor\" stroke-width=\"4\"");
        let mut handle = Pen::default();
        let middle = i32::midpoint(top, bottom);
        handle.rectangle((-9, middle - 22), (9, middle + 22));
        path(&mut body, &handle, "fill=\"currentColor\"");
        let left = x > i32::midpoint(plot.left, plot.right);
        let (at, anchor, room) = if left {
            (-14, " text-anchor=\"end\"", x - plot.left)
        } else {
            (14, "", plot.right - x)
        };
        let label = cut(&label, FONT, f64::from((room - 14).max(0)));
        // A curve of misses falls: there is room above it.
        text(&mut body, (at, top + LINE / 2 + BASELINE), &format!("{HALO}{anchor}"), &label);
        plot.body += &(body + "</g>");
    }
}
