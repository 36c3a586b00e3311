//! Why a file or device can't be used, each with a line that helps.

use crate::hybrid::{self, HybridError};
use crate::nbd::NbdError;
use crate::rbd::RbdError;
use cinnabar_engine::metadata::superblock::SuperblockError;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a file or device can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct DiskError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub kind: DiskErrorKind,
}

/// See [`DiskError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskErrorKind {
    /// It isn't there.
    #[error("no such file or device")]
    NotFound,
    /// The folder it is to be made in isn't there.
    #[error("its folder does not exist")]
    NoFolder,
    /// Not allowed.
    #[error("permission denied to user {}", rustix::process::geteuid().as_raw())]
    Permission,
    /// It can be read but not written.
    #[error("it can only be read")]
    ReadOnly,
    /// Neither file nor block device.
    #[error("it is a {0}, not a file or block device")]
    WrongKind(&'static str),
    /// No bytes.
    #[error("it is empty")]
    Empty,
    /// Not whole sectors.
    #[error("its size of {0} bytes is not a multiple of 512")]
    OddSize(u64),
    /// A file ends before what its superblock says.
    #[error("it has {got} bytes, but was made with {expected}")]
    Short {
        /// Bytes there are.
        got: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// Logical blocks of more than 4 KiB.
    #[error("its logical blocks of {0} bytes are larger than 4096")]
    BlockSize(u32),
    /// Another process has it.
    #[error("it is in use{}{}", holder.as_deref().unwrap_or_default(), waited_text(*waited))]
    InUse {
        /// How long was waited for it.
        waited: Duration,
        /// Who has it, if that is known.
        holder: Option<String>,
    },
    /// Opening it, or the wait for another process that uses it, was given up.
    #[error("opening it was given up")]
    Cancelled,
    /// The file system knows no `flock`.
    #[error("it cannot be locked: {0}")]
    Lock(Errno),
    /// A new cache file needs a size.
    #[error("it does not exist and no size is given")]
    NoSize,
    /// No room for the file.
    #[error("there is no room for {0} bytes")]
    NoSpace(u64),
    /// It holds something that is not a Cinnabar cache.
    #[error("it holds data that is not a Cinnabar cache ({0})")]
    Foreign(String),
    /// It is a Cinnabar cache, but can't be used.
    #[error("it cannot be opened as a cache: {0}")]
    Superblock(SuperblockError),
    /// It holds something that is not a write log.
    #[error("it holds data that is not a write log ({0})")]
    NoWriteLog(String),
    /// A write log's file ends before what its superblock says.
    #[error("it has {got} bytes, but the write log on it {expected}")]
    WriteLogShort {
        /// Bytes there are.
        got: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// Too small for a write log.
    #[error("it has {got} bytes; a write log needs at least {least}")]
    WriteLogSmall {
        /// Bytes there are.
        got: u64,
        /// Bytes that the smallest write log has.
        least: u64,
    },
    /// It is a write log, but can't be used.
    #[error("it cannot be opened as a write log: {0}")]
    WriteLog(cinnabar_writeback::format::superblock::SuperblockError),
    /// What is wrong with a server.
    #[error(transparent)]
    Server(NbdError),
    /// It can't say which of its blocks are a parent's.
    #[error("it can't be served as a clone: only an RBD image can say what it has itself")]
    NoClone,
    /// What is wrong with an RBD image.
    #[error(transparent)]
    Rbd(RbdError),
    /// What is wrong with a hybrid volume.
    #[error(transparent)]
    Hybrid(HybridError),
    /// Something that was asked of it takes too long.
    #[error("it does not answer ({} s)", .0.as_secs_f64())]
    Silent(Duration),
    /// Anything else.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

impl DiskError {
    pub(super) fn new(path: &Path, kind: DiskErrorKind) -> Self {
        Self { path: path.to_owned(), kind }
    }

    /// What an error of the kernel means for a path.
    pub(super) fn from_errno(path: &Path, during: &'static str, errno: Errno) -> Self {
        let kind = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO => DiskErrorKind::NotFound,
            Errno::ACCESS | Errno::PERM => DiskErrorKind::Permission,
            Errno::ROFS => DiskErrorKind::ReadOnly,
            Errno::ISDIR => DiskErrorKind::WrongKind("directory"),
            // Only `Progress::go_on` gives this.
            Errno::CANCELED => DiskErrorKind::Cancelled,
            errno => DiskErrorKind::Io { during, errno },
        };
        Self::new(path, kind)
    }

    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match &self.kind {
            DiskErrorKind::Server(error) => error.hint(),
            DiskErrorKind::Rbd(error) => error.hint(),
            DiskErrorKind::Hybrid(error) => hybrid::hint(error),
            DiskErrorKind::NotFound => {
                "check the path; a relative one counts from the configuration file's folder, on the command \
                 line from where the command runs"
            }
            DiskErrorKind::NoClone => {
                "leave parent out; a qcow2 overlay over a read-only volume shares its cached blocks, too"
            }
            DiskErrorKind::NoFolder => "create the folder first",
            DiskErrorKind::Permission => {
                "check owner and mode of the file or device, and of its folders"
            }
            DiskErrorKind::ReadOnly => "set read_only = true for a volume that is not written",
            DiskErrorKind::WrongKind(_) => "name a regular file or a block device",
            DiskErrorKind::Empty => "give the file its size first: truncate -s 10G PATH",
            DiskErrorKind::OddSize(_) => {
                "a raw disk image is made of 512-byte sectors: truncate -s %512 PATH rounds it up"
            }
            DiskErrorKind::Short { .. } => "restore the file, or format it again with --force",
            DiskErrorKind::BlockSize(_) => "use a device with logical blocks of 512 or 4096 bytes",
            DiskErrorKind::InUse { .. } | DiskErrorKind::Cancelled => {
                "stop the process that uses it (another daemon, a mount); a daemon that was killed lets go \
                 when its last write has landed"
            }
            DiskErrorKind::Lock(_) => "put it on a file system that supports flock",
            DiskErrorKind::NoSize => "set size in [cache], for example size = \"8GiB\"",
            DiskErrorKind::NoSpace(_) => "free some room, or choose a smaller size",
            DiskErrorKind::Foreign(_) => "check the path; --force formats it and loses that data",
            DiskErrorKind::Superblock(SuperblockError::Version { .. }) => {
                "use the version that made it, or format it again with --force"
            }
            DiskErrorKind::Superblock(_) => {
                "format it again with --force; only cached data is lost"
            }
            DiskErrorKind::NoWriteLog(_) => {
                "name a new file, or a block device that was emptied (wipefs)"
            }
            DiskErrorKind::WriteLogShort { .. } => {
                "restore the file: it holds writes that no back end has"
            }
            DiskErrorKind::WriteLogSmall { .. } => "choose a larger size",
            DiskErrorKind::WriteLog(_) => {
                "use the version that made it; it holds writes that no back end has"
            }
            DiskErrorKind::Io { .. } | DiskErrorKind::Silent(_) => {
                "see the kernel log (dmesg) for the device's errors"
            }
        }
    }
}

impl DiskErrorKind {
    /// Whether a cache device is lost, and not merely named wrongly. `known`: it was in use before.
    pub fn is_lost(&self, known: bool) -> bool {
        match self {
            // A block device that is not there, one that fails, one whose contents are damaged or
            // another program's.
            Self::NotFound
            | Self::Silent(_)
            | Self::Io { .. }
            | Self::Short { .. }
            | Self::Superblock(SuperblockError::Damaged | SuperblockError::Version { .. }) => true,
            // Its file system is not mounted, or was switched to read-only when the SSD failed; or
            // both copies of its superblock were overwritten.
            Self::NoFolder | Self::NoSize | Self::Empty | Self::ReadOnly | Self::Foreign(_) => {
                known
            }
            _ => false,
        }
    }
}

fn waited_text(waited: Duration) -> String {
    if waited.is_zero() {
        String::new()
    } else {
        format!(", still so after {:.1} s", waited.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_is_a_mistake() {
        let errno = Errno::IO;
        for kind in [
            DiskErrorKind::NotFound,
            DiskErrorKind::Io { during: "open", errno },
            DiskErrorKind::Silent(Duration::from_secs(1)),
            DiskErrorKind::Short { got: 1, expected: 2 },
            DiskErrorKind::Superblock(SuperblockError::Damaged),
            DiskErrorKind::Superblock(SuperblockError::Version { version: 9, sequence: 1 }),
        ] {
            assert!(kind.is_lost(false) && kind.is_lost(true), "{kind}");
        }
        let overwritten = DiskErrorKind::Foreign("data".into());
        for kind in
            [DiskErrorKind::NoFolder, DiskErrorKind::NoSize, DiskErrorKind::ReadOnly, overwritten]
        {
            assert!(!kind.is_lost(false) && kind.is_lost(true), "{kind}");
        }
        for kind in [
            DiskErrorKind::InUse { waited: Duration::ZERO, holder: None },
            DiskErrorKind::Cancelled,
            DiskErrorKind::Permission,
            DiskErrorKind::WrongKind("directory"),
            DiskErrorKind::NoSpace(5),
        ] {
            assert!(!kind.is_lost(false) && !kind.is_lost(true), "{kind}");
        }
    }
}
