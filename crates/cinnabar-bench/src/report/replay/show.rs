//! What a replay came to, as tables for people.

use crate::replay::outcome::{Change, WITHOUT};
use crate::replay::{Outcome, Run};
use cinnabar_text::{Table, Unit, percent, show_size};

/// All of it.
pub fn render(outcome: &Outcome, room: Option<usize>) -> String {
    let mut parts = vec![trace(outcome, room)];
    parts.push(table(TIME_HEADER, outcome.runs.iter().map(times), room) + NOTE);
    parts.push(table(SERVER_HEADER, outcome.runs.iter().map(server), room));
    if outcome.runs.iter().any(|run| run.change.is_some()) {
        parts.push(table(CHANGE_HEADER, changes(outcome), room));
    }
    if let Some(published) = outcome.published {
        parts.push(format!("published: {}: {}\n", published.what, published.words));
    }
    parts.join("\n")
}

/// The trace and what it was played on.
fn trace(outcome: &Outcome, room: Option<usize>) -> String {
    let mut table = Table::new(2, &["trace", &outcome.trace.display().to_string()]);
    for volume in &outcome.volumes {
        let text = format!(
            "{}, {} touched, on {}",
            show_size(volume.end_bytes),
            show_size(volume.footprint_blocks * 4096),
            volume.target
        );
        table.push(vec![format!("volume {}", volume.number), text]);
    }
    for run in &outcome.runs {
        if let Some(warmed) = &run.warmed {
            let text = format!(
                "{} requests in {:.1} s; {} reads and {} writes reached the server",
                warmed.ios, warmed.seconds, warmed.server.reads, warmed.server.writes
            );
            table.push(vec![format!("warming {}", run.warm), text]);
        }
    }
    table.render(room)
}

/// Columns of what the requests of a run took.
pub(crate) const TIME_HEADER: &[&str] = &[
    "WARM", "REQUESTS", "SECONDS", "SERVICE", "MEAN", "P50", "P90", "P99", "P99.9", "MAX", "READ",
    "WRITE",
];

/// Latencies of a run in the order of the columns.
pub(crate) fn latencies_ms(run: &Run) -> [f64; 9] {
    let latency = &run.latency;
    [
        run.service.mean_ms,
        latency.mean_ms,
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        run.latency_reads.mean_ms,
        run.latency_writes.mean_ms,
    ]
}

/// A run as such a row: latencies in ms.
fn times(run: &Run) -> Vec<String> {
    let mut row = vec![run.warm.clone(), run.ios.to_string(), format!("{:.1}", run.seconds)];
    row.extend(latencies_ms(run).map(|ms| format!("{ms:.3}")));
    row
}

/// Columns of what reached the back ends in a run.
pub(crate) const SERVER_HEADER: &[&str] =
    &["WARM", "SERVER READS", "READ", "SERVER WRITES", "WRITTEN", "HITS"];

/// A run as such a row.
fn server(run: &Run) -> Vec<String> {
    let server = &run.server;
    vec![
        run.warm.clone(),
        server.reads.to_string(),
        show_size(server.read_bytes),
        server.writes.to_string(),
        show_size(server.write_bytes),
        run.hit_ratio.map_or_else(|| "-".to_owned(), percent),
    ]
}

pub(crate) const CHANGE_HEADER: &[&str] =
    &["AGAINST NONE", "SERVICE", "MEAN", "SERVER REQUESTS", "SERVER READS"];

/// The changes as rows, what was published last.
pub(crate) fn changes(outcome: &Outcome) -> impl Iterator<Item = Vec<String>> {
    let percent = |percent: f64| Unit::Ratio.change(percent / 100.0);
    let of = move |warm: &str, change: &Change| {
        vec![
            warm.to_owned(),
            percent(change.service_percent),
            percent(change.latency_percent),
            percent(change.server_requests_percent),
            percent(change.server_reads_percent),
        ]
    };
    let runs = outcome.runs.iter().filter(|run| run.warm != WITHOUT);
    let own = runs.filter_map(move |run| Some(of(&run.warm, &run.change?)));
    let published = outcome.published.map(|published| {
        vec![
            "published".to_owned(),
            format!("nearly {:.0} %", published.service_percent),
            "-".to_owned(),
            format!("nearly {:.0} %", published.server_requests_percent),
            "almost all".to_owned(),
        ]
    });
    own.chain(published)
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>, room: Option<usize>) -> String {
    let mut table = Table::new(1, header).least(&["P99.9", "P90", "P50", "SECONDS", "REQUESTS"]);
    rows.for_each(|row| table.push(row));
    table.render(room)
}

const NOTE: &str = "latencies in ms; SERVICE is the mean from submission, the others \
    count from the time that the trace says; READ and WRITE are means\n";
