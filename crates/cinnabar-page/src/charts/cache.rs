//! Charts of the cache, and of volumes beside each other.

use super::sheet::{Column, Row, Shape, Sheet, Style};
use crate::data::Data;
use crate::facts::size;
use crate::html::short;
use crate::plans::{compared, moves_of};
use cinnabar_config::history::Point;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_text::Unit;
use std::collections::BTreeMap;

/// Volumes told apart in a stacked chart; the rest are "others".
const STACKED_MAX: usize = 8;
/// Bars of volumes at most.
const BARS_MAX: usize = 20;
/// Moves that are drawn.
const EVENTS_MAX: usize = 400;
/// A pause of more samples than this is a gap.
const GAP_SAMPLES: f64 = 2.5;

/// Rows of samples, with a row without numbers where there are none for a while.
pub(super) fn rows(data: &Data, points: &[Point], of: impl Fn(&Point) -> Vec<f64>) -> Vec<Row> {
    with_gaps(data, points.iter().map(|point| (f64::from(point.at_s) * 1000.0, of(point))))
}

fn with_gaps(data: &Data, all: impl Iterator<Item = (f64, Vec<f64>)>) -> Vec<Row> {
    let step_ms = f64::from(data.range.step(data.now_ms).seconds()) * 1000.0;
    let mut rows: Vec<Row> = Vec::new();
    for (at, values) in all {
        if let Some(last) = rows.last()
            && at - last.at > step_ms * GAP_SAMPLES
        {
            let none = vec![f64::NAN; values.len()];
            rows.push(Row::at(f64::midpoint(at, last.at), none));
        }
        rows.push(Row::at(at, values));
    }
    rows
}

pub(super) fn a_second(point: &Point, count: f64) -> f64 {
    if point.span_ms == 0 { f64::NAN } else { count * 1000.0 / f64::from(point.span_ms) }
}

/// Over time, within the range of the view.
pub(super) fn timed(data: &Data, sheet: Sheet) -> Sheet {
    let (from_ms, to_ms) = (data.range.from_ms as f64, data.range.to_ms as f64);
    // What is kept may begin later than what was asked for.
    let first = sheet.rows.first().map_or(from_ms, |row| row.at.min(to_ms - 1000.0));
    let range = (from_ms.max(first), to_ms);
    Sheet { range, ..sheet }
}

pub(super) fn spared(data: &Data) -> Sheet {
    let columns = [("back end", Style::Line), ("spared by the cache", Style::Line)];
    let sheet = Sheet::over_time("I/Os of guests a second", "I/Os a second", Unit::Count, &columns);
    let rows = rows(data, &data.samples, |point| {
        let all = f64::from(point.reads) + f64::from(point.writes);
        let backend = f64::from(point.backend_reads) + f64::from(point.backend_writes);
        vec![a_second(point, backend), a_second(point, (all - backend).max(0.0))]
    });
    timed(data, Sheet { rows, shape: Shape::Stacked, ..sheet })
}

pub(super) fn hits(data: &Data) -> Sheet {
    let columns = [("hits", Style::Line)];
    let sheet =
        Sheet::over_time("Blocks read that hit", "part of the blocks read", Unit::Ratio, &columns);
    let rows = rows(data, &data.samples, |point| {
        vec![f64::from(point.hit_blocks) / f64::from(point.read_blocks)]
    });
    timed(data, Sheet { rows, bounds: Some((0.0, 1.0)), ..sheet })
}

/// Times of requests; 0 of none is no time.
pub(super) fn times(point: &Point) -> Vec<f64> {
    [point.read_mean_us, point.read_p99_us, point.write_mean_us, point.write_p99_us]
        .map(|us| if us == 0 { f64::NAN } else { f64::from(us) })
        .to_vec()
}

/// What [`times`] are.
pub(super) const TIMES: [(&str, Style); 4] =
    [("reads", Style::Line), ("99 %", Style::UpTo), ("writes", Style::Line), ("99 %", Style::UpTo)];
/// What lines and areas of [`TIMES`] mean.
pub(super) const TIMES_AXIS: &str = "latency (line: mean, area: up to 99 %)";

