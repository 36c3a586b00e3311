//! An operation under way.
//!
//! Everything that the library reads from or writes to until the operation ends belongs to the operation's box,
//! which the library holds as the callback's argument. The callback may still be running when others already
//! know of the end, so it owns all that it touches.

use crate::librados::{checked, raw};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};

/// What is done with an operation that has ended: called once, on a thread of the library's. It must neither
/// block nor drop a connection.
pub type Then<T> = Box<dyn FnOnce(Landed<T>) + Send>;

/// An operation that has ended.
#[derive(Debug)]
pub struct Landed<T> {
    /// Whether all of it was carried out; if not, nothing of it was.
    pub result: Result<(), Errno>,
    /// The object's version that the operation saw, or that it made.
    pub version: u64,
    /// What the operation was made of, with what was read.
    pub op: T,
}

/// What the library holds of an operation.
struct Flight<T> {
    op: T,
    then: Then<T>,
}

/// Begins an operation: `begin` gets the argument for [`landed`]. If it fails at once, that is the
/// operation's end.
pub(crate) fn begin<T: Send>(
    op: T,
    then: Then<T>,
    begin: impl FnOnce(*mut c_void) -> Result<(), Errno>,
) {
    let flight = Box::into_raw(Box::new(Flight { op, then }));
    if let Err(errno) = begin(flight.cast()) {
        // SAFETY: the library has not taken the argument.
        let Flight { op, then } = *unsafe { Box::from_raw(flight) };
        then(Landed { result: Err(errno), version: 0, op });
    }
}

/// Starts what `start` hands to the library together with a completion that calls [`landed`].
pub(crate) fn with_completion<T: Send>(
    argument: *mut c_void,
    start: impl FnOnce(raw::Completion) -> c_int,
) -> Result<(), Errno> {
    let mut completion = std::ptr::null_mut();
    // SAFETY: a live place for the completion; the callback fits its argument.
    checked(unsafe {
        raw::rados_aio_create_completion2(argument, Some(landed::<T>), &raw mut completion)
    })?;
    let started = checked(start(completion));
    // SAFETY: our reference; the library keeps its own one until the callback has returned.
    unsafe { raw::rados_aio_release(completion) };
    started.map(drop)
}

/// The library's callback.
///
/// # Safety
/// `argument` is a box of a [`Flight<T>`], which is not used any more.
pub(crate) unsafe extern "C" fn landed<T: Send>(
    completion: raw::Completion,
    argument: *mut c_void,
) {
    // SAFETY: see above; the completion is alive while its callback runs.
    let (flight, result, version) = unsafe {
        let result = raw::rados_aio_get_return_value(completion);
        let version = raw::rados_aio_get_version(completion);
        (Box::from_raw(argument.cast::<Flight<T>>()), result, version)
    };
    let Flight { op, then } = *flight;
    then(Landed { result: checked(result).map(drop), version, op });
}
