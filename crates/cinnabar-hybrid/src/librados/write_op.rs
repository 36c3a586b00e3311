//! Changes of one object, carried out together in one step, or not at all.

use crate::librados::lock::{self, Lease};
use crate::librados::{c_text, raw};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// Changes of one object and what must be true of it, in the order in which they were added.
#[derive(Debug)]
pub struct WriteOp {
    pub(crate) op: raw::WriteOp,
}

// SAFETY: the library's handle belongs to whatever thread has it.
unsafe impl Send for WriteOp {}

impl Default for WriteOp {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteOp {
    /// Of no change.
    pub fn new() -> Self {
        // SAFETY: it only allocates. In all calls below the operation lives, and the library copies what it
        // is given at once.
        Self { op: unsafe { raw::rados_create_write_op() } }
    }

    /// The object must be there, else [`Errno::NOENT`].
    #[must_use]
    pub fn assert_exists(self) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_assert_exists(self.op) };
        self
    }

    /// The object must have this version, else [`Errno::RANGE`] or [`Errno::OVERFLOW`].
    #[must_use]
    pub fn assert_version(self, version: u64) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_assert_version(self.op, version) };
        self
    }

    /// The object must hold these bytes there, else an error number above 4095 (which one says where they
    /// differ).
    #[must_use]
    pub fn compare(self, offset: u64, bytes: &[u8]) -> Self {
        let text = bytes.as_ptr().cast();
        // SAFETY: as much memory as is named, which is copied; no place for a result.
        unsafe { raw::rados_write_op_cmpext(self.op, text, bytes.len(), offset, null_mut()) };
        self
    }

    /// The attribute must have this value, else [`Errno::CANCELED`].
    #[must_use]
    pub fn compare_attribute(self, name: &CStr, value: &[u8]) -> Self {
        let bytes = value.as_ptr().cast();
        // SAFETY: see `new`.
        unsafe {
            raw::rados_write_op_cmpxattr(self.op, name.as_ptr(), raw::EQUAL, bytes, value.len());
        }
        self
    }

    #[must_use]
    pub fn set_attribute(self, name: &CStr, value: &[u8]) -> Self {
        let bytes = value.as_ptr().cast();
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_setxattr(self.op, name.as_ptr(), bytes, value.len()) };
        self
    }

    /// The entry must have this value, an empty one if it is to be missing, else [`Errno::CANCELED`]. Without the
    /// object: [`Errno::NOENT`].
    #[must_use]
    pub fn compare_entry(self, key: &str, value: &[u8]) -> Self {
        let (text, bytes) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (key_len, len) = (key.len(), value.len());
        // SAFETY: see `new`.
        unsafe {
            let none = null_mut();
            raw::rados_write_op_omap_cmp2(self.op, text, raw::EQUAL, bytes, key_len, len, none);
        }
        self
    }

    #[must_use]
    pub fn set_entry(self, key: &str, value: &[u8]) -> Self {
        let (keys, values) = ([key.as_ptr().cast()], [value.as_ptr().cast()]);
        let (key_lens, lens) = ([key.len()], [value.len()]);
        // SAFETY: lists of one, see `new`.
        unsafe {
            let (keys, values) = (keys.as_ptr(), values.as_ptr());
            let (key_lens, lens) = (key_lens.as_ptr(), lens.as_ptr());
            raw::rados_write_op_omap_set2(self.op, keys, values, key_lens, lens, 1);
        }
        self
    }

    #[must_use]
    pub fn remove_entry(self, key: &str) -> Self {
        let (keys, lens) = ([key.as_ptr().cast()], [key.len()]);
        // SAFETY: lists of one, see `new`.
        unsafe { raw::rados_write_op_omap_rm_keys2(self.op, keys.as_ptr(), lens.as_ptr(), 1) };
        self
    }

    /// Makes the object. If it `must_be_new` and is not: [`Errno::EXIST`].
    #[must_use]
    pub fn create(self, must_be_new: bool) -> Self {
        let how = if must_be_new { raw::CREATE_EXCLUSIVE } else { raw::CREATE_IDEMPOTENT };
        // SAFETY: see `new`; there is no category.
        unsafe { raw::rados_write_op_create(self.op, how, null()) };
        self
    }

    #[must_use]
    pub fn write(self, offset: u64, bytes: &[u8]) -> Self {
        // SAFETY: as much memory as is named.
        unsafe { self.write_from(offset, bytes.as_ptr(), bytes.len()) }
    }

    /// Writes memory that others may change meanwhile.
    ///
    /// # Safety
    /// There are `len` bytes to read.
    #[must_use]
    pub unsafe fn write_from(self, offset: u64, bytes: *const u8, len: usize) -> Self {
        // SAFETY: see `new`, and above.
        unsafe { raw::rados_write_op_write(self.op, bytes.cast(), len, offset) };
        self
    }

    /// Zeroes, giving room back; makes no object.
    #[must_use]
    pub fn zero(self, offset: u64, length: u64) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_zero(self.op, offset, length) };
        self
    }

    /// Removes the object.
    #[must_use]
    pub fn remove(self) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_remove(self.op) };
        self
    }

    /// Takes or renews a lock, else [`Errno::BUSY`].
    ///
    /// # Errors
    /// [`Errno::INVAL`]: its texts can't be encoded.
    pub fn lock(self, lease: &Lease<'_>) -> Result<Self, Errno> {
        Ok(self.call(lock::CLASS, c"lock", &lock::lock_input(lease)?))
    }

    /// Releases a lock, else [`Errno::NOENT`].
    ///
    /// # Errors
    /// As for [`WriteOp::lock`].
    pub fn unlock(self, lease: &Lease<'_>) -> Result<Self, Errno> {
        Ok(self.call(lock::CLASS, c"unlock", &lock::unlock_input(lease)?))
    }

    fn call(self, class: &CStr, method: &CStr, input: &[u8]) -> Self {
        let (class, method, bytes) = (class.as_ptr(), method.as_ptr(), input.as_ptr().cast());
        // SAFETY: see `new`; no place for a result.
        unsafe {
            raw::rados_write_op_exec(self.op, class, method, bytes, input.len(), null_mut());
        }
        self
    }

    /// What was added last is not to be kept in the servers' memory.
    #[must_use]
    pub fn uncached(self) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_write_op_set_flags(self.op, raw::UNCACHED) };
        self
    }
}

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more.
        unsafe { raw::rados_release_write_op(self.op) };
    }
}

/// The name of an object, for the library.
pub(crate) fn name(object: &str) -> Result<std::ffi::CString, Errno> {
    if object.is_empty() { Err(Errno::INVAL) } else { c_text(object) }
}
