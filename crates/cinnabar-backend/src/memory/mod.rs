//! The daemon's payload: page-aligned memory behind a counted handle, recycled by size class.

mod huge;
mod owned;
mod pool;

pub use huge::advise_huge;
pub use owned::Owned;
pub use pool::MemoryPool;

use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{Payload, RawMemory, shared_memory};
use pool::Region;
use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

/// What [`Payload::alloc`] draws on: the whole process shares it.
static POOL: MemoryPool = MemoryPool::new(64 << 20);

/// Page-aligned memory; a clone is a handle to the same bytes.
///
/// The last handle to go gives the memory back to the pool it came from, so that a steady state
/// allocates nothing. Up to 32 MiB the memory is recycled and its contents are
/// whatever they were. Beyond 4 MiB it is mapped, zeroed by the kernel at first touch and backed by
/// huge pages where possible.
pub struct Memory {
    /// Always there but inside `drop`.
    region: Option<Arc<Region>>,
}

// A handle must be free to move between the data thread and helper threads.
const _: () = {
    const fn assert_send<T: Send + Sync>() {}
    assert_send::<Memory>();
};

impl Memory {
    /// Memory of `blocks` blocks of 4 KiB from a pool of the caller's.
    pub fn from_pool(pool: &'static MemoryPool, blocks: u32) -> Self {
        Self { region: Some(pool.take(u64::from(blocks) * BLOCK_BYTES)) }
    }

    /// A guest's own memory, to read blocks into (see `cinnabar_engine::seam`).
    ///
    /// # Safety
    /// `len_bytes` readable and writable bytes from `start` on, aligned to 4096, that stay mapped as
    /// long as `keep` lives. Who else changes them does not matter.
    pub unsafe fn guest(
        keep: Arc<dyn Any + Send + Sync>,
        start: NonNull<u8>,
        len_bytes: u64,
    ) -> Self {
        // SAFETY: the caller's promise is the same.
        Self { region: Some(Arc::new(unsafe { Region::guest(keep, start, len_bytes) })) }
    }

    /// Bytes of free memory that the process keeps for later.
    pub fn kept_bytes() -> u64 {
        POOL.kept_bytes()
    }

    /// Whether there is no other handle to these bytes: nobody else reads or writes them through one.
    pub fn is_alone(&self) -> bool {
        self.region.as_ref().is_some_and(|region| Arc::strong_count(region) == 1)
    }

    fn region(&self) -> &Region {
        self.region.as_deref().expect("a handle holds its region until it is dropped")
    }

    /// Address of byte `at`, after checking that `len` bytes from there are inside.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn address(&self, at: u64, len: u64) -> *mut u8 {
        let region = self.region();
        assert!(
            at <= region.len_bytes() && len <= region.len_bytes() - at,
            "{len} bytes at {at} of {}",
            region.len_bytes()
        );
        region.as_ptr().wrapping_add(at as usize)
    }

    /// Copies `bytes` to byte `at`. For tests and tools; the daemon never copies this way.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write_at(&self, at: u64, bytes: &[u8]) {
        let to = self.address(at, bytes.len() as u64);
        // SAFETY: `address` checked the range; `bytes` is a live borrow, and memory reached through
        // handles is never borrowed as a slice beyond a call, so the two don't overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// A copy of `len` bytes from byte `at`.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn to_vec(&self, at: u64, len: u64) -> Vec<u8> {
        let from = self.address(at, len);
        let mut copy = vec![0; len as usize];
        // SAFETY: `address` checked the range, and the bytes are initialised (see `Region`).
        unsafe { shared_memory::copy(from, copy.as_mut_ptr(), copy.len()) };
        copy
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self { region: self.region.clone() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Two threads that drop the last two handles at once may both find themselves not alone:
        // then the region is freed rather than recycled, which is harmless.
        if let Some(mut region) = self.region.take()
            && Arc::get_mut(&mut region).is_some()
        {
            Region::recycle(region);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len_bytes", &self.region().len_bytes()).finish()
    }
}

