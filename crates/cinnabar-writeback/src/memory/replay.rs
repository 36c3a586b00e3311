//! What a killed daemon has left in memory is brought to the log's device, before anything else is
//! looked at. Recovery finds the chunks there as if they had been written.

use super::format::{HEADER_BYTES, MemoryEntry, data_at, entry_at, pages_of};
use super::note::Note;
use super::{ENTRY_BYTES, Kept, MemoryFile, MemoryHeader, PAGES_MIN, note};
use crate::format::chunk::{ChunkHeader, ENTRIES_MAX, Entry};
use crate::format::directory::Record;
use crate::format::{SEGMENT_PAGES, offset_of};
use crate::log::{Config, WriteLog};
use crate::mutant::{Mutant, Mutants};
use crate::recover::{Media, OpenError, is_overdue, is_whole, records, superblock, survey};
use crate::slots::checksum_seed;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::device_seed;
use std::collections::BTreeMap;

/// The host on which a log is opened.
pub struct Host<'a, P> {
    /// Its boot: memory of another one is lost.
    pub boot: [u8; 16],
    /// The memory for this session's newest writes.
    pub memory: Option<MemoryAt<'a, P>>,
}

/// A write memory to be used.
pub struct MemoryAt<'a, P> {
    /// What may be left in it, if it is the one that the log's note speaks of.
    pub file: &'a dyn MemoryFile<P>,
    /// Where it is; at most [`PATH_BYTES_MAX`](note::PATH_BYTES_MAX).
    pub path: &'a str,
    /// Drawn at random.
    pub nonce: u64,
    /// If writes in memory are lost, that may be: the operator has said so.
    pub may_be_lost: bool,
}

/// A chunk's entries by index: the newest version of each, and the page of its data.
type Entries = BTreeMap<u16, (MemoryEntry, u32)>;

/// Opens a log as [`open`](crate::recover::open) does. What was acknowledged from memory, and is in
/// this boot's memory only, is put back before.
///
/// # Errors
/// If the device fails, or is no write log; if writes are in memory and it is not the one that is
/// given, or is damaged.
///
/// # Panics
/// If the memory has less than [`PAGES_MIN`] pages.
pub fn open_with<P: Payload>(
    media: &impl Media<P>,
    bytes: u64,
    config: Config,
    host: &Host<'_, P>,
) -> Result<WriteLog<P>, OpenError> {
    config.bounds.check();
    // What an earlier session has written without a flush is not built on.
    media.flush()?;
    let uuid = superblock(media)?.uuid;
    let note = note::read(media, uuid)?;
    let believes = config.mutants.is(Mutant::OldMemoryBelieved);
    if let Some(note) = note.as_ref().filter(|note| note.boot == host.boot || believes) {
        let file = host.memory.as_ref().map(|memory| memory.file);
        let found =
            file.map_or(Ok(false), |file| put_back(media, bytes, note, file, config.mutants));
        // Said of the noted one: another empty file says nothing.
        let said = |memory: &MemoryAt<'_, P>| memory.may_be_lost && memory.path == note.path;
        let may_be_lost = host.memory.as_ref().is_some_and(said);
        if !found? && !may_be_lost && !believes {
            return Err(OpenError::Memory(note.path.clone()));
        }
    }
    if let Some(memory) = &host.memory
        && is_of_another(memory.file, (uuid, host.boot))
    {
        return Err(OpenError::MemoryOfAnother(memory.path.to_owned()));
    }
    let mut log = survey(media, bytes, config.mutants, &mut |_| {})?.begin(media, config)?;
    if note.is_some() && !config.mutants.is(Mutant::NoteKept) {
        // The file says nothing any more: it may be used again.
        note::write(media, uuid, None)?;
    }
    if let Some(MemoryAt { file, path, nonce, .. }) = host.memory {
        let pages = pages_of(file.bytes());
        assert!(pages >= PAGES_MIN, "a memory of some size");
        let header = MemoryHeader { boot: host.boot, uuid, nonce, pages };
        file.store(0, &header.encode());
        let note = Note { boot: host.boot, nonce, path: path.to_owned() };
        note::write(media, uuid, Some(&note))?;
        log.memory = Some(Kept::new(nonce, pages, config.mutants));
    }
    Ok(log)
}

