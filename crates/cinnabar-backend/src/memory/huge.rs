//! Large memory: mapped lazily, zeroed by the kernel, in huge pages where it grants them.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Size and alignment of a huge page (x86-64, and aarch64 with 4 KiB pages).
pub(super) const HUGE_BYTES: usize = 2 << 20;
/// Smallest page; ranges for `madvise` are rounded inwards to it.
const PAGE_BYTES: usize = 4096;

/// Asks for huge pages under a large table of `len` bytes: random access to it then costs one TLB
/// miss, not two or three. Best before it is first touched. Advice only: where it is refused
/// nothing changes.
pub fn advise_huge(start: *const u8, len: usize) {
    let from = start.addr().next_multiple_of(PAGE_BYTES);
    let to = start.addr().saturating_add(len) & !(PAGE_BYTES - 1);
    if to <= from || to - from < HUGE_BYTES {
        return;
    }
    let address = start.cast::<c_void>().with_addr(from).cast_mut();
    // SAFETY: this advice changes how memory is backed, never what it holds, wherever it is; where
    // nothing is mapped it fails.
    if let Err(error) = unsafe { madvise(address, to - from, Advice::LinuxHugepage) } {
        tracing::debug!(%error, "no huge pages for a table");
    }
}

/// Maps `len` bytes of zeros, aligned to a huge page, or `None` when memory is short.
pub(super) fn map(len: usize) -> Option<NonNull<u8>> {
    let span = len.checked_add(HUGE_BYTES)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            span,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .ok()?
    .cast::<u8>();
    let head = start.addr().next_multiple_of(HUGE_BYTES) - start.addr();
    let aligned = start.wrapping_add(head);
    let tail = span - head - len.next_multiple_of(PAGE_BYTES);
    // SAFETY: both pieces are parts of the mapping just made that nothing else knows of yet.
    unsafe {
        if head > 0 {
            let _ = munmap(start.cast(), head);
        }
        if tail > 0 {
            let _ = munmap(start.wrapping_add(span - tail).cast(), tail);
        }
        // Refused where huge pages are switched off; then small ones do.
        let _ = madvise(aligned.cast(), len, Advice::LinuxHugepage);
    }
    NonNull::new(aligned)
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// `start` and `len` must be those of one call of [`map`], and nothing may use the memory any more.
pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise. It can't fail for a mapping that exists.
    let _ = unsafe { munmap(start.as_ptr().cast(), len.next_multiple_of(PAGE_BYTES)) };
}
