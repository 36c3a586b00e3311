//! A run as text: pblio's closing lines, then what pblio lacks.

use crate::latency::LatencySummary;
use crate::spc1::{CacheReport, MockReport, Report};
use cinnabar_text::{Table, percent};

const GIB: f64 = (1_u64 << 30) as f64;

/// A run at one rate.
pub fn run(report: &Report, room: Option<usize>) -> String {
    let cache = report.cache.as_ref();
    let mut parts = vec![head(report)];
    // pblio's latency begins at the submission; ours, below, at the time that the I/O was due.
    parts.push(format!(
        "-----\nAvg IOPS:{:.2} Avg Latency:{:.4} ms\n",
        report.iops, report.dispatched_latency.mean_ms
    ));
    parts.extend(cache.map(pblio_cache));
    parts.extend(["\n".into(), latencies(report, room), "\n".into(), rest(report)]);
    parts.extend(cache.map(cache_rest));
    parts.concat()
}

/// What was run, as pblio says it.
fn head(report: &Report) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<9}: {value}\n"));
    match &report.cache {
        None => line("Cache", "None".into()),
        Some(cache) => {
            line("Cache", format!("{} ({})", cache.device, cache.began));
            line("C Size", format!("{:.2} GB", cache.capacity_blocks as f64 * 4096.0 / GIB));
        }
    }
    for (asu, bytes) in report.asu_bytes.iter().enumerate() {
        line(&format!("ASU{}", asu + 1), format!("{:.2} GB", *bytes as f64 / GIB));
    }
    line("BSUs", report.bsu.to_string());
    line("Contexts", report.contexts.to_string());
    line("Run time", format!("{:.0} s", report.length_s));
    line("Mix, seed", format!("{}, {}", report.mix, report.seed));
    lines.concat()
}

fn pblio_cache(cache: &CacheReport) -> String {
    let rate = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let CacheReport { reads, read_hits, invalidations, invalidate_hits, .. } = *cache;
    let lines = [
        format!("Read Hit Rate: {:.4} ({read_hits} of {reads})", rate(read_hits, reads)),
        format!(
            "Invalidate Hit Rate: {:.4} ({invalidate_hits} of {invalidations})",
            rate(invalidate_hits, invalidations)
        ),
        format!("Insertions: {}", cache.insertions),
        format!("Evictions: {}", cache.evictions),
        "== Log ==".into(),
        format!(
            "Ram Hit Rate: {:.4} ({}, probation)",
            rate(cache.ram_hits, read_hits),
            cache.ram_hits
        ),
        format!(
            "Buffer Hit Rate: {:.4} ({}, segments being filled)",
            rate(cache.buffer_hits, read_hits),
            cache.buffer_hits
        ),
        format!("Storage Hits: {}", cache.storage_hits),
        format!("Wraps: {:.2}", cache.wraps),
        format!("Segment Reads: {} blocks reinserted", cache.reinserted_blocks),
        format!("Mean Read Latency: {:.2} us", cache.mean_read_us),
        format!("Mean Segment Write Latency: {:.2} us", cache.mean_write_us),
    ];
    lines.join("\n") + "\n"
}

fn latencies(report: &Report, room: Option<usize>) -> String {
    let mut table = Table::new(
        1,
        &[
            "FROM ITS TIME",
            "IOS",
            "SHARE",
            "READS",
            "BLOCKS",
            "MEAN",
            "P50",
            "P90",
            "P99",
            "P99.9",
            "MAX",
        ],
    )
    .least(&["BLOCKS", "SHARE", "P99.9", "P90", "READS", "P50"]);
    let all = report.ios.max(1) as f64;
    let mut row = |name: &str, of: &LatencySummary, reads: Option<f64>, blocks: Option<f64>| {
        let mut cells = vec![name.to_owned(), of.count.to_string()];
        cells.push(percent(of.count as f64 / all));
        cells.push(reads.map_or_else(String::new, percent));
        cells.push(blocks.map_or_else(String::new, |blocks| format!("{blocks:.2}")));
        let times = [of.mean_ms, of.p50_ms, of.p90_ms, of.p99_ms, of.p999_ms, of.max_ms];
        cells.extend(times.map(ms));
        table.push(cells);
    };
    for stream in &report.streams {
        row(stream.name, &stream.latency, Some(stream.read_share), Some(stream.mean_blocks));
    }
    row("reads", &report.read_latency, None, None);
    row("writes", &report.write_latency, None, None);
    row("all", &report.latency, None, None);
    table.render(room)
}

fn rest(report: &Report) -> String {
    let server = &report.server;
    let verdict = if report.within_30_ms { "yes" } else { "no" };
    format!(
        "mean within 30 ms: {verdict}\n\
         storage: {} reads for {} asked ({} cut), {} writes for {}; {} of all cut\n\
         CPU: {:.1} us an I/O\n",
        server.reads,
        server.asked_reads,
        percent(server.reads_cut),
        server.writes,
        server.asked_writes,
        percent(server.all_cut),
        report.cpu_us_per_io,
    )
}

fn cache_rest(cache: &CacheReport) -> String {
    const MIB: f64 = 1_048_576.0;
    let errors = match cache.device_errors {
        0 => String::new(),
        errors => {
            format!("cache device: {errors} reads or writes failed, or were not what was written\n")
        }
    };
    format!(
        "cache: {} of {} blocks, {:.1} MiB written to flash; RAM: {:.2} B a block, {:.2} B of \
         ghost, {:.1} MiB of buffers\n{errors}",
        cache.cached_blocks,
        cache.capacity_blocks,
        cache.flash_written_bytes as f64 / MIB,
        cache.ram_bytes_per_block,
        cache.ghost_bytes_per_block,
        cache.buffer_bytes as f64 / MIB,
    )
}

pub(crate) fn ms(ms: f64) -> String {
    if ms < 1.0 { format!("{:.0} us", ms * 1e3) } else { format!("{ms:.2} ms") }
}

/// A run of generator and engine alone.
pub fn mock(report: &MockReport, room: Option<usize>) -> String {
    let mut table = Table::new(2, &["mock", "generator and engine; no media, no pace"]);
    let mut row = |name: &str, value: String| table.push(vec![name.to_owned(), value]);
    let sizes = report.asu_bytes.map(|bytes| format!("{:.2}", bytes as f64 / GIB));
    row("ASUs", format!("{} GiB", sizes.join(", ")));
    row("BSUs", format!("{}, mix {}, seed {}", report.bsu, report.mix, report.seed));
    row("I/Os", format!("{} in {:.1} s", report.ios, report.elapsed_s));
    row("IOPS", format!("{:.0}", report.iops));
    row("CPU", format!("{:.2} us an I/O", report.cpu_us_per_io));
    if report.capacity_blocks > 0 {
        row("cache", format!("{} of {} blocks", report.cached_blocks, report.capacity_blocks));
        let (table, ghost) = (report.ram_bytes_per_block, report.ghost_bytes_per_block);
        row("RAM", format!("{table:.2} B a block and {ghost:.2} B of ghost, data buffers apart"));
        row("read hits", format!("{:.3}, {:.3} late", report.hit_ratio, report.hit_ratio_late));
        row("reads cut", format!("{}, late", percent(report.reads_cut_late)));
        row("all cut", format!("{}, late", percent(report.all_cut_late)));
    }
    table.render(room)
}
