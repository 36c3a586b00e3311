//! What a check found on a device as a whole: the last line of `cache check --json` where there are
//! several shards. Keys are only ever added; those that a shard's report has too mean the same.
//!
//! Made by `check`, shown by the command line.

use super::check::FORMAT_HINT;
use super::report::{CheckReport, FINDINGS_MAX, LogReport, StartKind, StartReport};
use serde::Serialize;
use std::collections::BTreeMap;

/// All of it.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Of each region, in order; at least one.
    pub shards: Vec<CheckReport>,
    /// Of all together.
    pub sum: SumReport,
}

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct SumReport {
    /// Path of the device.
    pub device: String,
    pub size_bytes: u64,
    /// Logical shards.
    pub shards: u32,
    /// Something is not as it should be.
    pub damaged: bool,
    /// What is damaged, with the shard where there are several; at most [`FINDINGS_MAX`] lines.
    pub findings: Vec<String>,
    /// Findings beyond those.
    pub more_findings: u64,
    /// What the next start will do; the kind is the worst of all.
    pub next_start: StartReport,
    /// Blocks of data that fit.
    pub capacity_blocks: u64,
    /// Blocks in the checkpoints that count.
    pub checkpoint_blocks: u64,
    /// Records of the journals that count.
    pub journal_records: u64,
    pub log: LogReport,
    /// Volumes that any shard knows, by name.
    pub volumes: Vec<VolumeSum>,
}

/// A volume in all shards.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeSum {
    pub name: String,
    /// Shards that know it.
    pub shards: u32,
    /// Those of them that have a proof of the back end.
    pub proven: u32,
    /// It may have been written since one of the proofs was taken.
    pub written: bool,
    /// Size in bytes, the largest that is known.
    pub size_bytes: u64,
    /// Its blocks in the checkpoints that count.
    pub checkpoint_blocks: u64,
}

impl DeviceReport {
    /// Sums up.
    pub(super) fn new(size_bytes: u64, shards: Vec<CheckReport>) -> Self {
        let mut findings: Vec<String> = shards
            .iter()
            .flat_map(|report| report.findings.iter().map(|line| named(report, line)))
            .collect();
        let beyond = findings.len().saturating_sub(FINDINGS_MAX) as u64;
        findings.truncate(FINDINGS_MAX);
        let states = shards.iter().filter_map(|report| report.state.as_ref());
        let sum = SumReport {
            device: shards[0].device.clone(),
            size_bytes,
            shards: shards.len() as u32,
            damaged: shards.iter().any(|report| report.damaged),
            findings,
            more_findings: beyond + shards.iter().map(|report| report.more_findings).sum::<u64>(),
            next_start: next_start(&shards),
            capacity_blocks: states.map(|state| state.capacity_blocks).sum(),
            checkpoint_blocks: shards.iter().map(CheckReport::checkpoint_blocks).sum(),
            journal_records: shards.iter().map(CheckReport::journal_records).sum(),
            log: log(&shards),
            volumes: volumes(&shards),
        };
        Self { shards, sum }
    }
}

impl CheckReport {
    /// Blocks in the checkpoint that counts.
    pub fn checkpoint_blocks(&self) -> u64 {
        let counting = self.checkpoints.iter().filter(|checkpoint| checkpoint.counts);
        counting.map(|checkpoint| checkpoint.blocks).sum()
    }

    /// Records of the journal that count.
    pub fn journal_records(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.records.values().sum())
    }
}

fn named(report: &CheckReport, line: &str) -> String {
    report.shard.map_or_else(|| line.to_owned(), |shard| format!("shard {shard}: {line}"))
}

/// One sentence for each thing that happens, with the shards that it happens to.
fn next_start(shards: &[CheckReport]) -> StartReport {
    if let [only] = shards {
        return only.next_start.clone();
    }
    let of = |kind| shards.iter().filter(move |report| report.next_start.kind == kind);
    let names = |kind| {
        let numbers: Vec<String> =
            of(kind).filter_map(|report| Some(report.shard?.to_string())).collect();
        match numbers.as_slice() {
            all if all.len() == shards.len() => format!("all {} shards", all.len()),
            [one] => format!("shard {one}"),
            several => format!("shards {}", several.join(", ")),
        }
    };
    // From the best to the worst.
    let kinds =
        [StartKind::Warm, StartKind::Recover, StartKind::Cold, StartKind::Drop, StartKind::Refuse];
    let present: Vec<StartKind> = kinds.into_iter().filter(|kind| of(*kind).count() > 0).collect();
    let worst = *present.last().expect("a device has a shard");
    if worst == StartKind::Refuse {
        let repairable = of(worst).all(|report| report.state.is_some());
        let hint = if repairable { "cinnabar cache repair DEVICE repairs it" } else { FORMAT_HINT };
        let why = format!("because of {}; {hint}", names(worst));
        let text = format!("the device is not used and volumes pass through, {why}");
        return StartReport { kind: worst, text };
    }
    let told = present.iter().map(|kind| {
        let blocks: u64 = of(*kind).map(CheckReport::checkpoint_blocks).sum();
        let records: u64 = of(*kind).map(CheckReport::journal_records).sum();
        let what = match kind {
            StartKind::Warm => format!(
                "the last run stopped clean: checkpoints with {blocks} blocks are kept, where the \
                 back end proves that it was not written since"
            ),
            StartKind::Recover => format!(
                "the last run crashed: checkpoints with {blocks} blocks, {records} journal records \
                 and the chunks written since are put together, and kept where the back end proves \
                 that nothing else wrote it"
            ),
            // Of several shards all for their own reasons, which the findings tell.
            _ => of(*kind).next().expect("it is present").next_start.text.clone(),
        };
        format!("{}: {what}", names(*kind))
    });
    StartReport { kind: worst, text: told.collect::<Vec<_>>().join("; ") }
}

fn log(shards: &[CheckReport]) -> LogReport {
    let mut sum = LogReport::default();
    for log in shards.iter().filter_map(|report| report.log.as_ref()) {
        sum.segments += log.segments;
        sum.segments_checked += log.segments_checked;
        sum.segments_used += log.segments_used;
        sum.chunks += log.chunks;
        sum.blocks += log.blocks;
        sum.damaged_segments += log.damaged_segments;
        sum.data_checked |= log.data_checked;
        sum.wrong_blocks += log.wrong_blocks;
        sum.torn_blocks += log.torn_blocks;
    }
    sum
}

fn volumes(shards: &[CheckReport]) -> Vec<VolumeSum> {
    let mut sums = BTreeMap::<&str, VolumeSum>::new();
    for volume in shards.iter().flat_map(|report| &report.volumes) {
        let sum = sums.entry(&volume.name).or_default();
        sum.name.clone_from(&volume.name);
        sum.shards += 1;
        sum.proven += u32::from(volume.proof.is_some());
        sum.written |= volume.written;
        sum.size_bytes = sum.size_bytes.max(volume.size_bytes);
        sum.checkpoint_blocks += volume.checkpoint_blocks;
    }
    sums.into_values().collect()
}
