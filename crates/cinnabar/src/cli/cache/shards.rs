//! `cinnabar cache check` for people, of a device with several shards: a line each, and the sum.

use super::verdict;
use crate::offline::report::{CheckReport, LogReport};
use crate::offline::sum::{DeviceReport, VolumeSum};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::Table;
use cinnabar_text::cli::output;
use cinnabar_text::show_size;

/// The whole report.
pub(super) fn render(report: &DeviceReport) -> String {
    let sum = &report.sum;
    let mut parts = vec![head(report), "\n".to_owned(), shards(report)];
    if !sum.volumes.is_empty() {
        parts.push(format!("\n{}", volumes(&sum.volumes, sum.shards)));
    }
    parts.push(verdict(&sum.findings, sum.more_findings, &sum.next_start));
    parts.concat()
}

fn head(report: &DeviceReport) -> String {
    let sum = &report.sum;
    let mut table = Table::new(2, &["device", &sum.device]);
    let mut line = |name: &str, text: String| table.push(vec![name.to_owned(), text]);
    line("size", show_size(sum.size_bytes));
    line("shards", sum.shards.to_string());
    if let Some(state) = &report.shards[0].state {
        line("identity", state.uuid.clone());
    }
    line("room", show_size(sum.capacity_blocks * BLOCK_BYTES));
    let log = &sum.log;
    let data = if log.data_checked { "every block verified" } else { "data not read" };
    line("log", format!("{} of {} segments read, {data}", log.segments_checked, log.segments));
    output::table(&table)
}

fn shards(report: &DeviceReport) -> String {
    let header = [
        "SHARD",
        "STATE",
        "SUPERBLOCK",
        "CHECKPOINT",
        "BLOCKS",
        "RECORDS",
        "CHUNKS",
        "LOG BLOCKS",
        "WRONG",
        "DAMAGES",
    ];
    let mut table =
        Table::new(3, &header).least(&["CHUNKS", "RECORDS", "LOG BLOCKS", "BLOCKS", "CHECKPOINT"]);
    for (number, shard) in report.shards.iter().enumerate() {
        table.push(row(number, shard));
    }
    let sum = &report.sum;
    let mut last = vec!["all".to_owned(), String::new(), String::new(), String::new()];
    let damages = sum.findings.len() as u64 + sum.more_findings;
    last.extend(counts((sum.checkpoint_blocks, sum.journal_records), Some(&sum.log), damages));
    table.push(last);
    output::table(&table)
}

fn row(number: usize, report: &CheckReport) -> Vec<String> {
    let state = report.state.as_ref().map_or("-", |state| state.state).replace('_', " ");
    let copies: Vec<&str> = report.superblocks.iter().map(|copy| copy.status).collect();
    let counting = report.checkpoints.iter().find(|checkpoint| checkpoint.counts);
    let checkpoint = counting.and_then(|checkpoint| checkpoint.sequence);
    let mut row = vec![
        number.to_string(),
        state,
        copies.join(", "),
        checkpoint.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string()),
    ];
    let damages = report.findings.len() as u64 + report.more_findings;
    let numbers = (report.checkpoint_blocks(), report.journal_records());
    row.extend(counts(numbers, report.log.as_ref(), damages));
    row
}

/// The columns that have a sum.
fn counts((blocks, records): (u64, u64), log: Option<&LogReport>, damages: u64) -> [String; 6] {
    let of_log = |count: fn(&LogReport) -> u64| {
        log.map_or_else(|| "-".to_owned(), |log| count(log).to_string())
    };
    let verified = log.filter(|log| log.data_checked);
    [
        blocks.to_string(),
        records.to_string(),
        of_log(|log| log.chunks),
        of_log(|log| log.blocks),
        verified.map_or_else(|| "-".to_owned(), |log| log.wrong_blocks.to_string()),
        damages.to_string(),
    ]
}

fn volumes(volumes: &[VolumeSum], shards: u32) -> String {
    let header = ["VOLUME", "PROOF", "SIZE", "SHARDS", "CHECKPOINTED"];
    let mut table = Table::new(2, &header);
    for volume in volumes {
        let proof = match (volume.proven, volume.written) {
            (0, _) => "none",
            (_, false) => "left clean",
            (_, true) => "of a heartbeat",
        };
        table.push(vec![
            volume.name.escape_debug().to_string(),
            proof.to_owned(),
            show_size(volume.size_bytes),
            format!("{} of {shards}", volume.shards),
            show_size(volume.checkpoint_blocks * BLOCK_BYTES),
        ]);
    }
    output::table(&table)
}
