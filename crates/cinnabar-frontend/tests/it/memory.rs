//! Request memory on the heap, and a pool of it, for tests, examples and fuzzing.

use cinnabar_engine::seam::{Payload, RawMemory};
use cinnabar_frontend::nbd::Buffers;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 4096;

/// Memory aligned to 4096.
#[derive(Clone, Debug)]
pub(crate) struct Heap(Arc<Block>);

#[derive(Debug)]
struct Block {
    first: *mut u8,
    layout: Layout,
    /// Borrowed memory, which this keeps in place.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the memory belongs to the block; who touches it when is governed by the rules of
// `Payload`, not by threads.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if self.keep.is_none() {
            // SAFETY: allocated in `alloc` with this layout, and no handle is left.
            unsafe { dealloc(self.first, self.layout) };
        }
    }
}

impl Heap {
    /// The bytes from `at` on.
    pub(crate) fn slice(&self, at: u64, len: u64) -> &[u8] {
        let (at, len) = self.range(at, len);
        // SAFETY: within the block, which is valid as long as `self`; nothing writes to it now.
        unsafe { std::slice::from_raw_parts(self.0.first.add(at), len) }
    }

    /// Copies `bytes` in.
    pub(crate) fn fill(&self, at: u64, bytes: &[u8]) {
        let (at, len) = self.range(at, bytes.len() as u64);
        // SAFETY: within the block; `bytes` is not part of it, because no slice of it exists now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.first.add(at), len) };
    }

    fn range(&self, at: u64, len: u64) -> (usize, usize) {
        assert!(at + len <= self.len_bytes(), "{len} bytes at {at} are not in the buffer");
        (usize::try_from(at).expect("small"), usize::try_from(len).expect("small"))
    }
}

impl Payload for Heap {
    fn alloc(blocks: u32) -> Self {
        let bytes = BLOCK * blocks.max(1) as usize;
        let layout = Layout::from_size_align(bytes, BLOCK).expect("a sound layout");
        // SAFETY: the layout is not empty.
        let first = unsafe { alloc_zeroed(layout) };
        if first.is_null() {
            handle_alloc_error(layout);
        }
        Self(Arc::new(Block { first, layout, keep: None }))
    }

    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        let bytes = from.slice(from_at, len).to_vec();
        self.fill(at, &bytes);
    }

    fn zero(&self, at: u64, len: u64) {
        self.fill(at, &vec![0; usize::try_from(len).expect("small")]);
    }

    fn checksum(&self, _at: u64, _seed: u64) -> u32 {
        0
    }
}

// SAFETY: an allocation of that length and alignment, which stays in place until the last handle
// is dropped.
unsafe impl RawMemory for Heap {
    fn as_ptr(&self) -> *mut u8 {
        self.0.first
    }

    fn len_bytes(&self) -> u64 {
        self.0.layout.size() as u64
    }
}

/// Recycles buffers by size, and knows how many are out.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: BTreeMap<u64, Vec<Heap>>,
    out: i64,
    /// Use a guest's own memory where it lies in one piece.
    pub(crate) direct: bool,
}

impl Pool {
    /// Buffers taken and not given back.
    #[allow(dead_code, reason = "not every user of this file asks")]
    pub(crate) fn out(&self) -> i64 {
        self.out
    }
}

impl Buffers<Heap> for Pool {
    fn take(&mut self, blocks: u32) -> Heap {
        self.out += 1;
        let bytes = u64::from(blocks) * BLOCK as u64;
        let known = self.free.get_mut(&bytes).and_then(Vec::pop);
        known.unwrap_or_else(|| Heap::alloc(blocks))
    }

    fn guest(
        &mut self,
        keep: Arc<dyn Any + Send + Sync>,
        pieces: &[(*mut u8, usize)],
    ) -> Option<Heap> {
        let &[(first, bytes)] = pieces else { return None };
        if !self.direct {
            return None;
        }
        self.out += 1;
        let layout = Layout::from_size_align(bytes, BLOCK).expect("whole blocks");
        Some(Heap(Arc::new(Block { first, layout, keep: Some(keep) })))
    }

    fn give(&mut self, buffer: Heap) {
        self.out -= 1;
        if buffer.0.keep.is_some() {
            return;
        }
        let free = self.free.entry(buffer.len_bytes()).or_default();
        if free.len() < 512 {
            free.push(buffer);
        }
    }
}
