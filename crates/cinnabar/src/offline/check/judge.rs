//! What is damage and what is not, and how it is told.
//!
//! Called by `check`.

use super::{Findings, Index};
use crate::offline::Source;
use crate::offline::journal::{Pages, kinds};
use crate::offline::report::{
    CheckReport, CopyReport, JournalReport, StartKind, StartReport, StateReport, hex,
};
use crate::offline::superblocks::{Copy, Superblocks};
use cinnabar_engine::journal::scan::Read;
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock};
use cinnabar_engine::units::BLOCK_BYTES;

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

/// The size of the device.
pub(super) fn size(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    findings: &mut Findings,
) {
    let (has, needs) = (source.blocks() * BLOCK_BYTES, superblock.geometry.device_bytes());
    if has < needs {
        findings.add(format!("the device has {has} bytes, its superblock speaks of {needs}"));
    }
}

/// The checkpoint that counts. The other slot may hold anything: half of a newer one, after a crash.
pub(super) fn index(superblock: &Superblock, chosen: Option<&Index>, findings: &mut Findings) {
    match (superblock.state, chosen) {
        (DeviceState::Clean { checkpoint }, None) => {
            findings.add(format!("checkpoint {checkpoint}, of the clean stop, is damaged"));
        }
        (DeviceState::InUse, None) => findings.add("both checkpoints are damaged".to_owned()),
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

/// A device that no start accepts.
pub(super) fn refused(
    source: &(impl Source + ?Sized),
    device: &str,
    copies: &Superblocks,
    findings: Findings,
) -> CheckReport {
    let text = "the device is not used and volumes pass through: both copies of its superblock are \
                damaged; cinnabar serve --force formats it anew";
    CheckReport {
        device: device.to_owned(),
        size_bytes: source.blocks() * BLOCK_BYTES,
        damaged: true,
        findings: findings.lines,
        more_findings: findings.more,
        next_start: StartReport { kind: StartKind::Refuse, text: text.to_owned() },
        superblocks: copies.copies.iter().map(copy).collect(),
        state: None,
        checkpoints: Vec::new(),
        journal: None,
        log: None,
        volumes: Vec::new(),
    }
}

/// A copy of the superblock.
pub(in crate::offline) fn copy(copy: &Copy) -> CopyReport {
    let (status, reason, sequence) = match copy {
        Copy::Blank => ("blank", String::new(), None),
        Copy::Good(superblock) => ("good", String::new(), Some(superblock.sequence)),
        Copy::Bad(error) => ("damaged", error.to_string(), None),
        Copy::Unreadable => ("unreadable", "it can't be read".to_owned(), None),
    };
    CopyReport { status, reason, sequence }
}

/// What the superblock says.
pub(in crate::offline) fn state(superblock: &Superblock) -> StateReport {
    let geometry = &superblock.geometry;
    let (state, checkpoint) = match superblock.state {
        DeviceState::Cold => ("cold", None),
        DeviceState::InUse => ("in_use", None),
        DeviceState::Clean { checkpoint } => ("clean", Some(checkpoint)),
    };
    StateReport {
        state,
        checkpoint,
        uuid: hex(&superblock.uuid),
        era: superblock.era,
        next_incarnation: superblock.next_incarnation,
        used_bytes: geometry.device_bytes(),
        capacity_blocks: geometry.capacity_blocks(),
        segments: geometry.segments,
        segment_bytes: u64::from(geometry.segment_slots()) * BLOCK_BYTES,
    }
}

/// The journal.
pub(super) fn ring(superblock: &Superblock, pages: Pages, read: Option<&Read>) -> JournalReport {
    JournalReport {
        pages: superblock.geometry.marks.1,
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
