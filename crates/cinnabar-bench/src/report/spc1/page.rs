//! A run or a search as a page with charts.

use crate::meter::Period;
use crate::report::page::{Axis, Groups, Lines, Page, Section, Style};
use crate::spc1::{MaxReport, Maximum, Report};
use cinnabar_text::{Table, Unit};

const TITLE: &str = "SPC-1-like benchmark";

/// A run at one rate.
pub fn of_run(report: &Report) -> Page {
    let cache = report.cache.as_ref().map_or("no cache".into(), |cache| cache.device.clone());
    let subtitle = format!(
        "{} BSU for {:.0} s, {cache}; mix {}, seed {}",
        report.bsu, report.length_s, report.mix, report.seed
    );
    let over_time = |value: fn(&Period) -> Option<f64>| {
        report
            .periods
            .iter()
            .filter_map(move |row| Some((row.at_s, value(row)?)))
            .collect::<Vec<_>>()
    };
    let time = || Axis::linear("time", Unit::Seconds);
    let mean = Lines::new(
        "Mean response time",
        time(),
        Axis::linear("from the time an I/O was due", Unit::Micros),
    )
    .series("all", Style::Line, over_time(|row| Some(row.mean_ms * 1e3)))
    .limit(30_000.0, "30 ms");
    let mut section = Section::new("Over time").chart(mean);
    if report.cache.is_some() {
        let hits = Axis::linear("read blocks found", Unit::Ratio).between(0.0, 1.0);
        section = section.chart(Lines::new("Hit ratio", time(), hits).series(
            "reads",
            Style::Line,
            over_time(|row| row.hit_ratio),
        ));
    }
    let rates = |value: fn(&Period) -> f64| {
        report.periods.iter().map(|row| (row.at_s, value(row))).collect::<Vec<_>>()
    };
    let load = Lines::new("Load", time(), Axis::linear("I/Os a second", Unit::Count))
        .series("asked", Style::Line, over_time(|row| Some(row.iops)))
        .series(
            "reads that reached the storage",
            Style::Line,
            rates(|row| per_second(row.server_reads, row)),
        )
        .series(
            "writes that reached the storage",
            Style::Dashed,
            rates(|row| per_second(row.server_writes, row)),
        );
    let mut streams = Groups::new(
        "Response time by stream, from its time",
        "stream",
        Unit::Micros,
        &["p50", "p99"],
    );
    for stream in &report.streams {
        let of = stream.latency;
        streams = streams.group(stream.name, [of.p50_ms * 1e3, of.p99_ms * 1e3]);
    }
    Page::new(TITLE, subtitle)
        .section(section.chart(load))
        .section(Section::new("Streams").bars(streams))
        .section(numbers(report))
}

