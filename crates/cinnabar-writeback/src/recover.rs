//! Formatting a write log, and finding out what is on one.
//!
//! Everything is read before anything is written. A chunk counts if its number follows from the record
//! of its volume; behind the last chunk that is known to be durable the first one that is missing or
//! torn ends the log, and what comes behind it is recorded as void before the volume is served. A
//! chunk that is missing *before* that is damage: the volume is not served, and nothing is dropped.

use crate::bounds::Bound;
use crate::format::chunk::{ChunkHeader, Entry};
use crate::format::directory::{Gap, Record};
use crate::format::superblock::{Superblock, SuperblockError};
use crate::format::{
    SEGMENT_PAGES, SEGMENTS_PAGE, VOLUMES_MAX, directory_offset, offset_of, segments_of,
};
use crate::log::{Config, WriteLog};
use crate::mutant::{Mutant, Mutants};
use crate::ranges::RangeRecord;
use crate::slots::{Held, checksum_seed};
use crate::volume::Volume;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::device_seed;
use cinnabar_engine::units::BLOCK_BYTES;
use std::collections::BTreeMap;

/// The device of a write log, for what happens before it is used. Offsets are bytes.
pub trait Media<P> {
    /// Reads pages.
    ///
    /// # Errors
    /// What the device says.
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> std::io::Result<()>;
    /// Reads blocks of data.
    ///
    /// # Errors
    /// What the device says.
    fn read_data(&self, offset: u64, blocks: u32) -> std::io::Result<P>;
    /// Writes a page; durable with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// What the device says.
    fn write_page(&self, offset: u64, page: &MetaPage) -> std::io::Result<()>;
    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// What the device says.
    fn flush(&self) -> std::io::Result<()>;
}

/// Why a write log can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed.
    #[error("input/output error on the write log's device")]
    Io(#[from] std::io::Error),
    /// It is none.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// It is smaller than when it was formatted.
    #[error("the write log's device has {have} bytes; its superblock says {need}")]
    Smaller {
        /// Bytes of the device.
        have: u64,
        /// Bytes that it should have.
        need: u64,
    },
    /// Both records of a place can't be read: which volume it holds, and how much of it the back end
    /// has, is not known.
    #[error("both records of place {0} of the write log's directory are damaged")]
    Directory(u16),
    /// Too small to hold a write log.
    #[error("a write log needs at least {0} bytes")]
    TooSmall(u64),
}

/// Makes an empty write log. Nothing of what was there is read.
///
/// # Errors
/// If the device is too small or fails.
pub fn format<P>(media: &impl Media<P>, bytes: u64, uuid: [u8; 16]) -> Result<(), OpenError> {
    let least = crate::format::bytes_of(crate::format::SEGMENTS_MIN);
    let segments = segments_of(bytes).ok_or(OpenError::TooSmall(least))?;
    let blank = MetaPage::zeroed();
    for page in 0..SEGMENTS_PAGE {
        media.write_page(page * BLOCK_BYTES, &blank)?;
    }
    media.flush()?;
    let superblock = Superblock { uuid, segments }.encode();
    media.write_page(0, &superblock)?;
    media.write_page(BLOCK_BYTES, &superblock)?;
    media.flush()?;
    Ok(())
}

/// The superblock of a device.
///
/// # Errors
/// Says what is there instead.
pub fn superblock<P>(media: &impl Media<P>) -> Result<Superblock, OpenError> {
    let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
    media.read_pages(0, &mut pages)?;
    let [first, second] = &pages;
    Ok(Superblock::decode(first).or_else(|error| Superblock::decode(second).map_err(|_| error))?)
}

/// What was found of a volume.
struct Log {
    record: Record,
    /// By number and session: what a session has written that does not count may lie behind a header
    /// that was lost, and is not seen before the next session has written one in its place.
    chunks: BTreeMap<(u64, u32), ChunkHeader>,
    /// The highest number seen, whether or not it counts.
    seen: u64,
    /// The newest session seen: each began with a record that was durable before its first chunk.
    session: u32,
    /// Chunks up to this number were durable when a chunk was written.
    durable: u64,
}