pub(super) fn latency(data: &Data) -> Sheet {
    let sheet = Sheet::over_time("Latency of requests", TIMES_AXIS, Unit::Micros, &TIMES);
    timed(data, Sheet { rows: rows(data, &data.samples, times), ..sheet })
}

pub(super) fn ssd_writes(data: &Data) -> Sheet {
    let columns = [("written to the SSD", Style::Line)];
    let sheet = Sheet::over_time("SSD writes", "bytes a second", Unit::Bytes, &columns);
    let rows = rows(data, &data.samples, |point| {
        vec![a_second(point, f64::from(point.ssd_written_blocks) * BLOCK_BYTES as f64)]
    });
    timed(data, Sheet { rows, ..sheet })
}

pub(super) fn shares(data: &Data) -> Sheet {
    Sheet { events: moves(data), ..stacked(data, "Shares of volumes", |point| point.share_blocks) }
}

pub(super) fn held(data: &Data) -> Sheet {
    stacked(data, "What volumes hold", |point| point.held_blocks)
}

/// Moves of shares in the range, each with its reason.
fn moves(data: &Data) -> Vec<(f64, String)> {
    let Ok(history) = &data.plans else { return Vec::new() };
    let range = data.range.from_ms..=data.range.to_ms;
    let plans = history.plans.iter().filter(|plan| plan.applied && range.contains(&plan.made_ms));
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), size);
    let moves = plans.flat_map(|plan| moves_of(plan).map(move |share| (plan, share)));
    let moves = moves.map(|(plan, share)| {
        let (before, after) = (bytes(share.before_bytes), bytes(share.target_bytes));
        let text = format!("{}: {before} \u{2192} {after} ({})", short(&share.volume), share.why);
        (plan.made_ms as f64, text)
    });
    moves.take(EVENTS_MAX).collect()
}

/// A column for each of the largest volumes, and one for the others. Which those are follows from
/// what they hold and from their shares, so that charts beside each other have the same colours.
fn stacked(data: &Data, title: &str, of: impl Fn(&Point) -> u32) -> Sheet {
    let weight = |points: &[Point]| {
        let one = |point: &Point| f64::from(point.share_blocks) + f64::from(point.held_blocks);
        points.iter().map(one).sum::<f64>()
    };
    let mut largest: Vec<(f64, usize)> =
        data.shares.iter().enumerate().map(|(at, (_, points))| (weight(points), at)).collect();
    largest.retain(|(weight, _)| *weight > 0.0);
    largest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let alone = if largest.len() > STACKED_MAX + 1 { STACKED_MAX } else { largest.len() };
    let has_others = largest.len() > alone;
    let width = alone + usize::from(has_others);
    // Points of a volume that came again end at other moments than those of others: a row is of a step.
    let step_s = data.range.step(data.now_ms).seconds().max(1);
    let slot = |point: &Point| point.at_s.div_ceil(step_s);
    let mut by_slot: BTreeMap<u32, (u32, Vec<f64>)> = BTreeMap::new();
    for point in largest.iter().flat_map(|(_, at)| &data.shares[*at].1) {
        let (at_s, _) = by_slot.entry(slot(point)).or_insert_with(|| (0, vec![0.0; width]));
        *at_s = point.at_s.max(*at_s);
    }
    for (place, (_, at)) in largest.iter().enumerate() {
        let points = &data.shares[*at].1;
        let mut next = 0;
        for (now, (_, row)) in &mut by_slot {
            while points.get(next).is_some_and(|point| slot(point) <= *now) {
                next += 1;
            }
            let last = next.checked_sub(1).map(|last| &points[last]);
            // The last of a step counts, and for one more step: a point that is late leaves one out.
            if let Some(last) = last.filter(|last| now - slot(last) <= 1) {
                row[place.min(width - 1)] += f64::from(of(last)) * BLOCK_BYTES as f64;
            }
        }
    }
    let mut sheet = Sheet::over_time(title, "bytes of the cache", Unit::Bytes, &[]);
    let mut column = |name: String| sheet.columns.push(Column { name, style: Style::Steps });
    largest[..alone].iter().for_each(|(_, at)| column(short(&data.shares[*at].0)));
    if has_others {
        column(format!("{} others", largest.len() - alone));
    }
    sheet.shape = Shape::Stacked;
    // Shares of nothing are no chart.
    if by_slot.values().flat_map(|(_, values)| values).any(|value| *value != 0.0) {
        let rows = by_slot.into_values().map(|(at_s, values)| (f64::from(at_s) * 1000.0, values));
        sheet.rows = with_gaps(data, rows);
    }
    timed(data, sheet)
}

