//! What an analysis found, as a report with charts.
//!
//! Charts show few volumes, the largest ones; the table says how many are summed up, so that a host
//! with thousands of volumes still makes a page that opens.

use super::BLOCK_BYTES;
use super::json::sizes;
use super::rows::{self, LEGEND, PAGE, ranked};
use super::words;
use crate::report::page::{Axis, Groups, Lines, Page, Section, Style};
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::{Analysis, Found, Settings};
use cinnabar_text::{Table, Unit};

/// Volumes of a chart with lines: as many as there are colours.
const LINES_MAX: usize = 6;
/// Volumes of a chart with bars.
const BARS_MAX: usize = 20;
/// A curve above may be told apart from others by no more than this.
const NAME_MAX: usize = 40;

/// A curve that fell by less is still flat.
const FALL: f64 = 0.02;

/// The report.
pub fn page(analysis: &Analysis, settings: &Settings, volumes: usize) -> Page {
    let files: Vec<String> =
        analysis.files.iter().map(|(path, _)| path.display().to_string()).collect();
    let mut page = Page::new("Would a cache help?", files.join(", "))
        .section(answer(analysis, settings))
        .section(table(analysis, settings, volumes))
        .section(curves(analysis))
        .section(mix(analysis));
    if !analysis.intervals.is_empty() && analysis.shared.is_none() {
        page = page.section(over_time(analysis));
    }
    page
}

fn answer(analysis: &Analysis, settings: &Settings) -> Section {
    let said = words::answer(analysis, settings).into_iter();
    let notes = words::notes(analysis).into_iter().map(|note| format!("Note: {note}."));
    said.chain(notes).fold(Section::new("Answer"), Section::text)
}

fn table(analysis: &Analysis, settings: &Settings, volumes: usize) -> Section {
    let rules = &settings.rules;
    let lines = rows::lines(analysis, &rules.prices, rules.reach_part, volumes);
    let cells = lines.iter().map(|line| rows::for_page(&line.cells(analysis.seconds())));
    let table = cells.fold(Table::new(1, PAGE), Table::row);
    let how = format!(
        "Divided by {}; 4 KiB blocks, {} requests, {} references.",
        rules.allocator,
        Unit::Count.show(analysis.requests as f64),
        Unit::Count.show(analysis.references as f64)
    );
    Section::new("Volumes").text(how).table(table).text(LEGEND.replace('\n', " "))
}

fn curves(analysis: &Analysis) -> Section {
    let readers = ranked(analysis).into_iter().filter(|found| found.curves.mix().reads > 0);
    let readers: Vec<&Found> = readers.take(LINES_MAX).collect();
    let policies = [WritePolicy::Back, WritePolicy::ReadOnly];
    // Both charts begin where the first curve of them begins to fall.
    let curves = readers.iter().flat_map(|found| policies.map(|policy| points(found, policy)));
    let from = curves.filter_map(|points| fall(&points)).fold(f64::INFINITY, f64::min);
    let chart = |title: &str, policy: WritePolicy| {
        let chart = Lines::new(
            title,
            Axis::log("size of the volume's share", Unit::Bytes),
            Axis::linear("reads that miss", Unit::Ratio).between(0.0, 1.0),
        );
        readers.iter().fold(chart, |chart, found| {
            let mut points = points(found, policy);
            points.retain(|(size, _)| from.is_infinite() || *size >= from);
            chart.series(name(found), Style::Line, points)
        })
    };
    Section::new("Miss ratios")
        .text("Of the volumes with most accesses, in an LRU cache of their own.")
        .chart(chart("Written blocks are kept: write-through, write-back", policies[0]))
        .chart(chart("Written blocks are dropped: read-only", policies[1]))
}

/// The last size at which nearly all that misses without a cache still misses; none if it always does.
fn fall(points: &[(f64, f64)]) -> Option<f64> {
    let first = points.iter().position(|(_, misses)| *misses < 1.0 - FALL)?;
    Some(points[first.saturating_sub(1)].0)
}

