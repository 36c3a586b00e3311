//! What a replay came to, as a report with charts.

use super::show::{CHANGE_HEADER, SERVER_HEADER, TIME_HEADER, changes, latencies_ms};
use crate::meter::Period;
use crate::replay::{Outcome, Run};
use crate::report::page::{Axis, Groups, Lines, Page, Section, Style};
use cinnabar_text::{Table, Unit};

/// The report.
pub fn page(outcome: &Outcome) -> Page {
    let targets: Vec<&str> = outcome.volumes.iter().map(|one| one.target.as_str()).collect();
    let subtitle = format!("{} on {}", outcome.trace.display(), targets.join(", "));
    let mut page = Page::new("Replay of a block trace", subtitle).section(runs(outcome));
    if outcome.runs.len() > 1 {
        page = page.section(beside(outcome));
    }
    page.section(over_time(outcome))
}

fn runs(outcome: &Outcome) -> Section {
    let table = |header: &[&str], row: fn(&Run) -> Vec<String>| {
        outcome.runs.iter().fold(Table::new(1, header), |table, run| table.row(row(run)))
    };
    let mut section = Section::new("Runs").table(table(TIME_HEADER, times)).text(NOTE);
    section = section.table(table(SERVER_HEADER, server));
    let mut against = Table::new(1, CHANGE_HEADER);
    for change in changes(outcome) {
        against = against.row(change);
    }
    if outcome.runs.iter().any(|run| run.change.is_some()) {
        section = section.table(against);
    }
    if let Some(published) = outcome.published {
        section = section.text(format!("Published: {}: {}.", published.what, published.words));
    }
    section
}

const NOTE: &str = "SERVICE is the mean from submission, the others count from the time that the trace \
    says; READ and WRITE are means.";

fn times(run: &Run) -> Vec<String> {
    let mut row = vec![run.warm.clone(), Unit::Count.show(run.ios as f64)];
    row.push(Unit::Count.show(run.seconds));
    row.extend(latencies_ms(run).map(|ms| Unit::Micros.show(ms * 1e3)));
    row
}

fn server(run: &Run) -> Vec<String> {
    let server = &run.server;
    vec![
        run.warm.clone(),
        Unit::Count.show(server.reads as f64),
        Unit::Bytes.show(server.read_bytes as f64),
        Unit::Count.show(server.writes as f64),
        Unit::Bytes.show(server.write_bytes as f64),
        Unit::Ratio.show(run.hit_ratio.unwrap_or(f64::NAN)),
    ]
}

fn beside(outcome: &Outcome) -> Section {
    let group = |bars: Groups, values: &dyn Fn(&Run) -> Vec<f64>| {
        outcome.runs.iter().fold(bars, |bars, run| bars.group(label(run), values(run)))
    };
    let latencies = Groups::new(
        "Mean service time, from submission (all) or the trace's time",
        "run",
        Unit::Micros,
        &["all", "reads", "writes"],
    );
    let latencies = group(latencies, &|run| {
        [run.service.mean_ms, run.latency_reads.mean_ms, run.latency_writes.mean_ms]
            .map(|ms| ms * 1000.0)
            .to_vec()
    });
    let requests =
        Groups::new("Requests that reached the server", "run", Unit::Count, &["reads", "writes"]);
    let requests = group(requests, &|run| vec![run.server.reads as f64, run.server.writes as f64]);
    Section::new("Side by side").bars(latencies).bars(requests)
}

fn label(run: &Run) -> String {
    if run.warmed.is_some() { format!("warm {}", run.warm) } else { run.warm.clone() }
}

fn over_time(outcome: &Outcome) -> Section {
    let draw = |chart: Lines, value: &dyn Fn(&Period) -> Option<f64>| {
        outcome.runs.iter().fold(chart, |chart, run| {
            let points = run.rows.iter().filter_map(|row| Some((row.at_s, value(row)?)));
            let points: Vec<(f64, f64)> = points.collect();
            if points.is_empty() { chart } else { chart.series(label(run), Style::Line, points) }
        })
    };
    let time = || Axis::linear("time of the test", Unit::Seconds);
    let latency = Lines::new(
        "Mean latency over time",
        time(),
        Axis::linear("from the time the trace says", Unit::Micros),
    );
    let hits = Lines::new(
        "Read blocks found in the cache",
        time(),
        Axis::linear("hit ratio", Unit::Ratio).between(0.0, 1.0),
    );
    Section::new("Over time")
        .chart(draw(latency, &|row| Some(row.mean_ms * 1000.0)))
        .chart(draw(hits, &|row| row.hit_ratio))
}
