//! A pool of page-aligned regions by size class, with a bound on what it keeps.

use super::huge;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Size classes are powers of two pages: 4 KiB, 8 KiB, ... 32 MiB, the longest request.
const CLASSES: usize = 14;
/// Smallest class, and the alignment of all.
const CLASS_BYTES_MIN: u64 = 4096;
/// Largest region that is allocated, which is zeroed by whoever asks for it; larger ones are mapped, and zeroed by the
/// kernel at first touch.
const HEAP_BYTES_MAX: u64 = 4 << 20;
/// Largest region that is recycled, in bytes. (Zeroing takes more CPU time than what is copied there.)
pub(super) const POOLED_BYTES_MAX: u64 = CLASS_BYTES_MIN << (CLASSES - 1);

/// Free regions by size class. Lives as long as the process, so that the last handle always finds
/// its way home.
pub struct MemoryPool {
    classes: [Mutex<Vec<Arc<Region>>>; CLASSES],
    kept_bytes: AtomicU64,
    kept_bytes_max: u64,
}

impl MemoryPool {
    /// A pool that keeps at most `kept_bytes_max` bytes of free memory.
    pub const fn new(kept_bytes_max: u64) -> Self {
        Self {
            classes: [const { Mutex::new(Vec::new()) }; CLASSES],
            kept_bytes: AtomicU64::new(0),
            kept_bytes_max,
        }
    }

    /// Bytes of free memory kept now.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Relaxed)
    }

    /// A region of `len` bytes, recycled if one of its class is free.
    pub(super) fn take(&'static self, len: u64) -> Arc<Region> {
        if len > POOLED_BYTES_MAX {
            return Arc::new(Region::mapped(len));
        }
        let class = class_of(len);
        let free = self.class(class).pop();
        match free {
            Some(mut region) => {
                self.kept_bytes.fetch_sub(class_bytes(class), Relaxed);
                let inner = Arc::get_mut(&mut region).expect("a free region has one handle");
                inner.len = len;
                region
            }
            None => Arc::new(Region::pooled(self, class, len)),
        }
    }

    fn put(&self, class: usize, region: Arc<Region>) {
        let bytes = class_bytes(class);
        if self.kept_bytes.fetch_add(bytes, Relaxed) + bytes > self.kept_bytes_max {
            self.kept_bytes.fetch_sub(bytes, Relaxed);
            return;
        }
        self.class(class).push(region);
    }

    fn class(&self, class: usize) -> std::sync::MutexGuard<'_, Vec<Arc<Region>>> {
        // A panic can't leave a list of free regions half changed.
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of one handle family: initialised bytes at a fixed address, freed when it is dropped.
pub(super) struct Region {
    start: NonNull<u8>,
    /// Bytes in use, at most the bytes of its home.
    len: u64,
    home: Home,
}

enum Home {
    Pool {
        pool: &'static MemoryPool,
        class: usize,
    },
    Mapping,
    /// A guest's memory, mapped for as long as this is kept.
    Guest {
        _keep: Arc<dyn Any + Send + Sync>,
    },
}

// SAFETY: a region owns its memory, as a box does; the address is only handed out as a raw pointer.
unsafe impl Send for Region {}
// SAFETY: as above; through a shared region nothing but the address and the length can be read.
unsafe impl Sync for Region {}

