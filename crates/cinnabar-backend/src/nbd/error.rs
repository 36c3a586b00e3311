//! Why an NBD server can't be used, each with a line that helps.

use super::handshake::Refusal;
use rustix::io::Errno;

/// Why a server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdError {
    /// The name of its host is not known.
    #[error("its host is not known: {0}")]
    Name(String),
    /// Nothing listens, or the way there is closed.
    #[error("connecting: {0}")]
    Connect(Errno),
    /// The connection ended or failed during the handshake.
    #[error("the connection ended during the handshake{}: it may take no further client", .0.map(|errno| format!(": {errno}")).unwrap_or_default())]
    Ended(Option<Errno>),
    /// It took too long.
    #[error("no answer within {0} s: it may take no further client")]
    Silent(u64),
    /// It said no, or something that is no NBD.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Its blocks are too large.
    #[error("its smallest block of {0} bytes is larger than 4096")]
    BlockSize(u32),
    /// It said something impossible of its export.
    #[error("it gives impossible block sizes: {min} to {max} bytes")]
    BlockSizes {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// It has no bytes.
    #[error("it has no bytes")]
    Empty,
    /// Not whole sectors or blocks.
    #[error("its size of {size} bytes is not a multiple of {align}")]
    OddSize {
        /// Bytes.
        size: u64,
        /// What it should be a multiple of.
        align: u32,
    },
    /// It can be read but not written.
    #[error("it can only be read")]
    ReadOnly,
    /// After a reconnect it is smaller.
    #[error("it has {now} bytes now and had {before} before")]
    Resized {
        /// Bytes before.
        before: u64,
        /// Bytes now.
        now: u64,
    },
    /// After a reconnect its blocks are larger than what the volume was attached with.
    #[error(
        "its smallest block has {now} bytes now, which the volume, in use in units of {before}, does not keep to"
    )]
    Coarser {
        /// Alignment before.
        before: u32,
        /// Alignment needed now.
        now: u32,
    },
    /// No thread to serve it.
    #[error("no thread for it: {0}")]
    Thread(Errno),
}

impl NbdError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Name(_) | Self::Connect(Errno::NOENT | Errno::CONNREFUSED) => {
                "start the server first, and check the address: nbdinfo --list URI shows what it has"
            }
            Self::Connect(Errno::ACCESS | Errno::PERM) => "check the owner and mode of the socket",
            Self::Connect(_) => "check the address and the network",
            Self::Silent(_) => {
                "a server may take one client at a time: stop the other one, or give it more \
                 (qemu-nbd --shared=N)"
            }
            Self::Ended(_) => "see the server's log; it may allow fewer clients",
            Self::Refused(refusal) => refusal.hint(),
            Self::BlockSize(_) | Self::BlockSizes { .. } => {
                "export it in blocks of 512 or 4096 bytes (nbdkit: --filter=blocksize)"
            }
            Self::Empty | Self::OddSize { .. } => {
                "give the disk behind it a size in whole blocks (nbdkit: --filter=truncate)"
            }
            Self::ReadOnly => "set read_only = true for a volume that is not written",
            Self::Resized { .. } => "make it as large again as it was: its guests count on that",
            Self::Coarser { .. } => {
                "detach the volume and attach it again: its guests have to learn of it"
            }
            Self::Thread(_) => "raise the limit on threads",
        }
    }

    /// Whether the server is there and is not what it was: requests do not wait for an
    /// operator to change that. (One that refuses may be in the middle of its own start.)
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Name(_)
            | Self::Connect(_)
            | Self::Ended(_)
            | Self::Silent(_)
            | Self::Refused(_)
            | Self::Thread(_) => false,
            Self::BlockSize(_)
            | Self::BlockSizes { .. }
            | Self::Empty
            | Self::OddSize { .. }
            | Self::ReadOnly
            | Self::Resized { .. }
            | Self::Coarser { .. } => true,
        }
    }
}
