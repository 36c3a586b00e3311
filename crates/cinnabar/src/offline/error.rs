//! Why an offline tool can't do its work at all; damage that it finds is a result, not an error.
//!
//! Made by every tool of this module, shown by the command line.

use cinnabar_backend::DiskError;
use cinnabar_backend::disk::DiskErrorKind;
use cinnabar_engine::metadata::superblock::SuperblockError;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfflineError {
    /// The device can't be opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It is not a cache device, or not one that can be read.
    #[error("{device}: {error}")]
    Superblock {
        /// Its path.
        device: String,
        /// Why.
        error: SuperblockError,
    },
    /// One of its regions can't be read.
    #[error("{device}: shard {shard}: {error}")]
    Region {
        /// Its path.
        device: String,
        /// Which.
        shard: u32,
        /// Why.
        error: RegionError,
    },
    /// It has fewer shards than were asked for.
    #[error("{device}: there is no shard {shard}, the device has {shards}")]
    NoShard {
        /// Its path.
        device: String,
        /// The one asked for.
        shard: u32,
        /// How many there are.
        shards: usize,
    },
    /// There is nothing to repair it from.
    #[error("{device}: both copies of the superblock are damaged")]
    NoCopy {
        /// Its path.
        device: String,
    },
    /// There is nothing on it.
    #[error("{device}: there is no write log on it")]
    NoWriteLog {
        /// Its path.
        device: String,
    },
    /// It is a write log that can't be used.
    #[error("{device}: {message}")]
    WriteLog {
        /// Its path.
        device: String,
        /// Why.
        message: String,
    },
    /// The write log's device fails.
    #[error("{device}: {message}")]
    WriteLogIo {
        /// Its path.
        device: String,
        /// What the kernel says.
        message: String,
    },
    /// It is a half of a mirrored write log, and can't be used as it was given.
    #[error("{device}: {message}")]
    LogHalf {
        /// Its path.
        device: String,
        /// Why.
        message: String,
        /// A line that helps.
        hint: &'static str,
    },
    /// The newest writes are in memory, and that can't be used.
    #[error("{device}: the newest acknowledged writes are in the write memory {path}: {reason}")]
    WriteMemory {
        /// Path of the log.
        device: String,
        /// Path of the memory.
        path: String,
        /// Why it can't be used.
        reason: String,
    },
    /// No such volume.
    #[error("{device}: the write log has no volume {volume:?}; it has {}", names(there))]
    NotInWriteLog {
        /// Its path.
        device: String,
        volume: String,
        /// Those that it has.
        there: Vec<String>,
    },
    /// What a back end lacks is not all there.
    #[error("{device}: volume {volume:?} is damaged: {reason}")]
    DirtyDamaged {
        /// Its path.
        device: String,
        volume: String,
        /// What is wrong.
        reason: String,
    },
    /// The back end can't be opened.
    #[error(transparent)]
    Target(DiskError),
    /// The claim of the back end is in the way, or can't be read or removed.
    #[error("{message}")]
    Claim {
        /// Why.
        message: String,
        /// A line that helps.
        hint: &'static str,
    },
    /// The back end can't hold the volume.
    #[error("{to}: it has {have} bytes, the volume has {need}")]
    TargetSmall {
        /// Its address.
        to: String,
        /// Bytes that it has.
        have: u64,
        /// Bytes of the volume.
        need: u64,
    },
    /// Nothing says that it is the volume's own.
    #[error("{to}: there is no claim of volume {volume:?} to it, so it may not be its back end")]
    TargetUnclaimed {
        /// Its address.
        to: String,
        volume: String,
    },
    /// The order of its writes and those of others would be lost.
    #[error(
        "{volume:?} is in a write group with {}, of which the log has writes, too",
        names(others)
    )]
    Grouped { volume: String, others: Vec<String> },
    /// The back end fails.
    #[error("{to}: {message}")]
    TargetIo {
        /// Its address.
        to: String,
        /// What the kernel says.
        message: String,
    },
}

/// Names of volumes for people, a few of many.
fn names(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Why nothing is known of a region, where there are several. A start refuses the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The device has been cut off.
    #[error("the device ends before its region")]
    Beyond,
    /// Zeros, or foreign data.
    #[error("there is no superblock where its region begins, at byte {0}")]
    Missing(u64),
    /// Ours, but neither copy is whole.
    #[error("both copies of its superblock are damaged")]
    Damaged,
    /// Whole, but not this region's.
    #[error("its superblock is another device's, or another shard's")]
    Stray,
    /// Written by another version.
    #[error("its superblock has format version {0}, which is not supported")]
    Version(u32),
}

impl OfflineError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Disk(error) => match error.kind {
                DiskErrorKind::NotFound => {
                    "check the path; the configuration says it: [cache] device"
                }
                DiskErrorKind::Empty | DiskErrorKind::OddSize(_) | DiskErrorKind::ReadOnly => {
                    "name a cache device; the configuration says which: [cache] device"
                }
                DiskErrorKind::InUse { .. } => {
                    "stop the daemon that uses it first; cinnabar status tells about a running one"
                }
                _ => error.hint(),
            },
            Self::Superblock { error: SuperblockError::Version { .. }, .. }
            | Self::Region { error: RegionError::Version(_), .. } => {
                "use the version of cinnabar that made it: cinnabar version shows the format"
            }
            Self::Superblock { .. } => {
                "name a cache device; the configuration says which: [cache] device"
            }
            Self::NoShard { .. } => "shards are counted from 0; leave --shard out for all of them",
            Self::Region { .. } => {
                "only cached data is lost; with the daemon running, format it again: cinnabar cache \
                 replace DEVICE --format"
            }
            Self::NoWriteLog { .. } => {
                "check the path; the configuration says it: [cache] write_log"
            }
            Self::WriteLog { .. } => {
                "nothing of it was dropped; keep the device, and restore a copy of it if there is one"
            }
            Self::WriteLogIo { .. } => "see the kernel log (dmesg) for the device's errors",
            Self::WriteMemory { .. } => {
                "name the file with --memory; --without-memory gives up what no flush covered"
            }
            Self::NotInWriteLog { .. } => {
                "check the volume's name; cinnabar cache check LOG lists them"
            }
            Self::DirtyDamaged { .. } => {
                "nothing was dropped: keep the log; what the back end has is an earlier state that the \
                 guest's file system recovers from"
            }
            Self::Target(error) => error.hint(),
            Self::Claim { hint, .. } | Self::LogHalf { hint, .. } => hint,
            Self::TargetSmall { .. } => "name the volume's own back end, or one of its size",
            Self::TargetUnclaimed { .. } => {
                "name the claim with --claim (of an exclusive volume it is in the daemon's state folder), or say \
                 --copy: the log keeps the writes then"
            }
            Self::Grouped { .. } => {
                "bring them to their back ends together: --volume and --to once for each; or take a --copy"
            }
            Self::TargetIo { .. } => {
                "what was written until then is recorded: mend the back end and run the command again"
            }
            Self::NoCopy { .. } => {
                "only cached data is lost; format it again: cinnabar serve --force"
            }
        }
    }
}

/// Exit code 1 says that a device is damaged; that it can't be looked at is always 2.
impl From<OfflineError> for cinnabar_text::Failure {
    fn from(error: OfflineError) -> Self {
        Self::of_usage(error.to_string(), error.hint())
    }
}
