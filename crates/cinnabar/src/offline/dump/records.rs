//! Structures of the device as lines.

use super::{Emit, Line};
use crate::offline::checkpoints::SlotHead;
use crate::offline::chunks::has_data;
use crate::offline::journal::{name_of, present};
use crate::offline::report::hex;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::checkpoint::{SegmentRecord, VolumeRecord};
use cinnabar_engine::metadata::chunk::{ChunkHeader, Entry, RecordKind};
use cinnabar_engine::metadata::journal::{PageHeader, Record, Sector, decode};
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock};
use std::ops::ControlFlow;

pub(super) fn superblock(line: Line, superblock: &Superblock) -> Line {
    let (state, checkpoint) = match superblock.state {
        DeviceState::Cold => ("cold", None),
        DeviceState::InUse { .. } => ("in_use", None),
        DeviceState::Clean { checkpoint } => ("clean", Some(checkpoint)),
    };
    let geometry = &superblock.geometry;
    line.with("sequence", superblock.sequence)
        .with("state", state)
        .with("checkpoint", checkpoint)
        .with("uuid", hex(&superblock.uuid))
        .with("next_incarnation", superblock.next_incarnation)
        .with("era", superblock.era)
        .with("device_blocks", geometry.device_blocks)
        .with("shards", geometry.shards)
        .with("shard_span_log2", geometry.shard_span_log2)
        .with("segment_chunks", geometry.segment_chunks)
        .with("segments", geometry.segments)
        .with("segments_used", superblock.segments_used)
        .with("segments_room", superblock.segments_room)
        .with("journal_block", geometry.journal.0)
        .with("journal_blocks", geometry.journal.1)
        .with("checkpoint_0_block", geometry.checkpoints.0[0])
        .with("checkpoint_1_block", geometry.checkpoints.0[1])
        .with("checkpoint_blocks", geometry.checkpoints.1)
        .with("log_block", geometry.log)
}

pub(super) fn head(slot: usize, head: &SlotHead) -> Line {
    let line = Line::new("checkpoint").with("slot", slot);
    match head {
        SlotHead::Blank => line.with("status", "blank"),
        SlotHead::Bad => line.with("status", "damaged"),
        SlotHead::Good(sequence, head) => line
            .with("status", "good")
            .with("sequence", *sequence)
            .with("session", head.session)
            .with("era", head.era)
            .with("volumes", head.volumes)
            .with("segments", head.segments)
            .with("slots", head.slots)
            .with("pages", head.pages())
            .with("chunk_sequence", head.chunk_sequence)
            .with("journal_page", head.journal_page)
            .with("journal_durable", head.journal_durable),
    }
}

pub(super) fn damaged_page(slot: usize, position: u32) -> Line {
    Line::new("checkpoint_page")
        .with("slot", slot)
        .with("position", position)
        .with("status", "damaged")
}

pub(super) fn volume(what: &'static str, volume: &VolumeRecord) -> Line {
    Line::new(what)
        .with("name", volume.name.as_str())
        .with("index", volume.index)
        .with("incarnation", volume.incarnation)
        .with("size_bytes", volume.size_bytes)
        .with("generation", volume.generation)
        .with("stamp", volume.stamp)
        .with("flushed", volume.flushed)
        .with("written", volume.written)
        .with("proof", volume.proof.as_ref().map(|proof| hex(&proof.0)))
}

pub(super) fn segment(slot: usize, segment: &SegmentRecord) -> Line {
    Line::new("segment")
        .with("slot", slot)
        .with("segment", segment.segment)
        .with("sequence", segment.sequence)
        .with("last", segment.last)
        .with("used", segment.used)
        .with("open", segment.open)
        .with("owner", (segment.owner != u32::MAX).then_some(segment.owner))
}