/// Finds out what is on a device, and makes a write log of it. What must be void from now on is
/// recorded before this returns.
///
/// # Errors
/// If the device fails, or is no write log. Damage of one volume is no error: that one is not served.
pub fn open<P: Payload>(
    media: &impl Media<P>,
    bytes: u64,
    config: Config,
) -> Result<WriteLog<P>, OpenError> {
    let Superblock { uuid, segments } = superblock(media)?;
    let need = crate::format::bytes_of(segments);
    if bytes < need {
        return Err(OpenError::Smaller { have: bytes, need });
    }
    config.bounds.check();
    // What an earlier session has written without a flush is not built on.
    media.flush()?;
    let (mut logs, stamps) = directory(media, uuid)?;
    let opening = scan(media, uuid, segments, &mut logs, config.mutants)?;
    let mut log = WriteLog::new(config, uuid, segments, stamps, opening);
    let mut used = BTreeMap::new();
    for found in logs.into_values() {
        let volume = take_over(media, &mut log, found, &mut used)?;
        let place = usize::from(volume.record.volume);
        log.volumes[place] = Some(volume);
    }
    log.segments.take_over(|segment| used.get(&segment).copied());
    Ok(log)
}

/// The records of all places in use, and the stamps of all.
fn directory<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
) -> Result<(BTreeMap<u16, Log>, Vec<u64>), OpenError> {
    let (mut logs, mut stamps) = (BTreeMap::new(), Vec::new());
    for place in 0..VOLUMES_MAX {
        let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
        media.read_pages(directory_offset(place, 0), &mut pages)?;
        let own = |record: &Record| record.uuid == uuid && record.volume == place;
        let records = pages.iter().filter_map(Record::decode).filter(own);
        let newest = records.max_by_key(|record| record.stamp);
        // A place in use has two records, of which a crash can tear one.
        if newest.is_none() && pages.iter().all(|page| *page != MetaPage::zeroed()) {
            return Err(OpenError::Directory(place));
        }
        stamps.push(newest.as_ref().map_or(0, |record| record.stamp));
        if let Some(record) = newest.filter(|record| record.in_use) {
            let (seen, durable) = (record.retired, record.retired);
            logs.insert(place, Log { record, chunks: BTreeMap::new(), seen, session: 0, durable });
        }
    }
    Ok((logs, stamps))
}

/// Reads the headers of all chunks; gives the newest opening of a segment.
fn scan<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    segments: u32,
    logs: &mut BTreeMap<u16, Log>,
    mutants: Mutants,
) -> Result<u64, OpenError> {
    let mut newest = 0;
    for segment in 0..segments {
        let (mut page, mut opening) = (0, None);
        while page < SEGMENT_PAGES {
            let slot = segment * SEGMENT_PAGES + page;
            let mut pages = [MetaPage::zeroed()];
            media.read_pages(offset_of(slot), &mut pages)?;
            let header = ChunkHeader::decode(&pages[0]).filter(|header| header.slot == slot);
            let Some(header) = header.filter(|header| header.uuid == uuid) else {
                let was = opening.is_some() || ChunkHeader::was_one(&pages[0], uuid);
                if was && !mutants.is(Mutant::HeadersNotSought) {
                    newest = newest.max(look_behind(media, uuid, slot, logs, mutants)?);
                }
                break;
            };
            newest = newest.max(header.opening);
            // What follows was left behind by an earlier use of the segment. Each session opens its
            // own.
            let use_of =
                (header.volume, header.incarnation, session_of(&header, mutants), header.opening);
            if *opening.get_or_insert(use_of) != use_of {
                break;
            }
            page += 1 + header.data_pages();
            note(logs, header, mutants);
        }
    }
    Ok(newest)
}

