//! `cinnabar cache check` of a write log, for people.

use super::{damage, verdict};
use crate::offline::write_log::{HalfReport, LogVolumeReport, WriteLogReport};
use cinnabar_text::cli::output;
use cinnabar_text::{Failure, Table, show_size};

/// Prints the report, and fails if something is damaged.
pub(super) fn show(report: &WriteLogReport, json: bool) -> Result<(), Failure> {
    if json {
        output::json(report)?;
    } else {
        output::text(&render(report))?;
    }
    if !report.damaged {
        return Ok(());
    }
    Err(damage(&report.device, &report.findings, report.more_findings, &report.next_start))
}

fn render(report: &WriteLogReport) -> String {
    let mut table = Table::new(2, &["write log", &report.device]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    line("size", show_size(report.size_bytes));
    line("identity", report.uuid.clone());
    let copies: Vec<&str> = report.superblocks.iter().map(|copy| copy.status).collect();
    line("superblock", copies.join(", "));
    let size = show_size(report.segment_bytes);
    let (segments, used) = (report.segments, report.segments_used);
    line("segments", format!("{segments} of {size}, {used} in use"));
    let dirty: u64 = report.volumes.iter().map(|volume| volume.dirty_bytes).sum();
    let data = if report.data_checked { "every block verified" } else { "data not read" };
    line("dirty", format!("{}, {data}", show_size(dirty)));
    for half in &report.halves {
        line("half", half_line(half));
    }
    if let Some(memory) = &report.memory {
        let there = if memory.found { "" } else { ": it is not there" };
        line("newer writes", format!("in the write memory {}{there}", memory.path));
    }
    let mut parts = vec![output::table(&table)];
    if !report.volumes.is_empty() {
        parts.push(format!("\n{}", volumes(&report.volumes)));
    }
    parts.push(verdict(&report.findings, report.more_findings, &report.next_start));
    parts.concat()
}

/// A device of a mirrored log.
fn half_line(half: &HalfReport) -> String {
    let next = match half.next_start {
        "member" => "it counts",
        "filled" => "the next start fills it from the other one",
        _ => "it is not used",
    };
    let why = if half.reason.is_empty() { String::new() } else { format!(": {}", half.reason) };
    let lacking = match half.pages_lacking {
        0 => String::new(),
        pages => format!(", {pages} pages from the other one"),
    };
    let HalfReport { device, mark, generation, .. } = half;
    format!("{device}, marked {mark} (number {generation}), {next}{why}{lacking}")
}

fn volumes(volumes: &[LogVolumeReport]) -> String {
    let header = ["VOLUME", "STATE", "SIZE", "DIRTY", "CHUNKS", "EPOCHS", "VOID", "INCARNATION"];
    let mut table = Table::new(2, &header).least(&["INCARNATION", "VOID", "EPOCHS", "CHUNKS"]);
    for volume in volumes {
        let state = match (volume.damaged, volume.dirty_chunks) {
            (true, _) => "damaged",
            (false, 0) => "clean",
            (false, _) => "dirty",
        };
        table.push(vec![
            volume.name.escape_debug().to_string(),
            state.to_owned(),
            show_size(volume.size_bytes),
            show_size(volume.dirty_bytes),
            volume.dirty_chunks.to_string(),
            volume.dirty_epochs.to_string(),
            volume.void_chunks.to_string(),
            volume.incarnation.clone(),
        ]);
    }
    output::table(&table)
}
