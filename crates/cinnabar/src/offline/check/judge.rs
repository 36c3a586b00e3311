//! What is damage and what is not, and how it is told.

use super::{Findings, Index};
use crate::offline::Source;
use crate::offline::journal::{Pages, kinds};
use crate::offline::regions::Region;
use crate::offline::report::{
    CheckReport, CopyReport, JournalReport, StartKind, StartReport, StateReport, hex,
};
use crate::offline::superblocks::{Copy, Superblocks};
use cinnabar_engine::journal::scan::Read;
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;

/// What helps if a region can't be used. A start formats nothing that begins as a device of ours.
pub(crate) const FORMAT_HINT: &str =
    "with the daemon running, cinnabar cache replace DEVICE --format reformats it";

/// The copies of the superblock. One that was never written is as it should be.
pub(super) fn superblocks(copies: &Superblocks, findings: &mut Findings) {
    for (page, found) in copies.copies.iter().enumerate() {
        let report = copy(found);
        if !matches!(found, Copy::Good(_) | Copy::Blank) {
            findings.add(format!("superblock copy {page}: {}", report.reason));
        }
    }
    if let [Copy::Good(one), Copy::Good(other)] = &copies.copies
        && (one.uuid, one.geometry) != (other.uuid, other.geometry)
    {
        findings.add("the superblock's copies are of two devices".to_owned());
    }
}

/// The size of the region, which may be the whole device.
pub(super) fn size(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    findings: &mut Findings,
) {
    let geometry = &superblock.geometry;
    let (has, needs) = (source.blocks() * BLOCK_BYTES, geometry.region_bytes());
    if has < needs {
        let what = if geometry.shards == 1 { "the device" } else { "its region" };
        findings.add(format!("{what} has {has} bytes, its superblock speaks of {needs}"));
    }
}

/// The checkpoint that counts. The other slot may hold anything: half of a newer one, after a crash.
pub(super) fn index(superblock: &Superblock, chosen: Option<&Index>, findings: &mut Findings) {
    match (superblock.state, chosen) {
        (DeviceState::Clean { checkpoint }, None) => {
            findings.add(format!("checkpoint {checkpoint}, of the clean stop, is damaged"));
        }
        (DeviceState::InUse { .. }, None) => {
            findings.add("both checkpoints are damaged".to_owned());
        }
        (_, Some(index)) if index.pages_bad > 0 => findings.add(format!(
            "checkpoint slot {}: {} of {} pages are damaged, what they describe is lost",
            index.slot,
            index.pages_bad,
            index.pages_bad + index.pages_good
        )),
        _ => {}
    }
}

/// The journal. What a crash tears is whole in each sector.
pub(super) fn journal(
    superblock: &Superblock,
    pages: Pages,
    read: Option<&Read>,
    findings: &mut Findings,
) {
    if superblock.state == DeviceState::Cold {
        // It is written out blank before it is used again.
        return;
    }
    if pages.damaged > 0 {
        findings.add(format!("journal: {} damaged pages", pages.damaged));
    }
    if read.is_none() {
        findings.add("journal: records that were durable are missing".to_owned());
    }
}

/// A device, or a region, without a superblock that counts: no start accepts it.
pub(super) fn refused(
    source: &(impl Source + ?Sized),
    device: &str,
    region: &Region,
) -> CheckReport {
    let mut findings = Findings::default();
    let text = match region.fault() {
        Some(fault) if region.shard.is_some() => {
            findings.add(fault.to_string());
            format!("the device is not used and volumes pass through: {fault}; {FORMAT_HINT}")
        }
        _ => {
            superblocks(&region.copies, &mut findings);
            "the device is not used and volumes pass through: both copies of its superblock are \
             damaged; cinnabar serve --force reformats it"
                .to_owned()
        }
    };
    CheckReport {
        device: device.to_owned(),
        shard: region.shard,
        size_bytes: source.blocks() * BLOCK_BYTES,
        damaged: true,
        findings: findings.lines,
        more_findings: findings.more,
        next_start: StartReport { kind: StartKind::Refuse, text },
        superblocks: region.copies.copies.iter().map(copy).collect(),
        state: None,
        checkpoints: Vec::new(),
        journal: None,
        log: None,
        volumes: Vec::new(),
    }
}

/// A copy of the superblock.
pub(crate) fn copy(copy: &Copy) -> CopyReport {
    let (status, reason, sequence) = match copy {
        Copy::Blank => ("blank", String::new(), None),
        Copy::Good(superblock) => ("good", String::new(), Some(superblock.sequence)),
        Copy::Stray(superblock) => {
            let reason = "it is another device's, or another shard's".to_owned();
            ("stray", reason, Some(superblock.sequence))
        }
        Copy::Bad(error) => ("damaged", error.to_string(), None),
        Copy::Unreadable => ("unreadable", "it can't be read".to_owned(), None),
    };
    CopyReport { status, reason, sequence }
}

/// What the superblock says.
pub(crate) fn state(superblock: &Superblock) -> StateReport {
    let geometry = &superblock.geometry;
    let (state, checkpoint) = match superblock.state {
        DeviceState::Cold => ("cold", None),
        DeviceState::InUse { .. } => ("in_use", None),
        DeviceState::Clean { checkpoint } => ("clean", Some(checkpoint)),
    };
    StateReport {
        state,
        checkpoint,
        uuid: hex(&superblock.uuid),
        shards: geometry.shards,
        era: superblock.era,
        next_incarnation: superblock.next_incarnation,
        used_bytes: geometry.used_bytes(superblock.segments_used) / u64::from(geometry.shards),
        capacity_blocks: geometry.blocks_of(superblock.segments_used),
        segments: superblock.segments_used,
        segment_bytes: u64::from(geometry.segment_slots()) * BLOCK_BYTES,
    }
}

pub(super) fn ring(superblock: &Superblock, pages: Pages, read: Option<&Read>) -> JournalReport {
    JournalReport {
        pages: superblock.geometry.journal.1,
        whole: pages.whole,
        old: pages.old,
        torn: pages.torn,
        damaged: pages.damaged,
        complete: read.is_some(),
        first_page: read.map_or(0, |read| read.start),
        next_page: read.map_or(0, |read| read.next),
        records: read.map(|read| kinds(&read.records)).unwrap_or_default(),
    }
}