/// A header is missing or damaged. Where it had been written, headers behind it may be what says that
/// it was durable, and those of chunks that count lie behind one of a chunk that is retired.
fn look_behind<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    slot: u32,
    logs: &mut BTreeMap<u16, Log>,
    mutants: Mutants,
) -> Result<u64, OpenError> {
    let rest = SEGMENT_PAGES - 1 - slot % SEGMENT_PAGES;
    let mut pages = vec![MetaPage::zeroed(); rest as usize];
    media.read_pages(offset_of(slot + 1), &mut pages)?;
    let mut newest = 0;
    for (page, slot) in pages.iter().zip(slot + 1..) {
        let own = |header: &ChunkHeader| header.uuid == uuid && header.slot == slot;
        if let Some(header) = ChunkHeader::decode(page).filter(own) {
            newest = newest.max(header.opening);
            note(logs, header, mutants);
        }
    }
    Ok(newest)
}

fn session_of(header: &ChunkHeader, mutants: Mutants) -> u32 {
    if mutants.is(Mutant::SessionIgnored) { 0 } else { header.session }
}

/// Takes down a header that was found.
fn note(logs: &mut BTreeMap<u16, Log>, header: ChunkHeader, mutants: Mutants) {
    let Some(log) = logs.get_mut(&header.volume) else { return };
    if log.record.incarnation != header.incarnation {
        return;
    }
    log.seen = log.seen.max(header.number);
    log.durable = log.durable.max(header.durable);
    log.session = log.session.max(header.session);
    log.chunks.insert((header.number, session_of(&header, mutants)), header);
}

/// Makes a volume of what was found.
fn take_over<P: Payload>(
    media: &impl Media<P>,
    log: &mut WriteLog<P>,
    found: Log,
    used: &mut BTreeMap<u32, (u32, u64)>,
) -> Result<Volume<P>, OpenError> {
    let Log { mut record, mut chunks, seen, session: newest, durable } = found;
    let (mut last, mut epoch) = (record.retired, record.retired_epoch);
    // A session that the directory does not know: its newest record has been lost.
    let known = record.gaps.last().map_or(0, |gap| gap.session);
    let mut damaged = newest > known && !log.config.mutants.is(Mutant::SessionNotMissed);
    let mut valid = Vec::new();
    loop {
        let (number, session) = record.after(last);
        let mutants = log.config.mutants;
        let session = if mutants.is(Mutant::SessionIgnored) { 0 } else { session };
        let chunk = chunks.remove(&(number, session));
        let whole = match &chunk {
            Some(header) if number > durable && !mutants.is(Mutant::TornChunkBelieved) => {
                is_whole(media, &record, header)?
            }
            Some(_) => true,
            None => false,
        };
        let Some(header) = chunk.filter(|_| whole) else {
            damaged |= number <= durable;
            break;
        };
        damaged |= header.epoch < epoch;
        epoch = header.epoch;
        last = number;
        valid.push(header);
    }
    let drains_first =
        if damaged { None } else { begin_session(media, log, &mut record, last, seen)? };
    let mut volume = Volume::new(record, last, epoch, log.config.mutants);
    volume.damaged = damaged;
    volume.drains_first = drains_first;
    for header in valid {
        register(log, &mut volume, &header, used);
    }
    if damaged {
        // Nothing of it is overwritten.
        for header in chunks.into_values().filter(|header| header.number > last) {
            let segment = header.slot / SEGMENT_PAGES;
            if used.insert(segment, (SEGMENT_PAGES, header.opening)).is_none() {
                log.slots.set_owner(segment, volume.record.volume);
                volume.segments.push_back(segment);
                volume.pages += u64::from(SEGMENT_PAGES);
            }
        }
    }
    Ok(volume)
}