impl Region {
    fn pooled(pool: &'static MemoryPool, class: usize, len: u64) -> Self {
        let layout = layout(class);
        let start = if class_bytes(class) > HEAP_BYTES_MAX {
            mapping(class_bytes(class))
        } else {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc_zeroed(layout) })
                .unwrap_or_else(|| handle_alloc_error(layout))
        };
        Self { start, len, home: Home::Pool { pool, class } }
    }

    fn mapped(len: u64) -> Self {
        Self { start: mapping(len), len, home: Home::Mapping }
    }

    /// A guest's memory.
    ///
    /// # Safety
    /// `len` readable and writable bytes from `start` on, aligned to 4096, that stay mapped as long
    /// as `keep` lives.
    pub(super) unsafe fn guest(
        keep: Arc<dyn Any + Send + Sync>,
        start: NonNull<u8>,
        len: u64,
    ) -> Self {
        Self { start, len, home: Home::Guest { _keep: keep } }
    }

    pub(super) fn is_private(&self) -> bool {
        !matches!(self.home, Home::Guest { .. })
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Takes back a region whose last handle this is.
    pub(super) fn recycle(region: Arc<Self>) {
        if let Home::Pool { pool, class } = region.home {
            pool.put(class, region);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.home {
            // SAFETY: mapped in `pooled` with this length.
            Home::Pool { class, .. } if class_bytes(class) > HEAP_BYTES_MAX => unsafe {
                huge::unmap(self.start, class_bytes(class) as usize);
            },
            // SAFETY: allocated in `pooled` with the layout of the same class.
            Home::Pool { class, .. } => unsafe { dealloc(self.start.as_ptr(), layout(class)) },
            // SAFETY: mapped in `mapped` with this length, which never changes there.
            Home::Mapping => unsafe { huge::unmap(self.start, self.len as usize) },
            Home::Guest { .. } => {}
        }
    }
}

fn mapping(len: u64) -> NonNull<u8> {
    huge::map(len as usize).unwrap_or_else(|| {
        handle_alloc_error(
            Layout::from_size_align(len as usize, CLASS_BYTES_MIN as usize)
                .expect("lengths are far below the address space"),
        )
    })
}

const fn class_bytes(class: usize) -> u64 {
    CLASS_BYTES_MIN << class
}

const fn class_of(len: u64) -> usize {
    len.div_ceil(CLASS_BYTES_MIN).next_power_of_two().trailing_zeros() as usize
}

fn layout(class: usize) -> Layout {
    Layout::from_size_align(class_bytes(class) as usize, CLASS_BYTES_MIN as usize)
        .expect("a power of two of pages is a layout")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use cinnabar_engine::{Payload, RawMemory};

    #[test]
    fn classes_cover_their_lengths() {
        for (len, class) in [(1, 0), (4096, 0), (4097, 1), (8192, 1), (12_288, 2), (4 << 20, 10)] {
            assert_eq!(class_of(len), class, "{len}");
            assert!(class_bytes(class) >= len);
        }
        // Nothing asked for is still something to point at.
        assert_eq!(class_of(0), 0);
    }

    #[test]
    fn regions_are_recycled_and_the_pool_is_bounded() {
        static SMALL: MemoryPool = MemoryPool::new(8192);
        let first = Memory::from_pool(&SMALL, 1);
        let address = first.as_ptr();
        let clone = first.clone();
        drop(first);
        assert_eq!(SMALL.kept_bytes(), 0, "a clone still holds it");
        drop(clone);
        assert_eq!(SMALL.kept_bytes(), 4096);
        let again = Memory::from_pool(&SMALL, 1);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(SMALL.kept_bytes(), 0);
        let more: Vec<Memory> = (0..4).map(|_| Memory::from_pool(&SMALL, 1)).collect();
        drop(more);
        drop(again);
        assert_eq!(SMALL.kept_bytes(), 8192, "no more than the bound");
    }

    #[test]
    fn large_memory_is_zero_and_page_aligned() {
        let memory = Memory::alloc(16 << 10);
        assert_eq!(memory.len_bytes(), 64 << 20);
        assert_eq!(memory.as_ptr().addr() % huge::HUGE_BYTES, 0);
        let longest = Memory::alloc(8 << 10);
        assert_eq!(longest.as_ptr().addr() % huge::HUGE_BYTES, 0);
        longest.write_at((32 << 20) - 1, &[1]);
        assert!(memory.to_vec(4 << 20, 4096).iter().all(|&b| b == 0));
    }

    #[test]
    fn handles_cross_threads() {
        let memory = Memory::alloc(1);
        let other = memory.clone();
        std::thread::spawn(move || other.write_at(0, b"x")).join().expect("the thread ends");
        assert_eq!(memory.to_vec(0, 1), b"x");
    }

    #[test]
    fn a_guests_memory_is_kept_mapped_and_never_recycled() {
        let owner = Memory::alloc(2);
        let keep: Arc<Memory> = Arc::new(owner.clone());
        let second = NonNull::new(owner.address(4096, 4096)).expect("not null");
        // SAFETY: the second block of `owner`, which `keep` holds.
        let guest = unsafe { Memory::guest(Arc::clone(&keep) as _, second, 4096) };
        drop(owner);
        assert!(!guest.is_private() && Memory::alloc(1).is_private());
        guest.write_at(0, b"x");
        assert_eq!(keep.to_vec(4096, 1), b"x");
        assert_eq!(Arc::strong_count(&keep), 2);
        drop(guest);
        assert_eq!(Arc::strong_count(&keep), 1);
    }

    #[test]
    fn checksums_depend_on_seed_and_contents() {
        let memory = Memory::alloc(2);
        memory.zero(0, 8192);
        assert_eq!(memory.checksum(0, 7), memory.checksum(4096, 7));
        assert_ne!(memory.checksum(0, 7), memory.checksum(0, 8));
        assert_ne!(memory.checksum(0, 1), memory.checksum(0, 1 << 32));
        memory.write_at(8191, &[1]);
        assert_ne!(memory.checksum(0, 7), memory.checksum(4096, 7));
    }

    #[test]
    fn copies_may_overlap() {
        let memory = Memory::alloc(1);
        memory.write_at(0, &[1, 2, 3, 4]);
        memory.copy_from(1, &memory, 0, 3);
        assert_eq!(memory.to_vec(0, 4), [1, 1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "4097 bytes at 0 of 4096")]
    fn ranges_are_checked() {
        Memory::alloc(1).address(0, 4097);
    }
}
