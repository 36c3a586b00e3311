//! Making a write log of what was found on a device: what must be void from now on is recorded first.

use super::media::{Media, OpenError};
use super::survey::{Found, Survey, survey};
use crate::bounds::Bound;
use crate::format::chunk::{ChunkHeader, Entry};
use crate::format::directory::{Gap, Record};
use crate::format::{SEGMENT_PAGES, directory_offset, first_of_start};
use crate::log::{Config, WriteLog};
use crate::mutant::Mutant;
use crate::ranges::RangeRecord;
use crate::slots::Held;
use crate::volume::Volume;
use cinnabar_engine::Payload;
use std::collections::BTreeMap;

/// Segments in use: pages of them that are, and their opening.
type Used = BTreeMap<u32, (u32, u64)>;

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
    config.bounds.check();
    // What an earlier session has written without a flush is not built on.
    media.flush()?;
    survey(media, bytes, config.mutants, &mut |_| {})?.begin(media, config)
}

impl Survey {
    /// Makes a write log of what was found. The device has been flushed before it was looked at, and
    /// nothing has been written to it since.
    ///
    /// # Errors
    /// If the device fails, or it is not known what a place holds.
    pub fn begin<P: Payload>(
        self,
        media: &impl Media<P>,
        config: Config,
    ) -> Result<WriteLog<P>, OpenError> {
        config.bounds.check();
        if let Some(place) = self.unreadable.first() {
            return Err(OpenError::Directory(*place));
        }
        let superblock = self.superblock;
        let newest = self.stamps.iter().copied().max().unwrap_or(0).max(self.opening);
        let skips = media.skips_starts();
        let from = if config.mutants.is(Mutant::OpeningsGoBack) {
            (0, self.opening + (skips << 20))
        } else {
            let first = first_of_start(newest, skips);
            (first, first)
        };
        let (uuid, segments) = (superblock.uuid, superblock.segments);
        let mut log = WriteLog::new(config, uuid, segments, self.stamps, from);
        (log.bad, log.left) = (self.bad, self.left);
        let mut used = Used::new();
        for found in self.volumes {
            let volume = take_over(media, &mut log, found, &mut used)?;
            let place = usize::from(volume.record.volume);
            log.volumes[place] = Some(volume);
        }
        log.segments.take_over(|segment| used.get(&segment).copied());
        if config.groups && !config.mutants.is(Mutant::GroupForgotten) {
            log.regroup();
        }
        Ok(log)
    }
}

/// Makes a volume of what was found.
fn take_over<P: Payload>(
    media: &impl Media<P>,
    log: &mut WriteLog<P>,
    found: Found,
    used: &mut Used,
) -> Result<Volume<P>, OpenError> {
    let Found { mut record, chunks, behind, damage, last, epoch, seen } = found;
    let drains_first = match damage {
        Some(_) => None,
        None => begin_session(media, log, &mut record, last, seen)?,
    };
    let mut volume = Volume::new(record, last, epoch, log.config.mutants);
    volume.damaged = damage.is_some();
    volume.drains_first = drains_first;
    for header in chunks {
        register(log, &mut volume, &header, used);
    }
    if damage.is_some() {
        // Nothing of it is overwritten.
        for header in behind {
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
    record.stamp = log.next_stamp(record.volume);
    let page = (record.stamp % 2) as u8;
    media.write_page(directory_offset(record.volume, page), &record.encode())?;
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
    used: &mut Used,
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
