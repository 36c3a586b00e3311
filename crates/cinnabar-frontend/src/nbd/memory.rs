//! The one place that looks into request buffers.

use cinnabar_engine::seam::RawMemory;

/// `len` bytes of `buffer` from byte `at` on; `None` if it is not that long.
pub(super) fn bytes<M: RawMemory>(buffer: &M, at: u64, len: u64) -> Option<&[u8]> {
    let (at, len) = range(buffer, at, len)?;
    // SAFETY: `range` checked that the bytes lie within the buffer, which stays valid and in place
    // while `buffer` is borrowed. Nothing writes to them meanwhile: the engine handed them over
    // with its reply.
    Some(unsafe { std::slice::from_raw_parts(buffer.as_ptr().add(at), len) })
}

/// The same, to be filled.
pub(super) fn bytes_mut<M: RawMemory>(buffer: &mut M, at: u64, len: u64) -> Option<&mut [u8]> {
    let (at, len) = range(buffer, at, len)?;
    // SAFETY: as above. Nothing else accesses them: a buffer from `Buffers::take` has no other user
    // until its request is submitted.
    Some(unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr().add(at), len) })
}

fn range<M: RawMemory>(buffer: &M, at: u64, len: u64) -> Option<(usize, usize)> {
    let fits = at.checked_add(len).is_some_and(|end| end <= buffer.len_bytes());
    if fits { Some((usize::try_from(at).ok()?, usize::try_from(len).ok()?)) } else { None }
}
