//! The index: what a checkpoint slot holds, and the volumes that it and the journal know.

use crate::offline::checkpoints::{self, SlotHead};
use crate::offline::report::{CheckpointReport, VolumeReport, hex};
use crate::offline::{Source, Watch};
use cinnabar_engine::metadata::checkpoint::{Head, Page, SegmentRecord, VolumeRecord};
use cinnabar_engine::metadata::descriptor::descriptors;
use cinnabar_engine::metadata::journal::Record;
use cinnabar_engine::metadata::superblock::Superblock;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// What a checkpoint slot holds. The descriptors are counted, not kept.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) slot: usize,
    head: SlotHead,
    pub(super) pages_good: u64,
    pub(super) pages_bad: u64,
    pub(super) volumes: Vec<VolumeRecord>,
    pub(super) segments: Vec<SegmentRecord>,
    /// Blocks by index of their volume.
    blocks: BTreeMap<u16, u64>,
}

impl Index {
    /// Reads slot `slot`, to its last page.
    pub(crate) fn read(
        source: &(impl Source + ?Sized),
        superblock: &Superblock,
        slot: usize,
        watch: &mut dyn Watch,
    ) -> Self {
        let head = checkpoints::head(source, superblock, slot);
        let mut index = Self {
            slot,
            head,
            pages_good: 0,
            pages_bad: 0,
            volumes: Vec::new(),
            segments: Vec::new(),
            blocks: BTreeMap::new(),
        };
        if let SlotHead::Good(sequence, head) = head {
            checkpoints::walk(source, superblock, (sequence, head), watch, &mut |found| {
                index.take(found.page);
                ControlFlow::Continue(())
            });
        }
        index
    }

    fn take(&mut self, page: Option<Page>) {
        match page {
            None | Some(Page::Head(..)) => {
                self.pages_bad += 1;
                return;
            }
            Some(Page::Volumes(records)) => self.volumes.extend(records),
            Some(Page::Segments(records)) => self.segments.extend(records),
            Some(Page::Descriptors(raw)) => {
                for found in descriptors(&raw).flatten() {
                    *self.blocks.entry(found.volume).or_default() += 1;
                }
            }
        }
        self.pages_good += 1;
    }

    /// Its number and head, if it has a good one.
    pub(crate) fn head(&self) -> Option<(u64, Head)> {
        match self.head {
            SlotHead::Good(sequence, head) => Some((sequence, head)),
            SlotHead::Blank | SlotHead::Bad => None,
        }
    }

    /// First page of the journal that it does not cover.
    pub(crate) fn journal_page(&self) -> u64 {
        self.head().map_or(1, |(_, head)| head.journal_page)
    }

    /// Page of the journal before which it was durable when the head was written, if that is of the
    /// present era.
    pub(super) fn journal_durable(&self, superblock: &Superblock) -> Option<u64> {
        let (_, head) = self.head()?;
        (head.era == superblock.era).then_some(head.journal_durable)
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks.values().sum()
    }

    pub(super) fn report(&self, counts: bool) -> CheckpointReport {
        CheckpointReport {
            slot: self.slot,
            head: match self.head {
                SlotHead::Blank => "blank",
                SlotHead::Good(..) => "good",
                SlotHead::Bad => "damaged",
            },
            sequence: self.head().map(|(sequence, _)| sequence),
            counts,
            pages_good: self.pages_good,
            pages_bad: self.pages_bad,
            volumes: self.volumes.len() as u64,
            segments: self.segments.len() as u64,
            blocks: self.blocks(),
        }
    }
}

/// The volumes whose blocks may still be believed, as recovery finds them: of each name, and of each
/// index, the newest record; none that has been dropped.
pub(crate) fn volumes(index: Option<&Index>, records: &[Record]) -> Vec<VolumeReport> {
    let of_checkpoint = index.map_or(&[][..], |index| &index.volumes);
    let of_journal = records.iter().filter_map(|record| match record {
        Record::Volume(volume) => Some(&**volume),
        _ => None,
    });
    let mut all: Vec<&VolumeRecord> = of_checkpoint.iter().chain(of_journal).collect();
    all.sort_by_key(|volume| std::cmp::Reverse(volume.stamp));
    let (mut names, mut indices) = (BTreeSet::new(), BTreeSet::new());
    all.retain(|volume| {
        let newest = !names.contains(&volume.name) && !indices.contains(&volume.index);
        if newest {
            names.insert(&volume.name);
            indices.insert(volume.index);
        }
        newest
    });
    let dropped: BTreeSet<u32> = records
        .iter()
        .filter_map(|record| match record {
            Record::Dropped { incarnation } => Some(*incarnation),
            _ => None,
        })
        .collect();
    all.retain(|volume| !dropped.contains(&volume.incarnation));
    all.into_iter().map(|volume| report(volume, index)).collect()
}

fn report(volume: &VolumeRecord, index: Option<&Index>) -> VolumeReport {
    // An index of the checkpoint means another volume once its own has been dropped.
    let same =
        |index: &&Index| index.volumes.iter().any(|known| known.incarnation == volume.incarnation);
    let blocks = index.filter(same).and_then(|index| index.blocks.get(&volume.index));
    VolumeReport {
        name: volume.name.clone(),
        incarnation: volume.incarnation,
        size_bytes: volume.size_bytes,
        generation: volume.generation,
        written: volume.written,
        flushed: volume.flushed,
        proof: volume.proof.as_ref().map(|proof| hex(&proof.0)),
        checkpoint_blocks: blocks.copied().unwrap_or(0),
    }
}
