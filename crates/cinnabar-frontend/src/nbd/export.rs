//! What a server serves: one export for each volume.

use cinnabar_engine::seam::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::seam::units::{BLOCK_BYTES, SECTOR_BYTES};

pub use crate::request::ExportId;

/// A volume as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The caller's name for it.
    pub id: ExportId,
    /// The clients' name for it: unique, 1 to
    /// [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Refuse writes; any number of clients may connect.
    pub read_only: bool,
    /// Smallest block clients should use, 512 or 4096. Only advice: requests aligned to 512 are
    /// accepted in any case.
    pub min_block_bytes: u32,
    /// Let a second client write.
    pub shared: bool,
    /// One line for people, at most 255 bytes; may be empty.
    pub description: String,
}

/// Why an export was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The id is in use.
    #[error("export id {0} is in use")]
    DuplicateId(u32),
    /// The name is in use.
    #[error("an export named '{0}' exists")]
    DuplicateName(String),
    /// Empty, too long, or with control characters.
    #[error("an export's name has 1 to {NAME_BYTES_MAX} bytes and no control characters: {0:?}")]
    Name(String),
    /// The description is longer than allowed; its length in bytes.
    #[error("an export's description has at most 255 bytes, not {0}")]
    Description(usize),
    /// Not a multiple of 512, or more than a volume can have.
    #[error("an export's size is a multiple of 512, at most 256 TiB: {0}")]
    Size(u64),
    /// Neither 512 nor 4096.
    #[error("an export's smallest block is 512 or 4096 bytes, not {0}")]
    MinBlock(u32),
    /// [`Limits::exports_max`](super::Limits::exports_max) is reached.
    #[error("the server has {0} exports, its maximum")]
    TooMany(usize),
}

impl Export {
    /// Checks everything that does not depend on other exports.
    ///
    /// # Errors
    /// Says which field is impossible.
    pub fn check(&self) -> Result<(), ExportError> {
        let name_fits = (1..=NAME_BYTES_MAX).contains(&self.name.len());
        if !name_fits || self.name.chars().any(char::is_control) {
            return Err(ExportError::Name(self.name.clone()));
        }
        if self.description.len() > 255 {
            return Err(ExportError::Description(self.description.len()));
        }
        let possible = self.size_bytes <= VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        if !possible || !self.size_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(ExportError::Size(self.size_bytes));
        }
        if ![SECTOR_BYTES, BLOCK_BYTES].contains(&u64::from(self.min_block_bytes)) {
            return Err(ExportError::MinBlock(self.min_block_bytes));
        }
        Ok(())
    }
}
