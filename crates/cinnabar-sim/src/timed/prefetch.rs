//! A hint to the CPU: start loading what will be needed soon.
//!
//! Called where it is known which block comes next: by a thread's next request, by the eviction
//! hand. Tables of a terabyte's blocks are far larger than any CPU cache, and a read that nobody
//! waits for costs next to nothing.

/// Asks the CPU to load the cache line at `index` of `table`; out of range does nothing.
#[inline]
#[allow(unsafe_code, reason = "a prefetch never faults and changes no state")]
pub(super) fn prefetch<T>(table: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(entry) = table.get(index) {
        // SAFETY: prefetching has no architectural effect; the address is that of a live element.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                std::ptr::from_ref(entry).cast::<i8>(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (table, index);
}
