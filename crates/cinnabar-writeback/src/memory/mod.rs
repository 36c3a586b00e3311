//! Writes that are acknowledged from memory: a file that outlives the daemon, and not the host.
//!
//! A volume may have its writes acknowledged when they are in the *write memory*: a file in a tmpfs or
//! hugetlbfs that the daemon has mapped. If the daemon is killed, it is there; if the host loses power,
//! it is gone, like a disk's volatile cache. Chunks are filled there, and go to the log's device when
//! their epoch ends, with age, or when memory is short. A block that is written again before that
//! takes the place of its older version, which never reaches the device.
//!
//! # Layout
//!
//! One page of header, a table of entries of 128 bytes, and the pages of data that they are for. An
//! entry says which chunk it belongs to and where in it, and what an entry of a chunk's header says
//! ([`Entry`](crate::format::chunk::Entry)). All entries of a chunk together are the chunk.
//!
//! # Order of stores
//!
//! The daemon may be killed between any two stores. Stores before it have happened, stores after it
//! have not: a thread that is killed stops at one instruction, and other processes see what it has
//! stored. So compilers must not move stores, and nothing else is needed.
//!
//! * *A new version:* the data to a page whose entry is empty; the entry without its first eight bytes
//!   (checksum and mark); these eight bytes. Then the write is acknowledged.
//! * *A version that replaces another one of the same chunk:* the same in a page of its own, with a
//!   higher stamp; then the entry of the older version is cleared. Of two versions the higher stamp
//!   counts, so one of both is there at each moment.
//! * *A chunk has been written:* its entries are cleared, and their pages may be used again. What
//!   is killed before that finds the chunk in both places; the device's counts.
//!
//! # Which file counts
//!
//! The log's device has a note of the memory in use ([`note`]): boot of the host, a number drawn for
//! this use of the file, and its path. The file has boot, number, and the identity of the log; each
//! entry has the number, too. All must agree. The note is taken away before a file is used again, and
//! made again afterwards, durably each time: a file of another boot, log or session is never believed.

mod format;
mod kept;
pub mod note;
mod replay;

pub use format::{ENTRY_BYTES, MemoryHeader, bytes_of, pages_of};
pub use kept::MemoryStatus;
pub(crate) use kept::{Kept, Spot};
pub use replay::{Host, MemoryAt, is_of, open_with, put_back, release};

/// Fewest pages of a write memory.
pub const PAGES_MIN: u32 = 64;

/// A file in memory. Offsets are bytes within [`bytes`](Self::bytes).
pub trait MemoryFile<P> {
    /// Its size.
    fn bytes(&self) -> u64;
    /// Copies bytes out.
    fn load(&self, at: u64, to: &mut [u8]);
    /// A block of data.
    fn load_data(&self, at: u64) -> P;
    /// Stores bytes: after all stores before, and before all stores after it.
    fn store(&self, at: u64, bytes: &[u8]);
    /// Stores a block of data, in the same order.
    fn store_data(&self, at: u64, data: &P, from: u64);
}

/// What is to be done to the write memory, in the order of the actions.
#[derive(Clone, Debug)]
pub enum MemoryOp<P> {
    /// Store a block of data.
    Data {
        /// Byte of the file.
        to: u64,
        /// The memory that it is in.
        data: P,
        /// Byte of the block in it.
        at: u64,
    },
    /// Store an entry.
    Entry {
        /// Byte of the file.
        to: u64,
        bytes: [u8; ENTRY_BYTES],
    },
    /// Make an entry count no more.
    Clear {
        /// Byte of the file.
        to: u64,
    },
}

/// Bytes of an entry that make it valid: stored last, cleared first.
const SEAL_BYTES: usize = 8;

impl<P> MemoryOp<P> {
    /// Does it.
    pub fn carry_out(&self, file: &impl MemoryFile<P>) {
        match self {
            Self::Data { to, data, at } => file.store_data(*to, data, *at),
            Self::Entry { to, bytes } => {
                file.store(to + SEAL_BYTES as u64, &bytes[SEAL_BYTES..]);
                file.store(*to, &bytes[..SEAL_BYTES]);
            }
            Self::Clear { to } => file.store(*to, &[0; SEAL_BYTES]),
        }
    }
}