/// The log has been closed, and its memory holds nothing that counts: it may go.
///
/// # Errors
/// If the device fails.
pub fn release<P>(media: &impl Media<P>) -> Result<(), OpenError> {
    let uuid = superblock(media)?.uuid;
    match note::read(media, uuid) {
        Ok(None) => Ok(()),
        Ok(Some(_)) | Err(OpenError::Note) => note::write(media, uuid, None),
        Err(error) => Err(error),
    }
}

/// Writes the chunks that are in a memory only to the log's device, durably. False: it is not the
/// memory that the note speaks of.
///
/// # Errors
/// If the device fails, or the memory is damaged.
pub fn put_back<P: Payload>(
    media: &impl Media<P>,
    bytes: u64,
    note: &Note,
    file: &dyn MemoryFile<P>,
    mutants: Mutants,
) -> Result<bool, OpenError> {
    let log = superblock(media)?;
    let need = crate::format::bytes_of(log.segments);
    if bytes < need {
        return Err(OpenError::Smaller { have: bytes, need });
    }
    let Some(header) = header_of(file, note, (log.uuid, mutants)) else { return Ok(false) };
    let records = records(media, log.uuid)?;
    let mut writes = false;
    for ((place, number), entries) in gather(file, header) {
        let Some(record) = records.get(&place) else { continue };
        if !counts(record, &entries, mutants) {
            continue;
        }
        let chunk = chunk_of(record, &entries);
        // One that was written may have been cleared in part.
        if !mutants.is(Mutant::MemoryNotCleared) && is_there(media, (record, log.segments), &chunk)?
        {
            continue;
        }
        let damaged = || OpenError::MemoryDamaged { path: note.path.clone(), number };
        if !is_sound(&chunk, log.segments, &entries) {
            return Err(damaged());
        }
        let pages = pages(record, header.pages, file, (&chunk, &entries)).ok_or_else(damaged)?;
        media.write_pages(offset_of(chunk.slot), &pages)?;
        writes = true;
    }
    if writes {
        media.flush()?;
        // Behind a chunk that is there now may lie one that was under way and is on one half only.
        if !mutants.is(Mutant::PutBackNotLevelled) {
            media.level()?;
        }
    }
    Ok(true)
}

/// Whether a file is the memory that the note of a log speaks of.
pub fn is_of<P>(file: &dyn MemoryFile<P>, note: &Note, uuid: [u8; 16]) -> bool {
    header_of(file, note, (uuid, Mutants::default())).is_some()
}

/// Whether a file holds writes that another log has acknowledged in this boot: its daemon was killed.
fn is_of_another<P>(file: &dyn MemoryFile<P>, (uuid, boot): ([u8; 16], [u8; 16])) -> bool {
    let header = read_header(file);
    let other = header.filter(|header| header.uuid != uuid && header.boot == boot);
    other.is_some_and(|header| !gather(file, header).is_empty())
}

fn read_header<P>(file: &dyn MemoryFile<P>) -> Option<MemoryHeader> {
    if file.bytes() < super::bytes_of(PAGES_MIN) {
        return None;
    }
    let mut header = [0; HEADER_BYTES];
    file.load(0, &mut header);
    MemoryHeader::decode(&header).filter(|header| header.pages <= pages_of(file.bytes()))
}

fn header_of<P>(
    file: &dyn MemoryFile<P>,
    note: &Note,
    (uuid, mutants): ([u8; 16], Mutants),
) -> Option<MemoryHeader> {
    let believes = mutants.is(Mutant::OldMemoryBelieved);
    read_header(file).filter(|header| {
        header.uuid == uuid && (header.boot == note.boot && header.nonce == note.nonce || believes)
    })
}

