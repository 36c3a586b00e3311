//! What a server serves: one socket for each volume.

use super::limits::QUEUES_MAX;
use crate::request::ExportId;
use crate::socket::ListenError;
use cinnabar_engine::seam::limits::{NAME_BYTES_MAX, VOLUME_BLOCKS_MAX};
use cinnabar_engine::seam::units::{BLOCK_BYTES, SECTOR_BYTES};
use std::path::PathBuf;

/// A volume as a guest sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The caller's name for it.
    pub id: ExportId,
    /// 1 to [`NAME_BYTES_MAX`] bytes; the first 20 are the disk's serial number.
    pub name: String,
    /// Size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Refuse writes; several guests may connect.
    pub read_only: bool,
    /// The disk's logical block, 512 or 4096 bytes. Requests aligned to 512 are accepted in any
    /// case.
    pub min_block_bytes: u32,
    /// Request queues offered, 1 to [`QUEUES_MAX`].
    pub queues_max: u16,
    /// Most bytes of guest memory that a front-end may have this process map. More than 16 TiB counts as that.
    pub memory_bytes_max: u64,
}

/// Where an export is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSpec {
    /// The unix socket. One left behind by a server that is dead is replaced.
    pub path: PathBuf,
    /// Permission bits, at most 0777; `None`: 0660.
    pub mode: Option<u32>,
    /// Name or number of its group; `None`: that of the process.
    pub group: Option<String>,
}

/// Why an export was refused.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The id is in use.
    #[error("export id {0} is in use")]
    DuplicateId(u32),
    /// Empty, too long, or with control characters.
    #[error("an export's name has 1 to {NAME_BYTES_MAX} bytes and no control characters: {0:?}")]
    Name(String),
    /// Not a multiple of 512, or more than a volume can have.
    #[error("an export's size is a multiple of 512, at most 256 TiB: {0}")]
    Size(u64),
    /// Neither 512 nor 4096.
    #[error("an export's smallest block is 512 or 4096 bytes, not {0}")]
    MinBlock(u32),
    /// No queues, or too many.
    #[error("an export has 1 to {QUEUES_MAX} queues, not {0}")]
    Queues(u16),
    /// [`Limits::exports_max`](super::Limits::exports_max) is reached.
    #[error("the server has {0} exports, its maximum")]
    TooMany(usize),
    /// The server is being drained.
    #[error("the server stops")]
    Stopping,
    /// The socket can't be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl Export {
    /// Checks everything that does not depend on other exports.
    ///
    /// # Errors
    /// Says which field is impossible.
    pub fn check(&self) -> Result<(), AddError> {
        let name_fits = (1..=NAME_BYTES_MAX).contains(&self.name.len());
        if !name_fits || self.name.chars().any(char::is_control) {
            return Err(AddError::Name(self.name.clone()));
        }
        let possible = self.size_bytes <= VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        if !possible || !self.size_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(AddError::Size(self.size_bytes));
        }
        if ![SECTOR_BYTES, BLOCK_BYTES].contains(&u64::from(self.min_block_bytes)) {
            return Err(AddError::MinBlock(self.min_block_bytes));
        }
        if !(1..=QUEUES_MAX).contains(&self.queues_max) {
            return Err(AddError::Queues(self.queues_max));
        }
        Ok(())
    }
}
