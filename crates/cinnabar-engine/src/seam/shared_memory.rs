//! Copies out of and into memory that a guest may use at the same time.
//!
//! No reference may be made to such memory, and no ordinary load or store is allowed to race with a guest's.
//! The other side of a copy is private.

/// Copies `len` bytes, each as it is at some moment during the call.
///
/// # Safety
/// `len` readable bytes at `from` and `len` writable ones at `to`, one of which only the caller uses, and no
/// overlap.
#[allow(unsafe_code, reason = "one home for what back ends and front ends need")]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
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
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
}
