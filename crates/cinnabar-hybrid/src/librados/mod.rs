//! Objects of a Ceph cluster, through librados.
//!
//! * [`target`]: which cluster, as which user. [`error`]: why it can't be used.
//! * [`owner`]: which process holds a lock, and whether it is known to be gone.
//!   [`lock_state`]: for how long a lock counts as held after it was seen.
//! * `cluster`: a connection: identity, addresses, fences. `pool`: one of its pools: lists, locks, operations.
//! * `write_op`, `read_op`: compound operations, each carried out on one object in one step or not at all.
//! * `flight`: an operation under way; what it reads into and writes from belongs to it.
//! * `lock`: a lock with a lease, as an operation's part.
//!
//! All but the first two are there with the Cargo feature `ceph` only.
//!
//! # What is promised
//! * An operation ends exactly once, on a thread of the library's. Until then it holds its memory.
//! * An operation has ended when it can have no further effect, if no time-out is set (`Patience`): one that
//!   is given up may still be carried out.

pub mod error;
pub mod lock_state;
pub mod owner;
pub mod target;

#[cfg(feature = "ceph")]
mod cluster;
#[cfg(feature = "ceph")]
mod flight;
#[cfg(feature = "ceph")]
mod lock;
#[cfg(feature = "ceph")]
mod pool;
#[cfg(feature = "ceph")]
mod raw;
#[cfg(feature = "ceph")]
mod read_op;
#[cfg(feature = "ceph")]
mod write_op;

#[cfg(feature = "ceph")]
pub use cluster::{Cluster, OPEN_S, Patience};
#[cfg(feature = "ceph")]
pub use flight::{Landed, Then};
#[cfg(feature = "ceph")]
pub use lock::{Lease, Locker};
#[cfg(feature = "ceph")]
pub use pool::{Page, Pool};
#[cfg(feature = "ceph")]
pub use read_op::{ENTRIES_MAX, Omap, ReadOp};
#[cfg(feature = "ceph")]
pub use write_op::WriteOp;

#[cfg(feature = "ceph")]
use {
    rustix::io::Errno,
    std::ffi::{CString, c_int},
};

/// A result of the library: negative error numbers.
#[cfg(feature = "ceph")]
fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::from_raw_os_error(result.saturating_neg())) } else { Ok(result) }
}

/// A name for the library.
#[cfg(feature = "ceph")]
fn c_text(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}
