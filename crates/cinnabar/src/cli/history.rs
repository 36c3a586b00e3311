//! `cinnabar history`: what the cache and its volumes did over the last hour or day.

use super::client::Daemon;
use cinnabar_config::history::{SampleReport, SamplesReport};
use cinnabar_config::volume::check_name;
use cinnabar_control::path::escape;
use cinnabar_text::cli::output;
use cinnabar_text::cli::parse::duration;
use cinnabar_text::{Failure, Table, show_size};
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to show.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The daemon keeps a sample each 10 seconds for an hour, and one each 5 minutes \
    for a day. HITS is of blocks read; latencies are of requests, the second one as 99 of 100 did not \
    exceed.\n\nExamples:\n  \
    cinnabar history\n  \
    cinnabar history vm1 --since 10min\n  \
    cinnabar history vm1 --since 24h --json | jq '.samples[] | [.at_ms, .hit_ratio]'"
)]
pub(super) struct Args {
    /// The volume [default: all of them together, and the cache]
    name: Option<String>,
    /// From so long ago on
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    since: Duration,
    /// Seconds from one sample to the next: 10 or 300 [default: the finest that reaches back that far]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    step: Option<u64>,
    /// Print a JSON object [default: a table]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut path = format!("/v1/history?since={}", now.saturating_sub(args.since).as_millis());
    // Writing to a string does not fail.
    if let Some(name) = &args.name {
        check_name(name)?;
        let _ok = write!(path, "&volume={}", escape(name));
    }
    if let Some(step) = args.step {
        let _ok = write!(path, "&step={step}");
    }
    let report: SamplesReport = args.daemon.get(&path)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&render(&report, now.as_millis() as u64))
}

/// Samples as a table, the newest last.
fn render(report: &SamplesReport, now_ms: u64) -> String {
    let header = [
        "AGO",
        "READS/s",
        "WRITES/s",
        "HITS",
        "READ",
        "READ 99%",
        "WRITE",
        "WRITE 99%",
        "BACKEND/s",
        "TO SSD/s",
        "HELD",
        "SHARE",
    ];
    let mut table = Table::new(0, &header).least(&["SHARE", "WRITE 99%", "READ 99%", "BACKEND/s"]);
    for sample in &report.samples {
        table.push(row(sample, now_ms));
    }
    if table.rows.is_empty() {
        return "nothing was kept in that time\n".to_owned();
    }
    let mut text = output::table(&table);
    if report.left_out > 0 {
        // Writing to a string does not fail.
        let _ok = writeln!(text, "note: of {} volumes nothing is kept: too many", report.left_out);
    }
    text
}

fn row(sample: &SampleReport, now_ms: u64) -> Vec<String> {
    let rate = |count: u64| per_second(count, sample.seconds);
    let time = |us: u64, of: u64| if of == 0 { "-".to_owned() } else { format!("{us} us") };
    let ms = Duration::try_from_secs_f64(sample.seconds).map_or(1, |span| span.as_millis().max(1));
    let a_second = |bytes: u64| show_size((u128::from(bytes) * 1000 / ms) as u64);
    vec![
        format!("{} s", now_ms.saturating_sub(sample.at_ms) / 1000),
        rate(sample.reads),
        rate(sample.writes),
        output::ratio(sample.hit_blocks, sample.read_blocks),
        time(sample.read_mean_us, sample.reads),
        time(sample.read_p99_us, sample.reads),
        time(sample.write_mean_us, sample.writes),
        time(sample.write_p99_us, sample.writes),
        rate(sample.backend_reads + sample.backend_writes),
        sample.ssd_written_bytes.map_or_else(|| "-".into(), a_second),
        show_size(sample.held_bytes),
        if sample.share_bytes == 0 { "-".into() } else { show_size(sample.share_bytes) },
    ]
}

fn per_second(count: u64, seconds: f64) -> String {
    format!("{:.0}", count as f64 / seconds.max(0.001))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_row_of_rates() {
        let sample = SampleReport {
            at_ms: 5_000,
            seconds: 10.0,
            reads: 1000,
            read_blocks: 1000,
            hit_blocks: 500,
            read_mean_us: 80,
            backend_reads: 20,
            ssd_written_bytes: Some(40 << 10),
            held_bytes: 1 << 20,
            ..SampleReport::default()
        };
        let cells = row(&sample, 12_000);
        assert_eq!(cells[..5], ["7 s", "100", "0", "50.0%", "80 us"]);
        assert_eq!(cells[6..], ["-", "-", "2", "4.0 KiB", "1.0 MiB", "-"]);
        assert_eq!(render(&SamplesReport::default(), 0), "nothing was kept in that time\n");
    }
}
