//! The device of a write log before it is used, and making an empty log of it.

use crate::format::chunk::ChunkHeader;
use crate::format::superblock::{Superblock, SuperblockError};
use crate::format::{SEGMENTS_PAGE, segments_of};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;

/// The device of a write log, for what happens before it is used. Offsets are bytes. I/O that does not
/// end within a bound fails with [`ErrorKind::TimedOut`](std::io::ErrorKind::TimedOut): of a log on two
/// devices, one that is overdue counts as missing from then on.
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
    /// Writes pages, one behind the other.
    ///
    /// # Errors
    /// What the device says.
    fn write_pages(&self, offset: u64, pages: &[MetaPage]) -> std::io::Result<()> {
        let each = (offset..).step_by(BLOCK_BYTES as usize).zip(pages);
        each.into_iter().try_for_each(|(offset, page)| self.write_page(offset, page))
    }
    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// What the device says.
    fn flush(&self) -> std::io::Result<()>;
    /// Has each device of a log get what any of them has, durably. Something was written that leads
    /// recovery to chunks that it would not have found before.
    ///
    /// # Errors
    /// If none of them is left.
    fn level(&self) -> Result<(), OpenError> {
        Ok(())
    }
    /// Starts of the log that are left out, so that what this one writes looks newer than what a device
    /// that is filled now may hold of a history that was given up.
    fn skips_starts(&self) -> u64 {
        0
    }
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
    /// Both records of a place are damaged, or one of them can't be read and may be the newer one: which
    /// volume it holds, or how much of it the back end has, is not known.
    #[error(
        "both records of place {0} of the write log's directory are damaged, or the newer may be"
    )]
    Directory(u16),
    /// The newest writes are in memory, and that is not there.
    #[error("the newest acknowledged writes are in the write memory {0}, and it is not there")]
    Memory(String),
    /// The memory that is to be used holds another log's writes.
    #[error("the write memory {0} holds acknowledged writes of another write log")]
    MemoryOfAnother(String),
    /// What is in memory is not what was put there.
    #[error("the write memory {path} is damaged: chunk {number} is not what was acknowledged")]
    MemoryDamaged {
        /// Where it is.
        path: String,
        /// Number of the chunk.
        number: u64,
    },
    /// Where the newest writes are is not known.
    #[error("both pages that say whether the newest writes are in memory are damaged")]
    Note,
    /// What a half of a mirrored log is can't be read.
    #[error("both pages that say which half of a mirrored write log counts are damaged")]
    Mark,
    /// The other half may have gone on alone.
    #[error(
        "the write log is mirrored, and its other half, which may hold newer writes, is not there"
    )]
    HalfMissing,
    /// The half that is there was being filled.
    #[error("this half of a mirrored write log is not complete, and the other one is not there")]
    Incomplete,
    /// Both halves went on alone.
    #[error("both halves of the write log have been written without the other one")]
    Split,
    /// They are one half, twice.
    #[error("the devices of the mirrored write log are one device, or one is a copy of the other")]
    Copies,
    /// They are no halves of one log.
    #[error("the devices of the mirrored write log are of two different write logs")]
    OtherLog,
    /// A device is too small for a half.
    #[error("a device of the mirrored write log has {have} bytes; the log needs {need}")]
    MirrorSmaller {
        /// Bytes of the device.
        have: u64,
        /// Bytes that it should have.
        need: u64,
    },
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
    let read = media.read_pages(0, &mut pages);
    if read.is_err() {
        read_each(media, 0, &mut pages)?;
    }
    let [first, second] = &pages;
    let found =
        Superblock::decode(first).or_else(|error| Superblock::decode(second).map_err(|_| error));
    match (found, read) {
        // The page that can't be read may have been one.
        (Err(_), Err(error)) => Err(error.into()),
        (found, _) => Ok(found?),
    }
}

/// Reads pages of which the log has two each: one that can't be read is as good as a damaged one.
///
/// # Errors
/// If none of them can be read, or the device is overdue.
pub(crate) fn read_each<P>(
    media: &impl Media<P>,
    offset: u64,
    pages: &mut [MetaPage],
) -> std::io::Result<()> {
    let Err(failed) = media.read_pages(offset, pages) else { return Ok(()) };
    if is_overdue(&failed) {
        return Err(failed);
    }
    let mut some = false;
    for (page, at) in pages.iter_mut().zip((offset..).step_by(BLOCK_BYTES as usize)) {
        match media.read_pages(at, std::slice::from_mut(page)) {
            Ok(()) => some = true,
            Err(error) if is_overdue(&error) => return Err(error),
            Err(_) => *page = ChunkHeader::unreadable(),
        }
    }
    if some { Ok(()) } else { Err(failed) }
}

/// Whether the device does not answer: it must not be asked again. Any other error is of what was to be read.
pub(crate) fn is_overdue(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::TimedOut
}
