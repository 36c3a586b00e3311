//! A comparison as a page: the tables, bars side by side, and who had how much over time.

use super::show;
use crate::report::page::{Axis, Groups, Lines, Page, Section, Style};
use cinnabar_study::analysis::Every;
use cinnabar_study::compare::{Cache, Comparison, Division, Entry, Model, Options};
use cinnabar_text::{Table, Unit};
use std::path::PathBuf;

/// Volumes with a line of their own, those that have most in the mean; the rest have one together.
const LINES_MAX: usize = 16;
const BLOCK_BYTES: f64 = 4096.0;
const PLANS: &str = "Plans of an interval are made from what was seen before it; the first interval has \
    equal shares. Lines are a volume's room; what happens to its writes is in the JSON.";

pub fn page(found: &Comparison, options: &Options, traces: &[PathBuf]) -> Page {
    let names: Vec<String> = traces.iter().map(|path| path.display().to_string()).collect();
    let summary = show::summary(found);
    let subtitle = format!("{}; {}", names.join(", "), summary.trim_end());
    let mut page = Page::new("Allocators compared", subtitle);
    let (header, rows) = show::claims(found, options);
    if !rows.is_empty() {
        let table = table(2, &header, rows).caption(show::CLAIMS);
        page = page.section(Section::new("ECI-Cache's claims").table(table));
    }
    for cache in &found.caches {
        page = page.section(results(cache, options)).section(over_time(cache, found));
    }
    page
}

fn results(cache: &Cache, options: &Options) -> Section {
    let mut section = Section::new(show::title(cache).trim_end_matches(':'));
    for model in &options.models {
        let (header, rows) = show::table(cache, *model, options);
        section = section.table(table(1, &header, rows).caption(show::what(*model)));
    }
    for model in &options.models {
        section = section.chart(front(cache, *model, options));
    }
    section
        .bars(bars(cache, options, "Mean latency", Unit::Micros, |entry, model| {
            let total = entry.outcome(model)?.total();
            total.mean_us(&options.rules.prices)
        }))
        .bars(bars(cache, options, "Written to the SSD", Unit::Bytes, |entry, model| {
            Some(entry.outcome(model)?.ssd_writes as f64 * BLOCK_BYTES)
        }))
}

/// What hits cost: an allocator that has another one to its lower left is beaten in both.
fn front(cache: &Cache, model: Model, options: &Options) -> Lines {
    let title = format!("Latency against SSD writes, {}", model.name());
    let mut chart = Lines::new(
        title,
        Axis::linear("written to the SSD", Unit::Bytes),
        Axis::linear("mean latency", Unit::Micros),
    );
    for entry in &cache.entries {
        let Some(outcome) = entry.outcome(model) else { continue };
        let Some(latency) = outcome.total().mean_us(&options.rules.prices) else { continue };
        let point = (outcome.ssd_writes as f64 * BLOCK_BYTES, latency);
        chart = chart.series(entry.contestant.name(), Style::Points, [point]);
    }
    chart
}

fn bars(
    cache: &Cache,
    options: &Options,
    title: &str,
    unit: Unit,
    value: impl Fn(&Entry, Model) -> Option<f64>,
) -> Groups {
    let names: Vec<&str> = options.models.iter().map(|model| model.name()).collect();
    let mut bars = Groups::new(title, "allocator", unit, &names);
    for entry in &cache.entries {
        let of = |model: &Model| value(entry, *model).unwrap_or(f64::NAN);
        let values: Vec<f64> = options.models.iter().map(of).collect();
        bars = bars.group(entry.contestant.name(), values);
    }
    bars
}

fn over_time(cache: &Cache, found: &Comparison) -> Section {
    let heading = format!("Allocation over time, {} of demand", Unit::Ratio.show(cache.part));
    let mut section = Section::new(heading).text(PLANS);
    for entry in &cache.entries {
        if entry.plans.iter().any(|plan| matches!(plan, Division::Divided(_))) {
            section = section.chart(chart(entry, cache, found));
        }
    }
    section
}

fn chart(entry: &Entry, cache: &Cache, found: &Comparison) -> Lines {
    let time = match found.every {
        Every::Time(_) => Axis::linear("time", Unit::Seconds),
        Every::References(_) | Every::Never => Axis::linear("interval", Unit::Count),
    };
    let capacity = cache.capacity_blocks as f64 * BLOCK_BYTES;
    let room = Axis::linear("room", Unit::Bytes).between(0.0, capacity * 1.02);
    let mut chart = Lines::new(entry.contestant.name(), time, room).limit(capacity, "cache");
    let mut by_room: Vec<usize> = (0..found.volumes.len()).collect();
    let sum = |volume: usize| -> u64 { entry.plans.iter().map(|plan| blocks(plan, volume)).sum() };
    by_room.sort_by_key(|volume| std::cmp::Reverse(sum(*volume)));
    let (own, rest) = by_room.split_at(by_room.len().min(LINES_MAX));
    for volume in own {
        let points = points(found, entry, |plan| blocks(plan, *volume));
        chart = chart.series(&found.volumes[*volume], Style::Steps, points);
    }
    if !rest.is_empty() {
        let all = |plan: &Division| rest.iter().map(|volume| blocks(plan, *volume)).sum();
        let name = format!("{} others", rest.len());
        chart = chart.series(name, Style::Steps, points(found, entry, all));
    }
    chart
}

fn points(found: &Comparison, entry: &Entry, blocks: impl Fn(&Division) -> u64) -> Vec<(f64, f64)> {
    let at = |number: u64| match found.every {
        Every::Time(length_us) => number as f64 * length_us as f64 / 1e6,
        Every::References(_) | Every::Never => number as f64,
    };
    let numbers = found.intervals.iter().map(|interval| interval.number);
    let of = |(number, plan): (u64, &Division)| (at(number), blocks(plan) as f64 * BLOCK_BYTES);
    let mut points: Vec<(f64, f64)> = numbers.zip(&entry.plans).map(of).collect();
    // The last plan holds until its interval ends.
    if let (Some(last), Some((_, value))) = (found.intervals.last(), points.last().copied()) {
        points.push((at(last.number + 1), value));
    }
    points
}

fn blocks(plan: &Division, volume: usize) -> u64 {
    match plan {
        Division::Shared => 0,
        Division::Divided(parts) => parts[volume].blocks,
    }
}

fn table(left: usize, header: &[String], rows: Vec<Vec<String>>) -> Table {
    rows.into_iter().fold(Table::new(left, header), Table::row)
}
