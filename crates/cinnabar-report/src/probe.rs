//! Latencies of a device by operation, size and depth, as text.

use cinnabar_bench::probe::plan::Op;
use cinnabar_bench::probe::report::{Report, Row};
use cinnabar_text::{Table, show_size};

/// The figures as a table.
pub fn render(report: &Report, room: Option<usize>) -> String {
    let mut header =
        vec!["OP", "SIZE", "DEPTH", "IOPS", "MB/s", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"];
    header.extend(report.preset.as_ref().map(|_| "PRESET IOPS"));
    header.extend(report.preset.as_ref().map(|_| "MEAN"));
    let mut table = Table::new(1, &header);
    report.cells.iter().for_each(|row| table.push(cells_of(row)));
    let mut text = table.render(room);
    text += "latencies in us\n";
    if let Some(preset) = &report.preset {
        let file = &preset.file;
        let (iops, latency) = (preset.iops_off_percent_max, preset.latency_off_percent_max);
        text += &[
            format!("preset {file}: within {iops:.1} % of the IOPS everywhere, "),
            format!("{latency:.1} % of the mean latency at depth 1\n"),
            format!("use it: sim:@{file}:file:PATH\n"),
        ]
        .concat();
    }
    text
}

fn cells_of(row: &Row) -> Vec<String> {
    let latency = row.latency_us;
    let us = |us: f64| format!("{us:.1}");
    let (size, rate) = match row.op {
        Op::Flush => ("-".to_owned(), "-".to_owned()),
        _ => (show_size(row.size_bytes), format!("{:.1}", row.bytes_per_s / 1e6)),
    };
    let mut cells = vec![row.op.name().to_owned(), size, row.depth.to_string()];
    cells.extend([format!("{:.0}", row.iops), rate]);
    let latencies =
        [latency.mean, latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max];
    cells.extend(latencies.map(us));
    if let Some(preset) = row.preset {
        cells.extend([format!("{:.0}", preset.iops), us(preset.mean_us)]);
    }
    cells
}
