//! The write log's structures on its device. All of them are pages of 4 KiB with a CRC-32C.
//!
//! | pages | hold |
//! |---|---|
//! | 0, 1 | two copies of the superblock |
//! | 2 to 513 | the directory: two pages for each of 256 volumes, written in turn |
//! | 514, 515 | where the newest writes are, if they are in memory: two pages, written in turn |
//! | 516, 517 | the mark of a log on two devices: which of them count, twice |
//! | 768 and on | segments of 256 pages: chunks, one behind the other |

pub mod chunk;
pub mod directory;
pub mod superblock;

use cinnabar_engine::units::BLOCK_BYTES;

/// Pages of a segment, chunk headers included.
pub const SEGMENT_PAGES: u32 = 256;
/// Page of the first directory record.
pub const DIRECTORY_PAGE: u64 = 2;
/// Volumes that a write log can hold at a time.
pub const VOLUMES_MAX: u16 = 256;
/// First of the two pages that say where the newest writes are.
pub const NOTE_PAGE: u64 = DIRECTORY_PAGE + 2 * VOLUMES_MAX as u64;
/// First of the two pages of the mark of a log on two devices.
pub const MARK_PAGE: u64 = NOTE_PAGE + 2;
/// First page of the first segment.
pub const SEGMENTS_PAGE: u64 = 768;
/// Fewest segments of a write log: 8 MiB.
pub const SEGMENTS_MIN: u32 = 8;
/// Most segments of a write log: 256 GiB.
pub const SEGMENTS_MAX: u32 = 1 << 18;

/// Numbers of chunks, epochs, openings and stamps are below this: a device that says otherwise was not
/// written by a write log, and counting on from there must not overflow.
pub const NUMBERS_END: u64 = 1 << 62;
/// Stamps and openings count the starts of the log above these bits.
const START_BITS: u32 = 32;
/// The same of sessions.
pub const SESSIONS_END: u32 = 1 << 31;

/// The lowest stamp and opening of a start of the log. `newest`: the highest one that is durable;
/// `skips`: so many starts more are left out.
///
/// A power cut leaves chunks behind that the next start need not see: what leads to them is lost. They
/// must look older than what that start writes around them, so it does not just count on from what it
/// sees. Each start has a record durable before its first chunk, and so the next one is higher.
pub(crate) fn first_of_start(newest: u64, skips: u64) -> u64 {
    let last = (NUMBERS_END >> START_BITS) - 2;
    let first = (start_of(newest) + 1 + skips).min(last) << START_BITS;
    // With no more starts to count, all that is seen is counted on from.
    first.max(newest)
}

/// The start of the log that a stamp or opening is of.
pub(crate) const fn start_of(stamp: u64) -> u64 {
    stamp >> START_BITS
}

/// Segments that fit a device of so many bytes, if it can hold a write log.
pub fn segments_of(device_bytes: u64) -> Option<u32> {
    let pages = (device_bytes / BLOCK_BYTES).checked_sub(SEGMENTS_PAGE)?;
    let segments = (pages / u64::from(SEGMENT_PAGES)).min(SEGMENTS_MAX.into()) as u32;
    (segments >= SEGMENTS_MIN).then_some(segments)
}

/// Bytes of a device with so many segments.
pub fn bytes_of(segments: u32) -> u64 {
    (SEGMENTS_PAGE + u64::from(segments) * u64::from(SEGMENT_PAGES)) * BLOCK_BYTES
}

/// Byte offset of a slot: a page of the segments.
pub const fn offset_of(slot: u32) -> u64 {
    (SEGMENTS_PAGE + slot as u64) * BLOCK_BYTES
}

/// Byte offset of one of the two directory pages of a volume.
///
/// # Panics
/// If there is no such place or copy.
pub fn directory_offset(volume: u16, copy: u8) -> u64 {
    assert!(volume < VOLUMES_MAX && copy < 2, "a directory page that does not exist");
    (DIRECTORY_PAGE + u64::from(volume) * 2 + u64::from(copy)) * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_is_above_all_before_it() {
        assert_eq!(first_of_start(0, 0), 1 << START_BITS);
        let mut newest = 0;
        for skips in [0, 3, 4095, 1 << 29, 1 << 29, 1 << 40, 0] {
            // What that start writes.
            let first = first_of_start(newest, skips);
            assert!(first >= newest && first < NUMBERS_END - (1 << START_BITS), "{first:x}");
            assert!(start_of(first) > start_of(newest) || first == newest, "{first:x}");
            newest = first + 1000;
        }
    }
}