/// All chunks of a memory.
fn gather<P>(file: &dyn MemoryFile<P>, header: MemoryHeader) -> BTreeMap<(u16, u64), Entries> {
    let mut chunks: BTreeMap<(u16, u64), Entries> = BTreeMap::new();
    for page in 0..header.pages {
        let mut bytes = [0; ENTRY_BYTES];
        file.load(entry_at(page), &mut bytes);
        let Some(entry) = MemoryEntry::decode(&bytes).filter(|e| e.nonce == header.nonce) else {
            continue;
        };
        let chunk = chunks.entry((entry.place, entry.number)).or_default();
        let known = chunk.entry(entry.index).or_insert((entry, page));
        if known.0.stamp < entry.stamp {
            *known = (entry, page);
        }
    }
    chunks
}

/// Whether a chunk is of the volume's newest session, and the back end lacks it.
fn counts(record: &Record, entries: &Entries, mutants: Mutants) -> bool {
    let Some((first, _)) = entries.values().next() else { return false };
    let session = record.gaps.last().map_or(0, |gap| gap.session);
    first.incarnation == record.incarnation
        && (first.session == session || mutants.is(Mutant::OldMemoryBelieved))
        && (first.number > record.retired || mutants.is(Mutant::MemoryNotCleared))
}

/// The header of the chunk that entries make together.
fn chunk_of(record: &Record, entries: &Entries) -> ChunkHeader {
    let (first, _) = entries.values().next().expect("a chunk has entries");
    ChunkHeader {
        uuid: record.uuid,
        volume: record.volume,
        incarnation: first.incarnation,
        session: first.session,
        opening: first.opening,
        number: first.number,
        epoch: first.epoch,
        // It is not known here what was durable: less is claimed.
        durable: record.retired,
        slot: first.slot,
        entries: entries.values().map(|(entry, _)| entry.entry).collect(),
    }
}

/// Whether entries make a chunk: all of them are there, and of the same one.
fn is_sound(chunk: &ChunkHeader, segments: u32, entries: &Entries) -> bool {
    let of = (chunk.incarnation, chunk.session, chunk.opening, chunk.epoch, chunk.slot);
    let same = |e: &MemoryEntry| (e.incarnation, e.session, e.opening, e.epoch, e.slot) == of;
    let in_order = (0..).zip(entries).all(|(n, (index, (entry, _)))| *index == n && same(entry));
    in_order
        && entries.len() <= ENTRIES_MAX
        && chunk.slot / SEGMENT_PAGES < segments
        && chunk.slot % SEGMENT_PAGES + 1 + chunk.data_pages() <= SEGMENT_PAGES
}

/// Whether the log's device has a chunk: it was written before the daemon was killed.
fn is_there<P: Payload>(
    media: &impl Media<P>,
    (record, segments): (&Record, u32),
    chunk: &ChunkHeader,
) -> Result<bool, OpenError> {
    if chunk.slot / SEGMENT_PAGES >= segments {
        return Ok(false);
    }
    let mut page = [MetaPage::zeroed()];
    match media.read_pages(offset_of(chunk.slot), &mut page) {
        Ok(()) => {}
        Err(error) if is_overdue(&error) => return Err(error.into()),
        // What the memory has is written over it.
        Err(_) => return Ok(false),
    }
    let key = |of: &ChunkHeader| {
        (of.uuid, of.volume, of.incarnation, of.session, of.opening, of.number, of.slot)
    };
    match ChunkHeader::decode(&page[0]).filter(|found| key(found) == key(chunk)) {
        Some(found) => is_whole(media, record, &found),
        None => Ok(false),
    }
}

/// The pages of a chunk. `None`: its data are not those that were stored.
fn pages<P: Payload>(
    record: &Record,
    all: u32,
    file: &dyn MemoryFile<P>,
    (chunk, entries): (&ChunkHeader, &Entries),
) -> Option<Vec<MetaPage>> {
    let mut pages = vec![chunk.encode()];
    for (entry, page) in entries.values() {
        let Entry::Data { block, checksum, .. } = entry.entry else { continue };
        let seed = device_seed(record.uuid);
        let seed = checksum_seed(seed, record.incarnation, chunk.number as u32, block);
        if file.load_data(data_at(all, *page)).checksum(0, seed) != checksum {
            return None;
        }
        let mut data = MetaPage::zeroed();
        file.load(data_at(all, *page), &mut data.0);
        pages.push(data);
    }
    Some(pages)
}