/// A page of the journal and its records: one line for the page if it is whole, else one for each of
/// its sectors. Pages as they were formatted say nothing.
pub(super) fn journal_page(
    superblock: &Superblock,
    place: u64,
    page: &MetaPage,
    emit: Emit<'_>,
) -> ControlFlow<()> {
    let sectors = decode(page);
    let formatted = |sector| match header(sector) {
        Some(header) => header.is_formatted(),
        None => *sector == Sector::Blank,
    };
    if sectors.iter().all(formatted) {
        return ControlFlow::Continue(());
    }
    let line = || Line::new("journal").with("place", place);
    let header = header(&sectors[0]);
    let whole = header.filter(|_| sectors.iter().all(|sector| self::header(sector) == header));
    if let Some(header) = whole {
        let count: usize = sectors.iter().map(|sector| records(sector).len()).sum();
        let present = present(superblock, &sectors[0]).is_some();
        emit(with_header(line().with("status", "whole"), header, present, count))?;
    }
    for (index, sector) in sectors.iter().enumerate() {
        if whole.is_none() {
            let line = line().with("sector", index);
            emit(match self::header(sector) {
                Some(header) => {
                    let present = present(superblock, sector).is_some();
                    let line = line.with("status", "whole");
                    with_header(line, header, present, records(sector).len())
                }
                None if *sector == Sector::Blank => line.with("status", "blank"),
                None => line.with("status", "damaged"),
            })?;
        }
        let page = self::header(sector).map_or(0, |header| header.page);
        records(sector).iter().try_for_each(|found| emit(record(page, found)))?;
    }
    ControlFlow::Continue(())
}

const fn header(sector: &Sector) -> Option<&PageHeader> {
    match sector {
        Sector::Whole(header, _) => Some(header),
        Sector::Blank | Sector::Damaged => None,
    }
}

fn records(sector: &Sector) -> &[Record] {
    match sector {
        Sector::Whole(_, records) => records,
        Sector::Blank | Sector::Damaged => &[],
    }
}

fn with_header(line: Line, header: &PageHeader, present: bool, records: usize) -> Line {
    line.with("present", present)
        .with("era", header.era)
        .with("page", header.page)
        .with("first", header.first)
        .with("tail", header.tail)
        .with("checkpoint", header.checkpoint)
        .with("records", records)
}

fn record(page: u64, record: &Record) -> Line {
    let line = match record {
        Record::Volume(found) => volume("record", found),
        Record::Invalidation { incarnation, block, count, version } => Line::new("record")
            .with("incarnation", *incarnation)
            .with("block", *block)
            .with("count", *count)
            .with("version", *version),
        Record::SegmentInvalidation { segment, version } => {
            Line::new("record").with("segment", *segment).with("version", *version)
        }
        Record::ChunkInvalidation { slot, version } => {
            Line::new("record").with("slot", *slot).with("version", *version)
        }
        Record::Opened { segment, sequence, session } => Line::new("record")
            .with("segment", *segment)
            .with("sequence", *sequence)
            .with("session", *session),
        Record::Flushed { incarnation, session, sequence } => Line::new("record")
            .with("incarnation", *incarnation)
            .with("session", *session)
            .with("sequence", *sequence),
        Record::Dropped { incarnation } => Line::new("record").with("incarnation", *incarnation),
        Record::RegionOpened { incarnation, region, opening } => Line::new("record")
            .with("incarnation", *incarnation)
            .with("region", *region)
            .with("opening", *opening),
        Record::RegionClosed(end) => Line::new("record")
            .with("incarnation", end.incarnation)
            .with("region", end.region)
            .with("opening", end.opening)
            .with("version", end.version),
    };
    line.with("kind", name_of(record)).with("page", page)
}

pub(super) fn chunk(segment: u32, header: &ChunkHeader) -> Line {
    let of_kind = |kind| header.entries.iter().filter(|entry| entry.kind == kind).count();
    Line::new("chunk")
        .with("segment", segment)
        .with("slot", header.slot)
        .with("sequence", header.sequence)
        .with("session", header.session)
        .with("group", header.group)
        .with("entries", header.entries.len())
        .with("clean", of_kind(RecordKind::Clean))
        .with("written", of_kind(RecordKind::Written))
        .with("holes", of_kind(RecordKind::Hole))
}

pub(super) fn entry(slot: u32, entry: &Entry) -> Line {
    let kind = match entry.kind {
        RecordKind::Hole => "hole",
        RecordKind::Clean => "clean",
        RecordKind::Written => "written",
        RecordKind::Dirty => "dirty",
        RecordKind::Invalidation => "invalidation",
        RecordKind::Destaged => "destaged",
    };
    let line = Line::new("entry").with("slot", slot).with("kind", kind);
    if !has_data(entry.kind) && entry.kind != RecordKind::Invalidation {
        return line;
    }
    line.with("incarnation", entry.incarnation)
        .with("block", entry.block)
        .with("checksum", format!("{:08x}", entry.checksum))
}
