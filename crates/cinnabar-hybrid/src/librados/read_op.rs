//! Questions about one object, answered together, at one moment.

use crate::librados::{c_text, checked, raw};
use rustix::io::Errno;
use std::ffi::{CString, c_int};

/// Most entries that are asked for at once.
pub const ENTRIES_MAX: u64 = 1024;
/// Longest key and value that are looked at, in bytes.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Questions about one object, with room for their answers.
#[derive(Debug)]
pub struct ReadOp {
    pub(crate) op: raw::ReadOp,
    #[allow(clippy::vec_box, reason = "the library keeps pointers to each")]
    reads: Vec<Box<Read>>,
    stat: Box<Stat>,
    omap: Option<Box<Iter>>,
}

// SAFETY: the library's handle belongs to whatever thread has it; so does the memory that it names.
unsafe impl Send for ReadOp {}

#[derive(Debug)]
struct Read {
    bytes: Vec<u8>,
    found: usize,
    result: c_int,
}

#[derive(Debug, Default)]
struct Stat {
    size: u64,
    modified: libc::time_t,
    result: c_int,
}

#[derive(Debug)]
struct Iter {
    at: raw::OmapIter,
    more: u8,
    result: c_int,
    _texts: [CString; 2],
}

/// Entries of an object, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Omap {
    /// Keys and values.
    pub entries: Vec<(String, Vec<u8>)>,
    /// Whether there are further ones.
    pub more: bool,
}

impl Default for ReadOp {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOp {
    /// Of no question.
    pub fn new() -> Self {
        // SAFETY: it only allocates. In all calls below the operation lives, and so do the places for answers,
        // each in a box that the operation keeps.
        let op = unsafe { raw::rados_create_read_op() };
        Self { op, reads: Vec::new(), stat: Box::default(), omap: None }
    }

    /// Its size in bytes: [`ReadOp::size`].
    #[must_use]
    pub fn stat(mut self) -> Self {
        let Stat { size, modified, result } = &mut *self.stat;
        // SAFETY: see `new`.
        unsafe { raw::rados_read_op_stat(self.op, size, modified, result) };
        self
    }

    /// Reads: [`ReadOp::take_read`].
    #[must_use]
    pub fn read(mut self, offset: u64, len: usize) -> Self {
        let mut read = Box::new(Read { bytes: vec![0; len], found: 0, result: 0 });
        let Read { bytes, found, result } = &mut *read;
        let bytes = bytes.as_mut_ptr().cast();
        // SAFETY: see `new`; as much memory as is named, which stays where it is while the box has it.
        unsafe { raw::rados_read_op_read(self.op, offset, len, bytes, found, result) };
        self.reads.push(read);
        self
    }

    /// Asks for entries behind the key `after` whose keys begin with `prefix`, at most `max`, of which there are
    /// no more than [`ENTRIES_MAX`]: [`ReadOp::omap`].
    ///
    /// # Errors
    /// [`Errno::INVAL`]: a text with a zero byte, or a second such question.
    pub fn entries(mut self, after: &str, prefix: &str, max: u64) -> Result<Self, Errno> {
        if self.omap.is_some() {
            return Err(Errno::INVAL);
        }
        let texts = [c_text(after)?, c_text(prefix)?];
        let (after, prefix) = (texts[0].as_ptr(), texts[1].as_ptr());
        let omap = Iter { at: std::ptr::null_mut(), more: 0, result: 0, _texts: texts };
        let omap = self.omap.insert(Box::new(omap));
        let Iter { at: iter, more, result, .. } = &mut **omap;
        let max = max.min(ENTRIES_MAX);
        // SAFETY: see `new`; the texts are kept with the answer.
        unsafe {
            raw::rados_read_op_omap_get_vals2(self.op, after, prefix, max, iter, more, result);
        }
        Ok(self)
    }

    /// What was added last is not to be kept in the servers' memory.
    #[must_use]
    pub fn uncached(self) -> Self {
        // SAFETY: see `new`.
        unsafe { raw::rados_read_op_set_flags(self.op, raw::UNCACHED) };
        self
    }

    /// The object's size in bytes, if the operation succeeded.
    pub fn size(&self) -> u64 {
        self.stat.size
    }

    /// What read number `index` found; behind the object's end zeros.
    pub fn take_read(&mut self, index: usize) -> Vec<u8> {
        let read = &mut self.reads[index];
        let found = read.found;
        let mut bytes = std::mem::take(&mut read.bytes);
        if let Some(rest) = bytes.get_mut(found..) {
            rest.fill(0);
        }
        bytes
    }

    /// The entries that were found.
    ///
    /// # Errors
    /// When they could not be read, or are no texts of a bounded length.
    pub fn omap(&mut self) -> Result<Omap, Errno> {
        let Some(omap) = &mut self.omap else { return Ok(Omap::default()) };
        checked(omap.result)?;
        let mut found = Omap { entries: Vec::new(), more: omap.more != 0 };
        if omap.at.is_null() {
            return Ok(found);
        }
        while (found.entries.len() as u64) < ENTRIES_MAX {
            let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
            let (mut key_len, mut len) = (0, 0);
            // SAFETY: the iterator lives as long as `self`, and what it gives until it ends. Nothing is given
            // at the end.
            let (key, value) = unsafe {
                let (key_len, len) = (&raw mut key_len, &raw mut len);
                let (key, value) = (&raw mut key, &raw mut value);
                checked(raw::rados_omap_get_next2(omap.at, key, value, key_len, len))?;
                if (*key).is_null() {
                    return Ok(found);
                }
                if *key_len > ENTRY_BYTES_MAX || *len > ENTRY_BYTES_MAX {
                    return Err(Errno::MSGSIZE);
                }
                let key = std::slice::from_raw_parts((*key).cast::<u8>(), *key_len);
                // An empty value may have no address.
                let value = if (*value).is_null() {
                    &[][..]
                } else {
                    std::slice::from_raw_parts((*value).cast::<u8>(), *len)
                };
                (key.to_vec(), value.to_vec())
            };
            found.entries.push((String::from_utf8(key).map_err(|_| Errno::BADMSG)?, value));
        }
        Ok(found)
    }
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more, nor the iterator, which the library makes with a good answer only.
        unsafe {
            if let Some(omap) = &self.omap
                && !omap.at.is_null()
            {
                raw::rados_omap_get_end(omap.at);
            }
            raw::rados_release_read_op(self.op);
        }
    }
}
