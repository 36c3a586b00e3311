//! The superblock: which device this is, and how large.

use super::{SEGMENTS_MAX, SEGMENTS_MIN};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::codec::{Reader, Writer};

const MAGIC: &[u8; 8] = b"CINWLOG1";
/// The only version so far.
pub const VERSION: u32 = 1;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the device, drawn at random when it is formatted. Secret enough to seed hashes.
    pub uuid: [u8; 16],
    /// Segments behind the directory.
    pub segments: u32,
}

/// Why a page is no superblock of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// The first bytes are others, or the checksum is wrong.
    #[error("not a write log")]
    Foreign,
    /// Written by a later release.
    #[error("version {0} of the write log's format is not known to this release")]
    Version(u32),
    /// It contradicts itself.
    #[error("the superblock of the write log is damaged")]
    Damaged,
}

impl Superblock {
    /// The page.
    ///
    /// # Panics
    /// If the number of segments is not allowed.
    pub fn encode(&self) -> MetaPage {
        assert!((SEGMENTS_MIN..=SEGMENTS_MAX).contains(&self.segments), "a size that is allowed");
        let mut page = MetaPage::zeroed();
        let mut w = Writer::new(&mut page.0);
        w.bytes(MAGIC);
        w.u32(VERSION);
        w.bytes(&self.uuid);
        w.u32(self.segments);
        w.seal();
        page
    }

    /// The superblock in a page.
    ///
    /// # Errors
    /// Says what the page is instead.
    pub fn decode(page: &MetaPage) -> Result<Self, SuperblockError> {
        let mut r = Reader::verified(&page.0).ok_or(SuperblockError::Foreign)?;
        if &r.array::<8>() != MAGIC {
            return Err(SuperblockError::Foreign);
        }
        let version = r.u32();
        if version != VERSION {
            return Err(SuperblockError::Version(version));
        }
        let found = Self { uuid: r.array(), segments: r.u32() };
        let fits = (SEGMENTS_MIN..=SEGMENTS_MAX).contains(&found.segments);
        if fits { Ok(found) } else { Err(SuperblockError::Damaged) }
    }
}
