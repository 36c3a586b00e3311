//! Block buffers: the RAM in which blocks live before they are on flash.
//!
//! One slab of fixed size, handed out block by block; when it is empty a fill is skipped, never a
//! guest delayed.

use crate::seam::{Payload, Slice};
use crate::units::BLOCK_BYTES;

/// One block of the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(pub(crate) u32);

impl Buffer {
    /// Its first byte within the slab.
    pub(crate) const fn at(self) -> u64 {
        self.0 as u64 * BLOCK_BYTES
    }
}

/// The slab and its free list.
pub(crate) struct Buffers<P> {
    data: P,
    total: u32,
    fresh: u32,
    free: Vec<Buffer>,
}

impl<P: Payload> Buffers<P> {
    /// A slab of `total` blocks.
    pub(crate) fn new(total: u32) -> Self {
        Self { data: P::alloc(total), total, fresh: 0, free: Vec::new() }
    }

    /// The slab's memory.
    pub(crate) fn data(&self) -> &P {
        &self.data
    }

    /// Blocks in all.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Blocks not in use.
    pub(crate) fn available(&self) -> u32 {
        self.total - self.fresh + self.free.len() as u32
    }

    /// Takes a block; never-used ones last, so that only what is needed is ever touched.
    pub(crate) fn take(&mut self) -> Option<Buffer> {
        if let Some(buffer) = self.free.pop() {
            assert!(buffer.0 < self.fresh, "a free buffer was in use before");
            return Some(buffer);
        }
        (self.fresh < self.total).then(|| {
            self.fresh += 1;
            Buffer(self.fresh - 1)
        })
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        assert!(buffer.0 < self.fresh, "a buffer that was never taken");
        debug_assert!(!self.free.contains(&buffer), "a buffer is given back once");
        self.free.push(buffer);
        assert!(self.free.len() as u32 <= self.fresh, "more buffers given back than taken");
    }

    /// The block as an element of a scatter/gather list.
    pub(crate) fn slice(&self, buffer: Buffer) -> Slice<P> {
        assert!(buffer.0 < self.fresh, "I/O on a buffer that was never taken");
        Slice { data: self.data.clone(), at: buffer.at(), len: BLOCK_BYTES }
    }
}
