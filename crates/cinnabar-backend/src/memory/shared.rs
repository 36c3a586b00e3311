//! Copies out of memory that a guest may write at the same time.
//!
//! No reference may be made to such memory, and no ordinary load is allowed to race with a write.
//! What is copied is private and stands still.

use std::mem::MaybeUninit;

/// Copies `len` bytes, each as it is at some moment during the call.
///
/// # Safety
/// `len` readable bytes at `from`, `len` writable ones at `to` that nothing else sees, and no
/// overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // One instruction of the processor's, which the compiler knows nothing of: as quick as an
    // ordinary copy, and not one of the language's loads.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..len {
        // SAFETY: the caller's promise.
        unsafe { to.add(at).write(from.add(at).read_volatile()) }
    }
}

/// A private copy of one block.
pub(super) struct Block(MaybeUninit<[u8; 4096]>);

impl Block {
    pub(super) const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Takes the block at `from`.
    ///
    /// # Safety
    /// 4096 readable bytes at `from`.
    pub(super) unsafe fn take(&mut self, from: *const u8) -> &[u8; 4096] {
        // SAFETY: the caller's promise, and room for a block that nothing else has; all of it is
        // initialised then.
        unsafe {
            copy(from, self.0.as_mut_ptr().cast(), 4096);
            self.0.assume_init_ref()
        }
    }
}
