//! What is on a write log, without writing to it: which chunks of each volume count, and what is
//! damaged.

use super::media::{Media, OpenError, is_overdue, superblock};
use super::scan::{BadSlots, Headers, directory, scan};
use crate::format::chunk::{ChunkHeader, Entry};
use crate::format::directory::Record;
use crate::format::superblock::Superblock;
use crate::mutant::{Mutant, Mutants};
use crate::slots::checksum_seed;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::chunk::device_seed;
use cinnabar_engine::units::BLOCK_BYTES;

/// See the module.
pub struct Survey {
    /// Which log this is.
    pub superblock: Superblock,
    /// The volumes that have a place, in the order of their places.
    pub volumes: Vec<Found>,
    /// Places of which it is not known what they hold: such a log is not opened.
    pub unreadable: Vec<u16>,
    /// Incarnations of volumes that have left, as far as their places have not been used again.
    pub left: Vec<u64>,
    /// Slots whose pages can't be read: what was written there last, and by nobody relied on, counts as torn.
    pub bad: Vec<u32>,
    /// The newest stamp of each place.
    pub(super) stamps: Vec<u64>,
    /// The newest opening of a segment.
    pub(super) opening: u64,
}

/// What was found of a volume.
pub struct Found {
    /// Its record in the directory.
    pub record: Record,
    /// The chunks that count and that the back end does not have, in order.
    pub chunks: Vec<ChunkHeader>,
    /// Chunks behind them that do not count: of a volume without damage they are void.
    pub behind: Vec<ChunkHeader>,
    /// What keeps it from being served.
    pub damage: Option<Damage>,
    /// Number of the last chunk that counts.
    pub last: u64,
    pub epoch: u64,
    /// The highest number seen, whether or not it counts.
    pub(super) seen: u64,
}

/// What is wrong with a volume's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// One that was durable is missing, or its data are not those that were written.
    #[error("chunk {0}, which was durable, is missing or damaged")]
    Missing(u64),
    /// The directory does not know a session that has written chunks.
    #[error("the record of session {0} is missing")]
    Session(u32),
    /// An epoch begins before the one before it.
    #[error("chunk {0} is of an older epoch than the one before it")]
    Epoch(u64),
}

/// Looks at what is on a device of `bytes` bytes. `at` is told how many segments have been looked at.
///
/// # Errors
/// If the device fails, or is no write log.
pub fn survey<P: Payload>(
    media: &impl Media<P>,
    bytes: u64,
    mutants: Mutants,
    at: &mut dyn FnMut(u32),
) -> Result<Survey, OpenError> {
    let superblock = superblock(media)?;
    let need = crate::format::bytes_of(superblock.segments);
    if bytes < need {
        return Err(OpenError::Smaller { have: bytes, need });
    }
    let mut found = directory(media, superblock.uuid)?;
    let device = (superblock.uuid, superblock.segments);
    let mut bad = BadSlots::default();
    let openings = scan(media, device, &mut found.volumes, (mutants, &mut bad), at)?;
    let opening = openings.into_iter().max().unwrap_or(0);
    let all = found.volumes.into_values();
    let volumes = all.map(|headers| judge(media, headers, (mutants, &mut bad)));
    let volumes = volumes.collect::<Result<_, _>>()?;
    let (stamps, left, unreadable) = (found.stamps, found.left, found.unreadable);
    if !bad.0.is_empty() {
        // Of a device that has failed meanwhile nothing is concluded.
        self::superblock(media)?;
    }
    Ok(Survey { superblock, volumes, unreadable, left, bad: bad.0, stamps, opening })
}

/// Finds out which chunks of a volume count.
fn judge<P: Payload>(
    media: &impl Media<P>,
    headers: Headers,
    (mutants, bad): (Mutants, &mut BadSlots),
) -> Result<Found, OpenError> {
    let Headers { record, mut chunks, seen, session: newest, durable } = headers;
    let (mut last, mut epoch) = (record.retired, record.retired_epoch);
    // A session that the directory does not know: its newest record has been lost.
    let known = record.gaps.last().map_or(0, |gap| gap.session);
    let unknown = newest > known && !mutants.is(Mutant::SessionNotMissed);
    let mut damage = unknown.then_some(Damage::Session(newest));
    let mut valid = Vec::new();
    loop {
        let (number, session) = record.after(last);
        let session = if mutants.is(Mutant::SessionIgnored) { 0 } else { session };
        let chunk = chunks.remove(&(number, session));
        let whole = match &chunk {
            Some(header) if number > durable && !mutants.is(Mutant::TornChunkBelieved) => {
                match check_data(media, &record, header) {
                    Ok(whole) => whole,
                    Err(error) => {
                        bad.note(header.slot + 1, error)?;
                        false
                    }
                }
            }
            Some(_) => true,
            None => false,
        };
        let Some(header) = chunk.filter(|_| whole) else {
            if number <= durable {
                damage.get_or_insert(Damage::Missing(number));
            }
            break;
        };
        if header.epoch < epoch {
            damage.get_or_insert(Damage::Epoch(number));
        }
        epoch = header.epoch;
        last = number;
        valid.push(header);
    }
    let behind = chunks.into_values().filter(|header| header.number > last).collect();
    Ok(Found { record, chunks: valid, behind, damage, last, epoch, seen })
}

/// Whether the data of a chunk are what its header says, and can be read.
///
/// # Errors
/// If the device does not answer.
pub fn is_whole<P: Payload>(
    media: &impl Media<P>,
    record: &Record,
    header: &ChunkHeader,
) -> Result<bool, OpenError> {
    match check_data(media, record, header) {
        Err(error) if is_overdue(&error) => Err(error.into()),
        found => Ok(found.unwrap_or(false)),
    }
}

/// The same; an error if they can't be read.
fn check_data<P: Payload>(
    media: &impl Media<P>,
    record: &Record,
    header: &ChunkHeader,
) -> std::io::Result<bool> {
    let pages = header.data_pages();
    if pages == 0 {
        return Ok(true);
    }
    let data = media.read_data(crate::format::offset_of(header.slot + 1), pages)?;
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