/// What the charts have no room for.
fn numbers(report: &Report) -> Section {
    let count = |count: u64| Unit::Count.show(count as f64);
    let (time, share) = (|ms: f64| Unit::Micros.show(ms * 1e3), |part: f64| Unit::Ratio.show(part));
    let header =
        ["from its time", "I/Os", "share", "reads", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new(1, &header);
    let all = report.ios.max(1) as f64;
    let streams = report.streams.iter().map(|one| (one.name, one.latency, one.read_share));
    let sums = [
        ("reads", report.read_latency, 1.0),
        ("writes", report.write_latency, 0.0),
        ("all", report.latency, f64::NAN),
    ];
    for (name, of, reads) in streams.chain(sums) {
        let mut cells = vec![name.to_owned(), count(of.count), share(of.count as f64 / all)];
        cells.push(share(reads));
        let times = [of.mean_ms, of.p50_ms, of.p90_ms, of.p99_ms, of.p999_ms, of.max_ms];
        cells.extend(times.map(time));
        table = table.row(cells);
    }
    let server = &report.server;
    let cut = |reached: u64, asked: u64| format!("{} of {}", count(reached), count(asked));
    let mut facts = vec![
        ("I/Os a second", Unit::Count.show(report.iops)),
        ("mean from submission", time(report.dispatched_latency.mean_ms)),
        ("mean within 30 ms", if report.within_30_ms { "yes" } else { "no" }.to_owned()),
        ("reads that reached the storage", cut(server.reads, server.asked_reads)),
        ("writes that reached the storage", cut(server.writes, server.asked_writes)),
        ("all I/Os spared", share(server.all_cut)),
        ("CPU an I/O", Unit::Micros.show(report.cpu_us_per_io)),
    ];
    for (bytes, name) in report.asu_bytes.iter().zip(["ASU1", "ASU2", "ASU3"]) {
        facts.push((name, Unit::Bytes.show(*bytes as f64)));
    }
    if let Some(cache) = &report.cache {
        facts.extend([
            ("cache", format!("{} ({})", cache.device, cache.began)),
            ("blocks cached", cut(cache.cached_blocks, cache.capacity_blocks)),
            ("blocks read that hit", cut(cache.read_hits, cache.reads)),
            ("of them in probation", count(cache.ram_hits)),
            ("of them in segments being filled", count(cache.buffer_hits)),
            ("of them on flash", count(cache.storage_hits)),
            ("blocks written that were cached", cut(cache.invalidate_hits, cache.invalidations)),
            ("insertions", count(cache.insertions)),
            ("evictions", count(cache.evictions)),
            ("blocks reinserted", count(cache.reinserted_blocks)),
            ("rounds of the log", Unit::Count.show(cache.wraps)),
            ("mean read of the cache device", Unit::Micros.show(cache.mean_read_us)),
            ("mean write of a segment", Unit::Micros.show(cache.mean_write_us)),
            ("written to flash", Unit::Bytes.show(cache.flash_written_bytes as f64)),
            ("errors of the cache device", count(cache.device_errors)),
        ]);
    }
    let facts = facts.into_iter().fold(Table::new(1, &["", "value"]), |table, (name, value)| {
        table.row([name.to_owned(), value])
    });
    Section::new("In numbers").table(table).table(facts)
}

/// So many of a row, as a rate.
fn per_second(of: u64, row: &Period) -> f64 {
    of as f64 * row.iops / row.ios.max(1) as f64
}

pub fn of_search(report: &MaxReport) -> Page {
    let subtitle = format!(
        "highest load with a mean of {:.0} ms at most; mix {}, seed {}",
        report.limit_ms, report.mix, report.seed
    );
    let limit_us = report.limit_ms * 1e3;
    // Beyond the limit a queue grows without end: the curve is cut off there.
    let mut load = Lines::new(
        "Response time over load",
        Axis::linear("load (BSU)", Unit::Count),
        Axis::linear("mean response time", Unit::Micros).between(0.0, limit_us * 3.0),
    );
    let mut hits = Lines::new(
        "Reads that the storage is spared, over load",
        Axis::linear("load (BSU)", Unit::Count),
        Axis::linear("share of reads", Unit::Ratio).between(0.0, 1.0),
    );
    let mut warming = None;
    let mut found = Table::new(1, &["", "BSU", "IOPS", "mean"]);
    for (name, maximum) in [("without cache", &report.without), ("with cache", &report.with)] {
        let Some(maximum) = maximum else { continue };
        let points =
            maximum.steps.iter().map(|step| (f64::from(step.bsu), step.latency.mean_ms * 1e3));
        load = load.series(name, Style::Line, cut_off(points, limit_us * 3.0));
        let spared = maximum.steps.iter().filter(|step| step.hit_ratio.is_some());
        let spared: Vec<_> = spared.map(|step| (f64::from(step.bsu), step.reads_cut)).collect();
        if !spared.is_empty() {
            hits = hits.series(name, Style::Line, spared);
        }
        warming = warming.or_else(|| warming_chart(maximum));
        found = found.row([
            name.to_owned(),
            maximum.bsu_max.to_string(),
            Unit::Count.show(maximum.iops),
            Unit::Micros.show(maximum.mean_ms * 1e3),
        ]);
    }
    if let Some(ratio) = report.ratio {
        found = found.row(["ratio".to_owned(), format!("{ratio:.2}")]);
    }
    let mut section = Section::new("Load").table(found).chart(load.limit(limit_us, "limit"));
    if report.with.is_some() {
        section = section.chart(hits);
    }
    let mut page = Page::new(TITLE, subtitle).section(section);
    if let Some(chart) = warming {
        page = page.section(Section::new("Warming").chart(chart));
    }
    page
}

/// Points up to where the line through them leaves the chart.
fn cut_off(points: impl Iterator<Item = (f64, f64)>, most: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        if y > most {
            let edge =
                |(from, low): &(f64, f64)| (from + (x - from) * (most - low) / (y - low), most);
            kept.extend(kept.last().map(edge));
            break;
        }
        kept.push((x, y));
    }
    kept
}

fn warming_chart(maximum: &Maximum) -> Option<Lines> {
    let warming = maximum.warming.as_ref()?;
    let window = warming.ios as f64 / warming.hit_ratios.len().max(1) as f64;
    let points = warming.hit_ratios.iter().zip(1_u32..);
    Some(
        Lines::new(
            "Hit ratio while the cache is warmed",
            Axis::linear("I/Os", Unit::Count),
            Axis::linear("read blocks found", Unit::Ratio).between(0.0, 1.0),
        )
        .series(
            "reads",
            Style::Line,
            points.map(|(ratio, index)| (f64::from(index) * window, *ratio)).collect::<Vec<_>>(),
        ),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_curve_is_cut_off_where_it_leaves_the_chart() {
        let points = [(10.0, 5.0), (20.0, 20.0), (30.0, 120.0), (40.0, 900.0)];
        let kept = super::cut_off(points.into_iter(), 70.0);
        assert_eq!(kept, [(10.0, 5.0), (20.0, 20.0), (25.0, 70.0)]);
        assert!(super::cut_off(points.into_iter(), 1.0).is_empty());
    }
}
