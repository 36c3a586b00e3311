//! Jobs and their completions.

use super::FileId;
use super::extents::Extent;
use crate::memory::Memory;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{IoError, Slices};
use rustix::io::Errno;

/// A piece of file I/O. It owns its buffers until it is done.
#[derive(Debug)]
pub struct Job {
    /// The caller's name for it, returned with its completion.
    pub token: u64,
    /// Where.
    pub file: FileId,
    /// What.
    pub op: JobOp,
}

/// What a job does. Offsets and lengths are bytes, aligned as the disk demands.
#[derive(Debug)]
pub enum JobOp {
    /// Reads into `pages`, then into `data`.
    Read {
        /// First byte.
        offset: u64,
        /// Where to; come back with the completion.
        pages: Vec<MetaPage>,
        /// Where to, behind the pages.
        data: Slices<Memory>,
    },
    /// Writes `pages`, then `data`.
    Write {
        /// First byte.
        offset: u64,
        /// Where from; come back with the completion.
        pages: Vec<MetaPage>,
        /// Where from, behind the pages.
        data: Slices<Memory>,
        /// Done only when durable.
        fua: bool,
    },
    /// Makes durable every write that was done before this was submitted.
    Flush,
    /// The range holds nothing any more and may read as what it was or as zeros. A disk that
    /// can't do that leaves it as it is: success.
    Trim {
        /// Which.
        span: ByteSpan,
    },
    /// Gives a range of a file its space, and leaves what it holds as it is. A disk that has its space
    /// anyway, or can't be given any ahead, is left as it is: success.
    MakeRoom {
        /// Which.
        span: ByteSpan,
    },
    /// Zeroes a range, by whatever means the disk has.
    WriteZeroes {
        /// Which.
        span: ByteSpan,
        /// It may be deallocated.
        may_punch: bool,
    },
    /// Which parts of a range are allocated.
    Extents {
        /// Which.
        span: ByteSpan,
    },
}

/// A job that ended.
#[derive(Debug)]
pub struct Done {
    /// The job's token.
    pub token: u64,
    /// How it ended; all of it was done, or an error.
    pub result: Result<(), Errno>,
    /// The pages of a read or write.
    pub pages: Vec<MetaPage>,
    /// The answer to [`JobOp::Extents`]: covers the span from its start, perhaps not to its end.
    pub extents: Vec<Extent>,
}

/// What an error of the kernel means to engine and guests.
pub fn io_error(errno: Errno) -> IoError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
        Errno::ROFS | Errno::PERM | Errno::BADF | Errno::ACCESS => IoError::ReadOnly,
        Errno::OPNOTSUPP | Errno::NOSYS => IoError::Unsupported,
        Errno::TIMEDOUT => IoError::TimedOut,
        _ => IoError::Io,
    }
}