fn points(found: &Found, policy: WritePolicy) -> Vec<(f64, f64)> {
    let curves = &found.curves;
    let reads = curves.mix().reads as f64;
    let point = |size: u64| {
        let misses = 1.0 - curves.read_hits(policy, size) / reads;
        ((size.saturating_mul(BLOCK_BYTES)) as f64, misses)
    };
    sizes(curves.flat_from().max(1)).into_iter().map(point).collect()
}

fn mix(analysis: &Analysis) -> Section {
    let bars = Groups::new(
        "What reuses are, as parts of the volume's",
        "volume",
        Unit::Ratio,
        &["read after read", "read after write", "write after read", "write after write"],
    );
    let reused: Vec<&Found> = ranked(analysis)
        .into_iter()
        .filter(|found| found.curves.mix().reuses() > 0)
        .take(BARS_MAX)
        .collect();
    let bars = reused.into_iter().fold(bars, |bars, found| {
        let mix = found.curves.mix();
        let all = mix.reuses() as f64;
        let parts = [mix.rar, mix.raw, mix.war, mix.waw].map(|count| count as f64 / all);
        bars.group(name(found), parts)
    });
    Section::new("Reuse").bars(bars)
}

fn over_time(analysis: &Analysis) -> Section {
    let has_times = analysis.seconds().is_some();
    let (label, unit) =
        if has_times { ("end of the interval", Unit::Seconds) } else { ("interval", Unit::Count) };
    let chart =
        Lines::new("Shares planned", Axis::linear(label, unit), Axis::linear("share", Unit::Bytes));
    let at = |index: usize| {
        let end_us = analysis.intervals[index].end_us - analysis.first_us;
        if has_times { end_us as f64 / 1e6 } else { index as f64 }
    };
    // The largest shares are what is worth a line; the others are summed up in one.
    let mut sums = vec![0.0_f64; analysis.volumes.len()];
    let mut shares = Vec::new();
    for (index, planned) in analysis.intervals.iter().enumerate() {
        for volume in &planned.volumes {
            let blocks = volume.part.map_or(0, |part| part.blocks) as f64;
            sums[volume.volume] += blocks;
            shares.push((index, volume.volume, blocks * BLOCK_BYTES as f64));
        }
    }
    let mut order: Vec<usize> = (0..sums.len()).filter(|volume| sums[*volume] > 0.0).collect();
    order.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]));
    let shown = if order.len() > LINES_MAX { LINES_MAX - 1 } else { order.len() };
    let mut lines = vec![vec![0.0; analysis.intervals.len()]; shown + 1];
    let mut places = vec![None; sums.len()];
    for (place, volume) in order.iter().enumerate() {
        places[*volume] = Some(place.min(shown));
    }
    for (index, volume, bytes) in shares {
        if let Some(place) = places[volume] {
            lines[place][index] += bytes;
        }
    }
    let names = order[..shown].iter().map(|volume| name(&analysis.volumes[*volume]));
    let rest = (order.len() > shown).then(|| format!("{} others", order.len() - shown));
    let named = names.chain(rest).zip(lines);
    let chart = named.fold(chart, |chart, (name, line)| {
        let points: Vec<_> = line.into_iter().enumerate().map(|(i, y)| (at(i), y)).collect();
        chart.series(name, Style::Steps, points)
    });
    Section::new("Allocation over time")
        .text("The plan at the end of each interval, made from what was seen up to there.")
        .chart(chart)
}

fn name(found: &Found) -> String {
    let name = &found.name;
    let length = name.chars().count();
    if length <= NAME_MAX {
        return name.clone();
    }
    // The end tells files of one folder apart.
    let tail: String = name.chars().skip(length - NAME_MAX).collect();
    format!("...{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_begin_where_a_curve_falls() {
        let curve = [(4e3, 1.0), (8e3, 1.0), (16e3, 0.99), (32e3, 0.5), (64e3, 0.1)];
        assert_eq!(fall(&curve), Some(16e3));
        assert_eq!(fall(&curve[..3]), None, "it never does");
        assert_eq!(fall(&curve[3..]), Some(32e3));
    }
}
