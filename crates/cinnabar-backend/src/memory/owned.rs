//! Memory with one handle, which can be read and written as a slice.

use super::Memory;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The only handle to private memory: nothing else can read or write it, so safe code may.
pub struct Owned(Memory);

impl Owned {
    /// The memory, if this is its only handle and no guest shares it; otherwise it comes back.
    ///
    /// # Errors
    /// The memory itself.
    pub fn new(mut memory: Memory) -> Result<Self, Memory> {
        let alone = memory.region.as_mut().and_then(Arc::get_mut);
        if alone.is_some_and(|region| region.is_private()) { Ok(Self(memory)) } else { Err(memory) }
    }

    /// Gives up what makes slices possible.
    pub fn into_memory(self) -> Memory {
        self.0
    }
}

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let region = self.0.region();
        // SAFETY: the region is `len_bytes` long and initialised; there is no other handle, by
        // `new`, and none can be made while this one is hidden here, so nothing writes it while the
        // borrow lasts.
        unsafe { std::slice::from_raw_parts(region.as_ptr(), region.len_bytes() as usize) }
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut [u8] {
        let region = self.0.region();
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), region.len_bytes() as usize) }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::Payload;
    use std::ptr::NonNull;

    #[test]
    fn the_only_handle_is_a_slice_and_a_shared_one_is_none() {
        let memory = Memory::alloc(1);
        let other = memory.clone();
        let memory = Owned::new(memory).expect_err("there are two");
        drop(other);
        let mut owned = Owned::new(memory).expect("there is one");
        owned[10..13].copy_from_slice(b"abc");
        assert_eq!(owned.len(), 4096);
        assert_eq!(owned.into_memory().to_vec(10, 3), b"abc");
    }

    #[test]
    fn a_guests_memory_is_never_a_slice() {
        let keep = Arc::new(Owned::new(Memory::alloc(1)).expect("fresh"));
        let start = NonNull::new(keep.0.address(0, 4096)).expect("memory has an address");
        // SAFETY: `keep` holds these 4096 aligned bytes.
        let guest = unsafe { Memory::guest(keep, start, 4096) };
        assert!(Owned::new(guest).is_err());
    }
}
