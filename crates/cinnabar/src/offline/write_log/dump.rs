//! Dumping what is on a write log, line by line, as it is: nothing is put together or left out.

use crate::offline::dump::{DumpOptions, Emit, Line, Part};
use crate::offline::report::hex;
use crate::offline::{OfflineError, Source, Watch};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_writeback::format::chunk::{ChunkHeader, Entry};
use cinnabar_writeback::format::directory::Record;
use cinnabar_writeback::format::superblock::{Superblock, SuperblockError};
use cinnabar_writeback::format::{
    MARK_PAGE, NOTE_PAGE, SEGMENT_PAGES, VOLUMES_MAX, directory_offset, offset_of,
};
use cinnabar_writeback::memory::note;
use cinnabar_writeback::mirror::Mark;
use std::ops::ControlFlow;

/// Dumps the write log of path `device`, whose superblock has these copies.
///
/// # Errors
/// If there is no copy to go by, or a shard is asked for.
pub fn dump(
    source: &(impl Source + ?Sized),
    device: &str,
    copies: &[Result<Superblock, SuperblockError>; 2],
    options: &DumpOptions,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> Result<(), OfflineError> {
    if let Some(shard) = options.shard.filter(|shard| *shard > 0) {
        return Err(OfflineError::NoShard { device: device.to_owned(), shard, shards: 1 });
    }
    let mut flow = ControlFlow::Continue(());
    if options.parts.contains(&Part::Superblock) {
        flow = superblocks(copies, emit);
    }
    let newest = copies.iter().find_map(|copy| copy.ok());
    let Some(Superblock { uuid, segments }) = newest else {
        let [Err(error), _] = copies else { unreachable!("none is good") };
        return Err(super::failed(device, (*error).into()));
    };
    if flow.is_continue() && options.parts.contains(&Part::Volumes) {
        flow = directory(source, uuid, emit);
    }
    if flow.is_continue() && options.parts.contains(&Part::Volumes) {
        flow = notes(source, uuid, emit);
    }
    if flow.is_continue() && options.parts.contains(&Part::Superblock) {
        flow = marks(source, uuid, emit);
    }
    if flow.is_continue() && options.parts.contains(&Part::Chunks) {
        // Broken off or not, there is nothing behind it.
        let _flow = chunks(source, (uuid, segments), options.entries, watch, emit);
    }
    Ok(())
}

fn superblocks(
    copies: &[Result<Superblock, SuperblockError>; 2],
    emit: Emit<'_>,
) -> ControlFlow<()> {
    for (page, copy) in copies.iter().enumerate() {
        let line = Line::new("superblock").with("page", page);
        emit(match copy {
            Ok(Superblock { uuid, segments }) => line
                .with("status", "good")
                .with("uuid", hex(uuid))
                .with("segments", *segments)
                .with("segment_pages", SEGMENT_PAGES),
            Err(error) => line.with("status", "damaged").with("reason", error.to_string()),
        })?;
    }
    ControlFlow::Continue(())
}

/// What the log says of memory that holds newer writes.
fn notes(source: &(impl Source + ?Sized), uuid: [u8; 16], emit: Emit<'_>) -> ControlFlow<()> {
    let mut pages = [const { MetaPage::zeroed() }; 2];
    source.read(NOTE_PAGE, &mut pages);
    for (number, page) in pages.iter().enumerate() {
        let Some((stamp, note)) = note::of_page(page, uuid) else { continue };
        let line = Line::new("write_memory").with("page", number).with("stamp", stamp);
        emit(match note {
            Some(note) => line
                .with("in_use", true)
                .with("path", note.path)
                .with("boot", hex(&note.boot))
                .with("nonce", format!("{:016x}", note.nonce)),
            None => line.with("in_use", false),
        })?;
    }
    ControlFlow::Continue(())
}

/// What a half of a mirrored log says of itself.
fn marks(source: &(impl Source + ?Sized), uuid: [u8; 16], emit: Emit<'_>) -> ControlFlow<()> {
    let mut pages = [const { MetaPage::zeroed() }; 2];
    let unreadable = source.read(MARK_PAGE, &mut pages);
    for (number, page) in pages.iter().enumerate() {
        if *page == MetaPage::zeroed() && unreadable == 0 {
            continue;
        }
        let line = Line::new("mark").with("page", number);
        emit(match Mark::decode(page, uuid) {
            Some(mark) => line
                .with("status", "good")
                .with("state", format!("{:?}", mark.state).to_lowercase())
                .with("generation", mark.generation)
                .with("pair", format!("{:016x}", mark.pair)),
            None => line.with("status", "damaged"),
        })?;
    }
    ControlFlow::Continue(())
}

/// Both records of each place that was ever used.
fn directory(source: &(impl Source + ?Sized), uuid: [u8; 16], emit: Emit<'_>) -> ControlFlow<()> {
    for place in 0..VOLUMES_MAX {
        let mut pages = [const { MetaPage::zeroed() }; 2];
        let unreadable = source.read(directory_offset(place, 0) / BLOCK_BYTES, &mut pages);
        for (copy, page) in pages.iter().enumerate() {
            if *page == MetaPage::zeroed() && unreadable == 0 {
                continue;
            }
            let line = Line::new("volume").with("place", place).with("copy", copy);
            let own = |record: &Record| record.uuid == uuid && record.volume == place;
            let Some(record) = Record::decode(page).filter(own) else {
                emit(line.with("status", "damaged"))?;
                continue;
            };
            emit(volume(line, &record))?;
            for gap in &record.gaps {
                let line = Line::new("gap").with("place", place).with("copy", copy);
                emit(
                    line.with("last", gap.last).with("next", gap.next).with("session", gap.session),
                )?;
            }
        }
    }
    ControlFlow::Continue(())
}

fn volume(line: Line, record: &Record) -> Line {
    line.with("status", if record.in_use { "in_use" } else { "free" })
        .with("stamp", record.stamp)
        .with("name", record.name.clone())
        .with("incarnation", format!("{:016x}", record.incarnation))
        .with("size_bytes", record.size_bytes)
        .with("retired", record.retired)
        .with("retired_epoch", record.retired_epoch)
        .with("group", record.group.clone())
        .with("claim", record.claim)
        .with("gaps", record.gaps.len())
}

/// The headers of all chunks, those that earlier uses of a segment have left behind, too. A superblock may speak
/// of more segments than the device has.
fn chunks(
    source: &(impl Source + ?Sized),
    (uuid, segments): ([u8; 16], u32),
    entries: bool,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> ControlFlow<()> {
    let mut pages = vec![MetaPage::zeroed(); SEGMENT_PAGES as usize];
    for segment in 0..segments {
        let first = segment * SEGMENT_PAGES;
        let begin = offset_of(first) / BLOCK_BYTES;
        if begin >= source.blocks() {
            break;
        }
        watch.at("segments", segment.into(), segments.into());
        source.read(begin, &mut pages);
        let mut page = 0;
        while page < SEGMENT_PAGES {
            let (slot, bytes) = (first + page, &pages[page as usize]);
            let own = |header: &ChunkHeader| header.uuid == uuid && header.slot == slot;
            page += 1;
            if let Some(header) = ChunkHeader::decode(bytes).filter(own) {
                emit(chunk(segment, &header))?;
                if entries {
                    header.entries.iter().try_for_each(|entry| emit(entry_of(slot, entry)))?;
                }
                page += header.data_pages();
            } else if ChunkHeader::was_one(bytes, uuid) {
                let line = Line::new("chunk").with("segment", segment).with("slot", slot);
                emit(line.with("status", "damaged"))?;
            }
        }
    }
    ControlFlow::Continue(())
}

fn chunk(segment: u32, header: &ChunkHeader) -> Line {
    Line::new("chunk")
        .with("segment", segment)
        .with("slot", header.slot)
        .with("status", "good")
        .with("place", header.volume)
        .with("incarnation", format!("{:016x}", header.incarnation))
        .with("session", header.session)
        .with("opening", header.opening)
        .with("number", header.number)
        .with("epoch", header.epoch)
        .with("durable", header.durable)
        .with("entries", header.entries.len())
        .with("data_pages", header.data_pages())
}

fn entry_of(slot: u32, entry: &Entry) -> Line {
    let line = Line::new("entry").with("chunk", slot);
    match *entry {
        Entry::Data { block, sectors, checksum } => line
            .with("kind", "data")
            .with("block", block)
            .with("sectors", format!("{sectors:08b}"))
            .with("checksum", format!("{checksum:08x}")),
        Entry::Range { block, count, kind } => line
            .with("kind", format!("{kind:?}").to_lowercase())
            .with("block", block)
            .with("blocks", count),
    }
}
