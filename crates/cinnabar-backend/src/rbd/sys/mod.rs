//! librados and librbd: the calls that are used, in safe Rust.
//!
//! All unsafe code of this backend is below here. `raw` has the declarations; [`Cluster`] is a
//! connection with a pool, [`Image`] an open image, on which operations are started and collected.
//!
//! Both are `Send` and `Sync`: the libraries' handles may be used from any thread (librbd.h and
//! librados.h document what may not, and nothing of it is done after a handle is shared).

mod clone;
mod cluster;
mod image;
mod look;
mod raw;
mod snaps;

pub(super) use clone::Ancestor;
pub(super) use cluster::{Cluster, Locker};
pub(super) use image::Image;
pub(super) use look::{Look, Seen};
pub(super) use snaps::Snap;

use libc::iovec;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::ffi::{CString, c_int};

/// Memory of a call: pieces of what a task owns.
#[derive(Default)]
pub(super) struct Parts(pub(super) SmallVec<[iovec; 4]>);

// SAFETY: the pieces go along with the task that owns them, which may go to any thread.
unsafe impl Send for Parts {}

/// A result of the libraries: negative error numbers.
fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::from_raw_os_error(result.saturating_neg())) } else { Ok(result) }
}

/// A name for the libraries. Specs and Ceph's own answers hold no zero bytes.
fn c_text(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}