/// Whether the data of a chunk are what its header says.
fn is_whole<P: Payload>(
    media: &impl Media<P>,
    record: &Record,
    header: &ChunkHeader,
) -> Result<bool, OpenError> {
    let pages = header.data_pages();
    if pages == 0 {
        return Ok(true);
    }
    let data = media.read_data(offset_of(header.slot + 1), pages)?;
    let (device, number) = (device_seed(record.uuid), header.number as u32);
    let data_entries = header.entries.iter().filter_map(|entry| match *entry {
        Entry::Data { block, checksum, .. } => Some((block, checksum)),
        Entry::Range { .. } => None,
    });
    Ok(data_entries.zip(0..).all(|((block, checksum), page)| {
        let seed = checksum_seed(device, record.incarnation, number, block);
        data.checksum(page * BLOCK_BYTES, seed) == checksum
    }))
}

/// Records that chunks behind `last` up to `seen` are void, and where this session's numbers begin. If
/// the record has no room for that, nothing may be written before all is retired.
fn begin_session<P: Payload>(
    media: &impl Media<P>,
    log: &mut WriteLog<P>,
    record: &mut Record,
    last: u64,
    seen: u64,
) -> Result<Option<Gap>, OpenError> {
    let session = record.gaps.last().map_or(0, |gap| gap.session) + 1;
    let next = record.gaps.last().map_or(0, |gap| gap.next).max(seen + 1).max(last + 1);
    if log.config.mutants.is(Mutant::GapNotRecorded) && !record.gaps.is_empty() {
        return Ok(None);
    }
    let gap = Gap { last, next, session };
    // Those before what is retired need not be known, nor that of a session that has written nothing
    // that counts.
    let needed = record.gaps.iter().rposition(|gap| gap.last <= record.retired).unwrap_or(0);
    record.gaps.drain(..needed);
    if record.gaps.last().is_some_and(|newest| newest.last == last) || record.retired == last {
        record.gaps.pop();
    }
    if record.gaps.len() >= log.config.bounds.gaps {
        log.crossings.note_if(true, Bound::Gaps);
        return Ok(Some(gap));
    }
    record.gaps.push(gap);
    let stamp = &mut log.stamps[usize::from(record.volume)];
    *stamp += 1;
    record.stamp = *stamp;
    media.write_page(directory_offset(record.volume, (*stamp % 2) as u8), &record.encode())?;
    if !log.config.mutants.is(Mutant::SessionNotFlushed) {
        media.flush()?;
    }
    Ok(None)
}

/// Puts a chunk's entries where reads and the destage find them.
fn register<P: Payload>(
    log: &mut WriteLog<P>,
    volume: &mut Volume<P>,
    header: &ChunkHeader,
    used: &mut BTreeMap<u32, (u32, u64)>,
) {
    let place = volume.record.volume;
    let segment = header.slot / SEGMENT_PAGES;
    let end = header.slot % SEGMENT_PAGES + 1 + header.data_pages();
    if volume.segments.back() != Some(&segment) {
        log.slots.set_owner(segment, place);
        volume.segments.push_back(segment);
        // Chunks before the first one that counts are retired; their pages are used all the same.
        volume.pages += u64::from(header.slot % SEGMENT_PAGES);
        for page in 0..header.slot % SEGMENT_PAGES {
            log.slots.set_header(segment * SEGMENT_PAGES + page, 0, volume.record.retired);
        }
    }
    used.insert(segment, (end, header.opening));
    volume.pages += u64::from(1 + header.data_pages());
    log.slots.set_header(header.slot, header.epoch, header.number);
    let mut slot = header.slot;
    for entry in &header.entries {
        match *entry {
            Entry::Data { block, sectors, checksum } => {
                slot += 1;
                log.slots.set_data(slot, Held { block, sectors, checksum });
                log.slots.supersede(slot);
                volume.zeros.cut(block, block + 1);
            }
            Entry::Range { block, count, kind } => {
                let (number, behind) = (header.number, slot - header.slot);
                volume.records.push_back(RangeRecord { number, behind, block, count, kind });
                volume.zeros.add(block, block + u64::from(count), number);
            }
        }
    }
}
