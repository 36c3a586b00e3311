//! What a replay came to, as tables for people.
//!
//! Called by `bench replay`.

use crate::bench::replay::outcome::{Change, WITHOUT};
use crate::bench::replay::{Outcome, Run};
use crate::cli::output::Table;
use crate::config::units::show_size;

/// All of it.
pub(super) fn render(outcome: &Outcome) -> String {
    let mut parts = vec![trace(outcome)];
    parts.push(table(header(), outcome.runs.iter().map(row)));
    if outcome.runs.iter().any(|run| run.change.is_some()) {
        parts.push(table(CHANGE_HEADER, changes(outcome)));
    }
    if let Some(published) = outcome.published {
        parts.push(format!("published: {}: {}\n", published.what, published.words));
    }
    parts.join("\n")
}

/// The trace and what it was played on.
fn trace(outcome: &Outcome) -> String {
    let mut table = Table::new(2, &["trace", &outcome.trace.display().to_string()]);
    for volume in &outcome.volumes {
        let text = format!(
            "{}, {} touched, on {}",
            show_size(volume.end_bytes),
            show_size(volume.footprint_blocks * 4096),
            volume.target
        );
        table.row(vec![format!("volume {}", volume.number), text]);
    }
    for run in &outcome.runs {
        if let Some(warmed) = &run.warmed {
            let text = format!(
                "{} requests in {:.1} s; {} reads and {} writes reached the server",
                warmed.ios, warmed.seconds, warmed.server.reads, warmed.server.writes
            );
            table.row(vec![format!("warming {}", run.warm), text]);
        }
    }
    table.render()
}

/// Columns of the runs.
pub(super) fn header() -> &'static [&'static str] {
    &[
        "WARM",
        "REQUESTS",
        "SECONDS",
        "IOPS",
        "SERVICE",
        "MEAN",
        "P50",
        "P90",
        "P99",
        "P99.9",
        "READ MEAN",
        "WRITE MEAN",
        "SERVER READS",
        "SERVER WRITES",
        "HITS",
    ]
}

/// A run as a row: latencies in ms.
pub(super) fn row(run: &Run) -> Vec<String> {
    let ms = |ms: f64| format!("{ms:.3}");
    let latency = &run.latency;
    vec![
        run.warm.clone(),
        run.ios.to_string(),
        format!("{:.1}", run.seconds),
        format!("{:.0}", run.ios as f64 / run.seconds.max(1e-9)),
        ms(run.service.mean_ms),
        ms(latency.mean_ms),
        ms(latency.p50_ms),
        ms(latency.p90_ms),
        ms(latency.p99_ms),
        ms(latency.p999_ms),
        ms(run.latency_reads.mean_ms),
        ms(run.latency_writes.mean_ms),
        run.server.reads.to_string(),
        run.server.writes.to_string(),
        run.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio)),
    ]
}

/// Columns of the changes.
pub(super) const CHANGE_HEADER: &[&str] =
    &["AGAINST NONE", "SERVICE", "MEAN", "SERVER REQUESTS", "SERVER READS"];

/// The changes as rows, what was published last.
pub(super) fn changes(outcome: &Outcome) -> impl Iterator<Item = Vec<String>> {
    let percent = |percent: f64| format!("{percent:+.1} %");
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

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new(1, header);
    rows.for_each(|row| table.row(row));
    let note = if header == CHANGE_HEADER { "" } else { NOTE };
    table.render() + note
}

/// What the columns mean.
pub(super) const NOTE: &str = "latencies in ms; SERVICE is the mean from submission, the others \
    count from the time that the trace says\n";