impl Payload for Memory {
    fn alloc(blocks: u32) -> Self {
        Self::from_pool(&POOL, blocks)
    }

    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        let to = self.address(at, len);
        let source = from.address(from_at, len);
        if from.is_private() {
            // SAFETY: both ranges were checked; `copy` allows them to overlap.
            unsafe { std::ptr::copy(source, to, len as usize) }
        } else {
            // SAFETY: as above; a guest's memory is not private.
            unsafe { shared_memory::copy(source, to, len as usize) }
        }
    }

    fn zero(&self, at: u64, len: u64) {
        let to = self.address(at, len);
        // SAFETY: the range was checked.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) }
    }

    fn is_private(&self) -> bool {
        self.region().is_private()
    }

    fn checksum(&self, at: u64, seed: u64) -> u32 {
        let from = self.address(at, BLOCK_BYTES);
        if self.is_private() {
            // SAFETY: the range was checked and is initialised; nothing writes it meanwhile, since
            // the engine checksums a block only while no I/O on it is under way.
            let block = unsafe { std::slice::from_raw_parts(from, BLOCK_BYTES as usize) };
            return crc32c::crc32c_append(spread(seed), block);
        }
        // A guest may write its own memory at any time: then the sum is one of bytes that never
        // were there together, and the engine reads the block again into its own memory unless it
        // fits by chance (2^-32), in which case the guest has what it wrote itself.
        let mut copy = Block::new();
        // SAFETY: the range was checked and is initialised.
        let block = unsafe { copy.take(from) };
        crc32c::crc32c_append(spread(seed), block)
    }
}

// SAFETY: a region is `len_bytes` long, aligned to 4096 and initialised (it is allocated zeroed);
// the handle keeps it alive and in place, and no safe code makes references into it that last.
unsafe impl RawMemory for Memory {
    fn as_ptr(&self) -> *mut u8 {
        self.region().as_ptr()
    }

    fn len_bytes(&self) -> u64 {
        self.region().len_bytes()
    }
}

/// Folds a seed into the 32-bit initial value of a CRC. For one block, different initial values
/// always give different sums, so only seeds that collide here (1 in 2^32) are mixed up.
const fn spread(seed: u64) -> u32 {
    // The finalizer of splitmix64: every bit of the seed reaches every bit of the result.
    let mut x = seed;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as u32
}

/// A private copy of one block of memory that a guest may write at the same time.
struct Block(MaybeUninit<[u8; 4096]>);

impl Block {
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Takes the block at `from`.
    ///
    /// # Safety
    /// 4096 readable bytes at `from`.
    unsafe fn take(&mut self, from: *const u8) -> &[u8; 4096] {
        // SAFETY: the caller's promise, and room for a block that nothing else has; all of it is
        // initialised then.
        unsafe {
            shared_memory::copy(from, self.0.as_mut_ptr().cast(), 4096);
            self.0.assume_init_ref()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_block_has_the_checksum_of_the_same_bytes_in_memory_of_ours() {
        let ours = Memory::alloc(2);
        let bytes: Vec<u8> = (0..8192_u32).map(|at| (at * 7 / 3) as u8).collect();
        ours.write_at(0, &bytes);
        let start = NonNull::new(ours.address(0, 8192)).expect("memory has an address");
        // SAFETY: the handle that is kept holds these 8192 aligned bytes.
        let guest = unsafe { Memory::guest(Arc::new(ours.clone()), start, 8192) };
        assert!(!guest.is_private() && ours.is_private());
        for at in [0, 4096] {
            assert_eq!(guest.checksum(at, 9), ours.checksum(at, 9));
        }
        assert_eq!(guest.to_vec(100, 5000), bytes[100..5100]);
        let copy = Memory::alloc(2);
        copy.copy_from(10, &guest, 20, 6000);
        assert_eq!(copy.to_vec(10, 6000), bytes[20..6020]);
    }
}
