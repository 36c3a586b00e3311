//! Checking a device: superblock, checkpoints, journal, log, and what the next start will do.

mod index;
mod judge;
mod log;
mod start;

use super::journal::Ring;
use super::regions::{Region, Regions};
use super::report::{CheckReport, FINDINGS_MAX, StartKind};
use super::sum::DeviceReport;
use super::{OfflineError, Source, Watch};
use cinnabar_engine::units::BLOCK_BYTES;
pub(super) use index::Index;
pub(super) use judge::FORMAT_HINT;
pub(super) use start::choose;

/// Segments of a device looked at if not all are.
pub const SEGMENTS_SAMPLED: u32 = 1024;

/// How much to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Every chunk header, and the data of every block; otherwise the headers of a sample.
    pub all: bool,
}

/// What is damaged, in words.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) lines: Vec<String>,
    pub(crate) more: u64,
}

impl Findings {
    pub(crate) fn add(&mut self, line: String) {
        if self.lines.len() < FINDINGS_MAX {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }
}

/// Checks the device of path `device`, region by region.
///
/// # Errors
/// When it is not a cache device, or one of another version. Damage is a result.
pub fn check(
    source: &(impl Source + ?Sized),
    device: &str,
    options: CheckOptions,
    watch: &mut dyn Watch,
) -> Result<DeviceReport, OfflineError> {
    let regions = Regions::read(source);
    regions.known(device)?;
    let mut shards = Vec::with_capacity(regions.all.len());
    for region in &regions.all {
        if let Some(shard) = region.shard {
            watch.shard(shard, regions.all.len() as u32);
        }
        shards.push(check_region(&region.view(source), device, region, options, watch));
    }
    Ok(DeviceReport::new(source.blocks() * BLOCK_BYTES, shards))
}

/// One region; `source` is no more than that.
fn check_region(
    source: &(impl Source + ?Sized),
    device: &str,
    region: &Region,
    options: CheckOptions,
    watch: &mut dyn Watch,
) -> CheckReport {
    let copies = &region.copies;
    let Ok(superblock) = copies.newest() else { return judge::refused(source, device, region) };
    let mut findings = Findings::default();
    judge::superblocks(copies, &mut findings);
    judge::size(source, superblock, &mut findings);
    let slots = [0, 1].map(|slot| Index::read(source, superblock, slot, watch));
    let ring = Ring::read(source, superblock, watch);
    let pages = ring.pages;
    let chosen = choose(superblock, &slots).map(|slot| &slots[slot]);
    let durable = slots.iter().filter_map(|slot| slot.journal_durable(superblock)).max();
    let read = ring.conclude(chosen.map_or(1, Index::journal_page), durable.unwrap_or(0));
    let next_start = if copies.outranked() {
        start::outranked()
    } else {
        start::next(superblock, chosen, read.as_ref())
    };
    judge::index(superblock, chosen, &mut findings);
    judge::journal(superblock, pages, read.as_ref(), &mut findings);
    let believed = matches!(next_start.kind, StartKind::Warm | StartKind::Recover);
    let (index, records) = (
        chosen.filter(|_| believed),
        read.as_ref().filter(|_| believed).map_or(&[][..], |read| &read.records),
    );
    let log = log::check(source, superblock, (index, records), options, watch, &mut findings);
    CheckReport {
        device: device.to_owned(),
        shard: region.shard,
        size_bytes: source.blocks() * BLOCK_BYTES,
        damaged: !findings.lines.is_empty(),
        findings: findings.lines,
        more_findings: findings.more,
        next_start,
        superblocks: copies.copies.iter().map(judge::copy).collect(),
        state: Some(judge::state(superblock)),
        checkpoints: slots
            .iter()
            .map(|slot| slot.report(chosen.is_some_and(|chosen| chosen.slot == slot.slot)))
            .collect(),
        journal: Some(judge::ring(superblock, pages, read.as_ref())),
        log: Some(log),
        volumes: index::volumes(index, records),
    }
}
