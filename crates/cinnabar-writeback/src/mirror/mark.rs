//! What each half says of itself and of the other one: the mark, in two pages.

use crate::format::{MARK_PAGE, NUMBERS_END};
use crate::recover::{Media, OpenError};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::codec::{Reader, Writer};
use cinnabar_engine::units::BLOCK_BYTES;
use std::io::ErrorKind;

const MAGIC: u32 = 0x4B4D_4C57;

/// What a half is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkState {
    /// It holds everything, and so does the other half with the same generation and pair.
    Both,
    /// It holds everything. The other one, if there is one, does not.
    Alone,
    /// It lacks what was written before it was there.
    Filling,
}

/// The mark of a half. It changes with a higher generation only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// See there.
    pub state: MarkState,
    /// Of two halves the higher one is newer.
    pub generation: u64,
    /// Drawn at random when one half began to be filled: only halves with the same one belong together.
    pub pair: u64,
    /// Which half it is, drawn at random: two with the same one are one device, or copies of one. 0: it
    /// was never marked.
    pub half: u64,
}

impl Mark {
    /// What a log says that never had a mirror.
    pub const NEVER: Self = Self { state: MarkState::Alone, generation: 0, pair: 0, half: 0 };

    pub fn encode(&self, uuid: [u8; 16]) -> MetaPage {
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.u32(MAGIC);
        w.bytes(&uuid);
        w.u8(self.state as u8);
        w.u64(self.generation);
        w.u64(self.pair);
        w.u64(self.half);
        w.seal();
        page
    }

    /// The mark in a page, if it is one of this log.
    pub fn decode(page: &MetaPage, of: [u8; 16]) -> Option<Self> {
        let mut r = Reader::verified(&page.0)?;
        if r.u32() != MAGIC || r.array::<16>() != of {
            return None;
        }
        let state = match r.u8() {
            0 => MarkState::Both,
            1 => MarkState::Alone,
            2 => MarkState::Filling,
            _ => return None,
        };
        let (generation, pair, half) = (r.u64(), r.u64(), r.u64());
        (generation < NUMBERS_END).then_some(Self { state, generation, pair, half })
    }
}

/// Byte offset of one of the two pages.
pub(super) fn offset(copy: u64) -> u64 {
    (MARK_PAGE + copy) * BLOCK_BYTES
}

/// The mark of a half, if it has one. A page that can't be read is as good as a damaged one.
///
/// # Errors
/// If both pages are damaged, or the device is overdue.
pub fn read<P>(media: &impl Media<P>, uuid: [u8; 16]) -> Result<Option<Mark>, OpenError> {
    let (mut newest, mut blank) = (None::<Mark>, false);
    for copy in 0..2 {
        let mut page = [MetaPage::zeroed()];
        match media.read_pages(offset(copy), &mut page) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(error.into()),
            Err(_) => continue,
        }
        // Both pages are written before anything relies on a mark.
        blank |= page[0] == MetaPage::zeroed();
        let mark = Mark::decode(&page[0], uuid);
        newest = newest.into_iter().chain(mark).max_by_key(|mark| mark.generation);
    }
    if newest.is_none() && !blank { Err(OpenError::Mark) } else { Ok(newest) }
}

/// Has a half say this, durably: in both its pages, one after the other.
///
/// # Errors
/// If the device fails.
pub(super) fn write<P>(media: &impl Media<P>, uuid: [u8; 16], mark: &Mark) -> std::io::Result<()> {
    for copy in 0..2 {
        media.write_page(offset(copy), &mark.encode(uuid))?;
        media.flush()?;
    }
    Ok(())
}

/// Has both pages of a half's mark say what the newer one says, durably: the other one may have been
/// left as it was when the half was marked.
///
/// # Errors
/// If the device fails.
pub(super) fn complete<P>(
    media: &impl Media<P>,
    uuid: [u8; 16],
    mark: &Mark,
) -> std::io::Result<()> {
    for copy in 0..2 {
        let (page, mut found) = (mark.encode(uuid), [MetaPage::zeroed()]);
        if media.read_pages(offset(copy), &mut found).is_err() || found[0] != page {
            media.write_page(offset(copy), &page)?;
            media.flush()?;
        }
    }
    Ok(())
}

/// The operator's word: the other half is lost for good. Gives the mark as it is then.
///
/// # Errors
/// If the device fails, is no write log, or is a half that is not complete.
pub fn force_alone<P>(media: &impl Media<P>) -> Result<Mark, OpenError> {
    let uuid = crate::recover::superblock(media)?.uuid;
    let mark = read(media, uuid)?.unwrap_or(Mark::NEVER);
    match mark.state {
        MarkState::Alone => {
            // One of its pages may say otherwise.
            write(media, uuid, &mark)?;
            Ok(mark)
        }
        MarkState::Filling => Err(OpenError::Incomplete),
        MarkState::Both => {
            let generation = mark.generation + 1;
            let mark = Mark { state: MarkState::Alone, generation, ..mark };
            write(media, uuid, &mark)?;
            Ok(mark)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_a_flipped_bit_does_not() {
        for state in [MarkState::Both, MarkState::Alone, MarkState::Filling] {
            let mark = Mark { state, generation: 7, pair: u64::MAX, half: 5 };
            let mut page = mark.encode([3; 16]);
            assert_eq!(Mark::decode(&page, [3; 16]), Some(mark));
            assert_eq!(Mark::decode(&page, [4; 16]), None, "another log's");
            page.0[30] ^= 1;
            assert_eq!(Mark::decode(&page, [3; 16]), None);
        }
        assert_eq!(Mark::decode(&MetaPage::zeroed(), [0; 16]), None);
    }
}
