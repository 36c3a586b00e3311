//! What the next start will do, told before it does it.

use super::Index;
use crate::offline::report::{StartKind, StartReport};
use cinnabar_engine::journal::scan::Read;
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock};

/// The slot of the checkpoint that the next start takes, if it takes one.
pub(crate) fn choose(superblock: &Superblock, slots: &[Index; 2]) -> Option<usize> {
    let good = || {
        slots.iter().filter_map(|slot| {
            let (sequence, head) = slot.head()?;
            (head.era == superblock.era).then_some((sequence, slot.slot))
        })
    };
    match superblock.state {
        DeviceState::Cold => None,
        DeviceState::InUse { .. } => good().max().map(|(_, slot)| slot),
        DeviceState::Clean { checkpoint } => {
            good().find(|(sequence, _)| *sequence == checkpoint).map(|(_, slot)| slot)
        }
    }
}

/// What it does with a region in which a stray copy of the superblock is the newest.
pub(super) fn outranked() -> StartReport {
    let text = "the device is not used and volumes pass through: a copy of its superblock is another \
                device's, or another shard's; cinnabar cache repair rewrites it";
    StartReport { kind: StartKind::Refuse, text: text.to_owned() }
}

/// What it does.
pub(super) fn next(
    superblock: &Superblock,
    chosen: Option<&Index>,
    read: Option<&Read>,
) -> StartReport {
    let sequence = chosen.and_then(Index::head).map_or(0, |(sequence, _)| sequence);
    let blocks = format!("checkpoint {sequence} with {} blocks", chosen.map_or(0, Index::blocks));
    let (kind, text) = match (superblock.state, read) {
        (DeviceState::Cold, _) => (
            StartKind::Cold,
            "the cache starts empty: the device is new, or was told to believe nothing".to_owned(),
        ),
        (DeviceState::Clean { checkpoint }, _) if chosen.is_none() => (
            StartKind::Drop,
            format!("everything is dropped: checkpoint {checkpoint} of the clean stop is damaged"),
        ),
        (DeviceState::InUse { .. }, _) if chosen.is_none() => {
            (StartKind::Drop, "everything is dropped: no checkpoint can be read".to_owned())
        }
        (_, None) => (
            StartKind::Drop,
            "everything is dropped: the journal has lost records, so that nobody knows which \
             blocks were overwritten"
                .to_owned(),
        ),
        (_, Some(read)) if read.checkpoint > sequence => (
            StartKind::Drop,
            format!(
                "everything is dropped: checkpoint {}, which the journal builds on, is damaged",
                read.checkpoint
            ),
        ),
        (DeviceState::Clean { .. }, _) => (
            StartKind::Warm,
            format!(
                "the last run stopped clean: {blocks} are kept, where the back end proves that \
                 it was not written since"
            ),
        ),
        (DeviceState::InUse { .. }, Some(read)) => (
            StartKind::Recover,
            format!(
                "the last run crashed: {blocks}, {} journal records and the chunks written since \
                 are put together, and kept where the back end proves that nothing else wrote it",
                read.records.len()
            ),
        ),
    };
    StartReport { kind, text }
}