/// What was written to the SSD, by cause, in bytes since the start.
pub(crate) fn causes(data: &Data) -> Vec<(&'static str, u64)> {
    let cache = &data.report.cache;
    let admitted = cache.admitted;
    let bytes = |blocks: u64| blocks * BLOCK_BYTES;
    let mut causes = vec![
        ("free room was filled", bytes(admitted.filling)),
        ("used again while in RAM", bytes(admitted.referenced)),
        ("missed again soon after it left", bytes(admitted.ghost)),
        ("everything is admitted (clock)", bytes(admitted.all)),
        ("written out by a clean stop", bytes(admitted.clean_stop)),
        ("copied forward when a segment was freed", bytes(cache.reinserted_blocks)),
    ];
    let data_bytes: u64 = causes.iter().map(|(_, bytes)| bytes).sum();
    let rest = cache.flash_written_bytes.saturating_sub(data_bytes);
    causes.push(("headers, journal, checkpoints and what is left", rest));
    causes.retain(|(_, bytes)| *bytes > 0);
    causes
}

pub(super) fn ssd_causes(data: &Data) -> Sheet {
    Sheet::parts("Written to the SSD since the start, by cause", Unit::Bytes, &causes(data))
}

pub(super) fn ram(data: &Data) -> Sheet {
    let ram = data.report.cache.ram_bytes;
    let parts = [
        ("index", ram.address_map),
        ("descriptors", ram.descriptors),
        ("ghost", ram.ghost),
        ("buffers", ram.buffers),
        ("rest of the engine", ram.other),
        ("front and back ends", ram.edges),
    ];
    Sheet::parts("RAM by part", Unit::Bytes, &parts)
}

pub(super) fn qos_waits(data: &Data) -> Sheet {
    let columns = ["limit", "reservation", "weight"];
    let title = "Waits for a turn at the back end, by phase";
    let mut sheet =
        Sheet::bars(title, "volume", "mean wait of all requests", Unit::Seconds, &columns);
    sheet.shape = Shape::Parts;
    for volume in &data.report.volumes {
        let Some(qos) = &volume.qos else { continue };
        let begun = qos.guest.by_reservation + qos.guest.by_weight;
        // Parts of one bar are of the same requests: of all that have begun.
        let waits = [qos.guest.limit_wait_s, qos.guest.reservation_wait_s, qos.guest.weight_wait_s];
        let values = waits.map(|seconds| seconds / begun.max(1) as f64);
        if begun > 0 && sheet.rows.len() < BARS_MAX {
            sheet.rows.push(Row::label(short(&volume.name), values));
        }
    }
    sheet
}

pub(super) fn dirty(data: &Data) -> Sheet {
    let title = "Age of the oldest write that a back end lacks";
    let mut sheet = Sheet::bars(title, "volume", "age", Unit::Seconds, &["age"]);
    let dirty = data.report.volumes.iter().filter_map(|volume| {
        let log = volume.write_back.as_ref().filter(|log| log.dirty_bytes > 0)?;
        Some(Row::label(short(&volume.name), [log.dirty_age_s]))
    });
    sheet.rows = dirty.take(BARS_MAX).collect();
    sheet
}

pub(super) fn what_if(data: &Data) -> Option<Sheet> {
    let rows = compared(data.what_if.as_ref()?);
    let title = "Reads that would hit";
    let mut sheet =
        Sheet::bars(title, "volume", "part of the reads", Unit::Ratio, &["now", "then"]);
    sheet.rows = rows
        .into_iter()
        .take(BARS_MAX)
        .map(|row| Row::label(short(&row.volume), [row.now, row.then]))
        .collect();
    Some(sheet)
}
