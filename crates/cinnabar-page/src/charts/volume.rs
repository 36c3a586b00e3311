//! Charts of one volume.

use super::Figure;
use super::cache::{TIMES, TIMES_AXIS, a_second, rows, timed, times};
use super::sheet::{Row, Shape, Sheet, Style};
use crate::data::Data;
use crate::facts::size;
use cinnabar_config::status::latency::BOUNDS_US;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_manager::report::{CurvePoint, ShareReport};
use cinnabar_text::Unit;
use cinnabar_text::chart::{Across, Axis, Buckets, Head, Histogram};

/// What the manager says of the volume, with its curve.
pub(crate) fn share_of(data: &Data) -> Option<&ShareReport> {
    let explained = data.explain.as_ref()?.as_ref().ok()?;
    explained.plan.volumes.first()
}

/// The part of its reads that hit, by size: finely where that is known.
pub(crate) fn curve_of(data: &Data) -> &[CurvePoint] {
    let fine = data.explain.as_ref().and_then(|explain| explain.as_ref().ok());
    let fine = fine.map(|explain| explain.curve.as_slice()).filter(|curve| !curve.is_empty());
    fine.or(share_of(data).map(|share| share.curve.as_slice())).unwrap_or_default()
}

pub(super) fn curve(data: &Data) -> Option<Sheet> {
    let share = share_of(data)?;
    let mut sheet = Sheet::over_time(
        "Reads that would miss, by size of the share",
        "part of the reads that miss",
        Unit::Ratio,
        &[("expected misses", Style::Line)],
    );
    sheet.shape = Shape::Curve(Unit::Bytes);
    sheet.x = "size of the share".into();
    sheet.bounds = Some((0.0, 1.0));
    sheet.rows = std::iter::once(Row::at(0.0, [1.0]))
        .chain(
            curve_of(data).iter().map(|point| Row::at(point.size_bytes as f64, [1.0 - point.hits])),
        )
        .collect();
    if let Some(bytes) = share.target_bytes.or(share.granted_bytes) {
        sheet.marker = Some(("share", bytes as f64, format!("share: {}", size(bytes))));
    }
    Some(sheet)
}

pub(super) fn hits(data: &Data) -> Option<Sheet> {
    data.own()?;
    let columns = [("hit", Style::Line), ("predicted", Style::Dashed)];
    let title = "Reads that hit, and what was predicted";
    let sheet = Sheet::over_time(title, "part of the blocks read", Unit::Ratio, &columns);
    let plans = data.plans.as_ref().map(|history| history.plans.as_slice()).unwrap_or_default();
    let predicted: Vec<(u64, f64)> = plans
        .iter()
        .filter_map(|plan| {
            let own = plan.volumes.iter().find(|share| share.volume == data.volume)?;
            (own.mix.reads > 0).then_some((plan.made_ms, own.expected_hits))
        })
        .collect();
    let rows = rows(data, &data.volume_samples, |point| {
        let at_ms = u64::from(point.at_s) * 1000;
        let last = predicted.partition_point(|(made_ms, _)| *made_ms <= at_ms);
        let expected = last.checked_sub(1).map_or(f64::NAN, |at| predicted[at].1);
        vec![f64::from(point.hit_blocks) / f64::from(point.read_blocks), expected]
    });
    Some(timed(data, Sheet { rows, bounds: Some((0.0, 1.0)), ..sheet }))
}

pub(super) fn iops(data: &Data) -> Option<Sheet> {
    data.own()?;
    let columns = [("guest", Style::Line), ("back end", Style::Line)];
    let sheet = Sheet::over_time("I/Os a second", "I/Os a second", Unit::Count, &columns);
    let rows = rows(data, &data.volume_samples, |point| {
        let guest = f64::from(point.reads) + f64::from(point.writes);
        let backend = f64::from(point.backend_reads) + f64::from(point.backend_writes);
        vec![a_second(point, guest), a_second(point, backend)]
    });
    Some(timed(data, Sheet { rows, ..sheet }))
}

pub(super) fn latency(data: &Data) -> Option<Sheet> {
    data.own()?;
    let sheet = Sheet::over_time("Latency of its requests", TIMES_AXIS, Unit::Micros, &TIMES);
    Some(timed(data, Sheet { rows: rows(data, &data.volume_samples, times), ..sheet }))
}

pub(super) fn share(data: &Data) -> Option<Sheet> {
    data.own()?;
    let columns = [("held", Style::Line), ("share", Style::Steps)];
    let title = "What it holds, and its share";
    let sheet = Sheet::over_time(title, "bytes of the cache", Unit::Bytes, &columns);
    let rows = rows(data, &data.volume_samples, |point| {
        let bytes = |blocks: u32| f64::from(blocks) * BLOCK_BYTES as f64;
        let share = if point.share_blocks == 0 { f64::NAN } else { bytes(point.share_blocks) };
        vec![bytes(point.held_blocks), share]
    });
    Some(timed(data, Sheet { rows, ..sheet }))
}

/// Where the first bucket is drawn to begin, in us, and the last one to end.
const ENDS_US: [f64; 2] = [5.0, 100_000_000.0];

pub(super) fn histogram(data: &Data) -> Option<Figure> {
    let (_, raw) = data.own()?;
    let title = "Requests by latency, since it was attached".to_owned();
    let (reads, writes) = (raw.latencies.read.buckets, raw.latencies.write.buckets);
    let floats = |buckets: [u64; BOUNDS_US.len() + 1]| buckets.map(|count| count as f64).to_vec();
    let bounds = BOUNDS_US.map(|bound| bound as f64);
    let edges = [ENDS_US[0]].into_iter().chain(bounds).chain([ENDS_US[1]]).collect();
    let chart = Histogram {
        head: Head::new(title.clone(), Across::Values(Axis::log("latency", Unit::Micros))),
        y: Axis::linear("requests", Unit::Count),
        edges,
        series: vec![Buckets::new("reads", floats(reads)), Buckets::new("writes", floats(writes))],
    };
    let is_empty = reads.iter().chain(&writes).all(|count| *count == 0);
    Some(Figure { id: "volume-histogram".into(), title, chart: Box::new(chart), is_empty })
}

pub(super) fn mix(data: &Data) -> Option<Sheet> {
    let mix = share_of(data)?.mix;
    let kinds = [
        ("read after read", mix.rar),
        ("read after write", mix.raw),
        ("write after read", mix.war),
        ("write after write", mix.waw),
    ];
    Some(Sheet::parts("Reuse of blocks, as the manager sees it", Unit::Count, &kinds))
}

pub(super) fn bypass(data: &Data) -> Option<Sheet> {
    let bypassed = data.own()?.0.bypassed;
    let title = "Blocks that did not use the cache, since it was attached";
    let reasons = [
        ("long sequential run (bypass_sequential)", bypassed.sequential),
        ("large request (bypass_large)", bypassed.large),
        ("mode pass-through", bypassed.pass_through),
        ("write in mode write-around", bypassed.write_around),
        ("write not worth keeping", bypassed.write_not_reused),
        ("no free buffer or segment", bypassed.no_space),
        ("index still being loaded", bypassed.loading),
        ("cache device not in use", bypassed.no_device),
    ];
    let used: Vec<_> = reasons.into_iter().filter(|(_, blocks)| *blocks > 0).collect();
    Some(Sheet::parts(title, Unit::Count, &used))
}
