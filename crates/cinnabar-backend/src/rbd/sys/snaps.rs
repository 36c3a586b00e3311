//! An image's snapshots, and what differs from one of them.

use super::image::Image;
use super::{c_text, checked, raw};
use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_void};

/// Snapshots of an image that are looked at; one with more has no place for one of ours.
const SNAPS_MAX: c_int = 4096;
/// Extents of one question that are taken.
const EXTENTS_MAX: usize = 1 << 20;

/// One of an image's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Snap {
    pub(in super::super) number: u64,
    /// Of the image then, in bytes.
    pub(in super::super) size_bytes: u64,
    pub(in super::super) name: String,
}

impl Image {
    /// Its snapshots.
    ///
    /// # Errors
    /// The library's; `RANGE` if there are too many.
    pub(in super::super) fn snaps(&self) -> Result<Vec<Snap>, Errno> {
        let none = raw::SnapInfo { id: 0, size: 0, name: std::ptr::null() };
        let mut count = 64;
        loop {
            let mut snaps = vec![none; usize::try_from(count).map_err(|_| Errno::RANGE)?];
            // SAFETY: the image is open; room for as many as are named, and one is filled in behind the last
            // only if there is room. What was filled in has texts that live until the end of the list.
            unsafe {
                let list = snaps.as_mut_ptr();
                match checked(raw::rbd_snap_list(self.handle(), list, &raw mut count)) {
                    // There is room for as many next time.
                    Err(Errno::RANGE) if count <= SNAPS_MAX => {}
                    Err(errno) => return Err(errno),
                    Ok(found) => {
                        let found = usize::try_from(found).map_err(|_| Errno::BADMSG)?;
                        let of = |snap: &raw::SnapInfo| Snap {
                            number: snap.id,
                            size_bytes: snap.size,
                            name: CStr::from_ptr(snap.name).to_string_lossy().into_owned(),
                        };
                        let all = snaps.get(..found).ok_or(Errno::BADMSG)?.iter().map(of).collect();
                        // The list's end is the first without a name.
                        if found > 0 {
                            raw::rbd_snap_list_end(list);
                        }
                        return Ok(all);
                    }
                }
            }
        }
    }

    /// Takes a snapshot. No other client is asked to pause first.
    pub(in super::super) fn take_snap(&self, name: &str) -> Result<(), Errno> {
        let (name, flags) = (c_text(name)?, raw::SNAP_SKIP_QUIESCE);
        let none = std::ptr::null_mut();
        // SAFETY: the image is open, the name ends with a zero byte, and who is told of progress needs nothing.
        let made =
            unsafe { raw::rbd_snap_create2(self.handle(), name.as_ptr(), flags, unheard, none) };
        checked(made).map(drop)
    }

    /// Removes a snapshot, whatever it is called.
    pub(in super::super) fn remove_snap(&self, number: u64) -> Result<(), Errno> {
        // SAFETY: the image is open.
        checked(unsafe { raw::rbd_snap_remove_by_id(self.handle(), number) }).map(drop)
    }

    /// What may differ between a snapshot and the image now, within these bytes: offset and length of each
    /// extent. Each object is asked for (`whole_object` is 0): object maps are not believed.
    pub(in super::super) fn diff(
        &self,
        from: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>, Errno> {
        let from = c_text(from)?;
        let mut found: Vec<(u64, u64)> = Vec::new();
        let place: *mut Vec<(u64, u64)> = &raw mut found;
        // SAFETY: the image is open, the name ends with a zero byte; the place lives until the call ends, and
        // is touched by nothing else meanwhile: the library calls back one call at a time.
        checked(unsafe {
            raw::rbd_diff_iterate2(
                self.handle(),
                from.as_ptr(),
                offset,
                len,
                0,
                0,
                note,
                place.cast(),
            )
        })?;
        Ok(found)
    }
}

/// Progress, of which nothing is done. The library calls it without looking whether there is one.
unsafe extern "C" fn unheard(_done: u64, _of: u64, _argument: *mut c_void) -> c_int {
    0
}

/// Takes an extent; that it holds data or none is all the same.
unsafe extern "C" fn note(offset: u64, len: usize, _exists: c_int, place: *mut c_void) -> c_int {
    // SAFETY: see `Image::diff`.
    let found = unsafe { &mut *place.cast::<Vec<(u64, u64)>>() };
    if found.len() == EXTENTS_MAX {
        return -Errno::OVERFLOW.raw_os_error();
    }
    found.push((offset, len as u64));
    0
}
