//! A trace's summary as tables for people.

use super::Info;
use super::summary::{Sizes, Summary, Volume};
use cinnabar_text::{Table, percent_of, show_size};

const BLOCK_BYTES: u64 = 4096;

/// The summary as two tables: the whole trace, its volumes.
pub fn render(info: &Info<'_>, room: Option<usize>) -> String {
    let summary = &info.summary;
    let mut table = Table::new(2, &["trace", &info.trace.display().to_string()]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    let file = info.file_bytes.map_or(String::new(), |bytes| format!(", {}", show_size(bytes)));
    line("format", format!("{}, {}{file}", info.format, info.packing));
    line("time", if info.has_times { time(summary) } else { "none in this format".to_owned() });
    line("requests", requests(summary));
    let counts = &summary.counts;
    let accesses = counts.accesses();
    for (name, count, bytes, sizes) in [
        ("reads", counts.reads, counts.read_bytes, &summary.read_size),
        ("writes", counts.writes, counts.write_bytes, &summary.write_size),
    ] {
        line(name, format!("{count} ({}){}", percent_of(count, accesses), lengths(bytes, sizes)));
    }
    line("flushes", counts.flushes.to_string());
    line("discards", counts.discards.to_string());
    line("references", references(summary));
    line("footprint", footprint(summary));
    let share = |part: u64| format!("{} of reads and writes", percent_of(part, accesses));
    line("unaligned", format!("{}, to 4 KiB", share(summary.unaligned)));
    line("sequential", format!("{} begin where the one before ended", share(summary.sequential)));
    line("volumes", summary.volume_count.to_string());
    table.render(room) + "\n" + &volumes(summary, room)
}

fn time(summary: &Summary) -> String {
    let span = summary.last_ts_us - summary.first_ts_us;
    let order = match summary.out_of_order {
        None => ", put in order as it was read".to_owned(),
        Some(0) => String::new(),
        Some(late) => format!(", {late} requests are earlier than the one before them"),
    };
    show_time(span) + &order
}

fn requests(summary: &Summary) -> String {
    let requests = summary.counts.requests;
    let seconds = (summary.last_ts_us - summary.first_ts_us) as f64 / 1e6;
    if seconds == 0.0 {
        return requests.to_string();
    }
    let busiest = summary.busiest_second;
    let most = busiest.map_or(String::new(), |most| format!(", {most} in the busiest one"));
    format!("{requests}, {:.1} a second{most}", requests as f64 / seconds)
}

fn lengths(bytes: u64, sizes: &Sizes) -> String {
    if sizes.max == 0 {
        return String::new();
    }
    let kib = |bytes: f64| format!("{:.1} KiB", bytes / 1024.0);
    let [mean, p50, p99] = [sizes.mean, sizes.p50 as f64, sizes.p99 as f64].map(kib);
    format!(", {}; mean {mean}, median {p50}, P99 {p99}", show_size(bytes))
}

fn references(summary: &Summary) -> String {
    let Summary { references, footprint, .. } = summary;
    let again = *references as f64 / footprint.blocks.max(1) as f64;
    format!("{references} of blocks of 4 KiB, {again:.2} to each of them")
}

fn footprint(summary: &Summary) -> String {
    let footprint = &summary.footprint;
    let about = if summary.footprint_exact { "" } else { "about " };
    format!(
        "{about}{} blocks, {}; read {}, written {}",
        footprint.blocks,
        blocks(footprint.blocks),
        blocks(footprint.blocks_read),
        blocks(footprint.blocks_written)
    )
}

fn blocks(count: u64) -> String {
    show_size(count * BLOCK_BYTES)
}

fn volumes(summary: &Summary, room: Option<usize>) -> String {
    let header = [
        "NUMBER",
        "VOLUME",
        "REQUESTS",
        "READS",
        "WRITES",
        "READ",
        "WRITTEN",
        "FOOTPRINT",
        "REFS/BLOCK",
        "SEQUENTIAL",
        "NEEDS",
    ];
    let mut table = Table::new(2, &header).least(&[
        "REFS/BLOCK",
        "SEQUENTIAL",
        "WRITTEN",
        "READ",
        "FOOTPRINT",
        "WRITES",
        "READS",
    ]);
    for volume in &summary.volumes {
        let Volume { number, name, counts, references, footprint, sequential, size_bytes } = volume;
        table.push(vec![
            number.to_string(),
            name.clone(),
            counts.requests.to_string(),
            counts.reads.to_string(),
            counts.writes.to_string(),
            show_size(counts.read_bytes),
            show_size(counts.write_bytes),
            blocks(footprint.blocks),
            format!("{:.2}", *references as f64 / footprint.blocks.max(1) as f64),
            percent_of(*sequential, counts.accesses()),
            show_size(*size_bytes),
        ]);
    }
    let left = summary.volume_count - summary.volumes.len() as u64;
    let more = match left {
        0 => String::new(),
        left => format!("and {left} volumes with fewer requests: --volumes all\n"),
    };
    table.render(room) + &more
}

/// A time of a trace for people, in the unit that fits: `190.3 s`, `2.50 h`.
pub fn show_time(micros: u64) -> String {
    let seconds = micros as f64 / 1e6;
    if seconds < 600.0 {
        format!("{seconds:.3} s")
    } else if seconds < 100.0 * 3600.0 {
        format!("{:.2} h", seconds / 3600.0)
    } else {
        format!("{:.1} d", seconds / 86_400.0)
    }
}
