//! Probation: the FIFO of RAM slots in which a missed block waits to be used again.
//!
//! RAM slots are numbered behind the flash slots, so that one address map and one descriptor table
//! serve both; a block is in one place at a time.

use crate::buffers::Buffer;

const NOTHING: u32 = u32::MAX;

/// A ring of RAM slots.
#[derive(Debug)]
pub(crate) struct Probation {
    first: u32,
    tail: u32,
    buffers: Vec<u32>,
}

impl Probation {
    /// A ring of `len` slots from slot `first` on.
    pub(crate) fn new(first: u32, len: u32) -> Self {
        assert!(len > 0, "the oldest slot is one of the ring's");
        assert!(first.checked_add(len).is_some(), "RAM slots are numbered behind those of flash");
        Self { first, tail: 0, buffers: vec![NOTHING; len as usize] }
    }

    /// Slots in the ring.
    pub(crate) fn len(&self) -> u32 {
        self.buffers.len() as u32
    }

    /// Whether `slot` is one of the ring's.
    pub(crate) fn holds(&self, slot: u32) -> bool {
        slot >= self.first
    }

    /// The slot that has been in the ring longest: the next to be used again.
    pub(crate) fn oldest(&self) -> u32 {
        self.first + self.tail
    }

    /// All slots, oldest first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let (first, tail, len) = (self.first, self.tail, self.len());
        (0..len).map(move |i| first + (tail + i) % len)
    }

    /// The data of `slot`.
    pub(crate) fn buffer(&self, slot: u32) -> Option<Buffer> {
        debug_assert!(self.holds(slot), "slot {slot} is one of flash");
        let buffer = self.buffers[(slot - self.first) as usize];
        (buffer != NOTHING).then_some(Buffer(buffer))
    }

    /// Takes the data out of `slot`.
    pub(crate) fn take(&mut self, slot: u32) -> Option<Buffer> {
        let buffer = self.buffer(slot);
        self.buffers[(slot - self.first) as usize] = NOTHING;
        buffer
    }

    /// Puts data into the oldest slot, which must be empty, and makes it the newest.
    pub(crate) fn push(&mut self, buffer: Buffer) -> u32 {
        let slot = self.oldest();
        assert!(self.buffer(slot).is_none(), "the oldest slot was not vacated");
        assert_ne!(buffer.0, NOTHING, "a buffer has a number");
        self.buffers[self.tail as usize] = buffer.0;
        self.tail = (self.tail + 1) % self.len();
        slot
    }
}
