//! The one hint to the CPU that batches are for: start loading a line that will be needed soon.
//!
//! A dependent DRAM read costs 100-400 ns; the lookups of a batch overlap them.

/// Asks the CPU to load the cache line at `index` of `table`; out of range does nothing.
#[inline]
#[allow(unsafe_code, reason = "a prefetch never faults and changes no state")]
pub fn prefetch<T>(table: &[T], index: usize) {
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

/// Elements to skip so that a table begins on a 64-byte line.
pub(crate) fn align_offset<T>(table: &[T]) -> usize {
    let address = table.as_ptr() as usize;
    (address.next_multiple_of(64) - address) / size_of::<T>()
}
