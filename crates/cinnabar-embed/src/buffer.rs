//! Memory for the data of a request.

use cinnabar_backend::Memory;
use cinnabar_backend::memory::Owned;
use cinnabar_engine::Payload;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use std::ops::{Deref, DerefMut};

/// Bytes of a range of a volume, in memory that the kernel can read from the device directly. A
/// slice of exactly the range's length; its contents are unspecified until it is filled.
#[derive(Debug)]
pub struct Buffer {
    /// The blocks around the range.
    memory: Owned,
    /// First byte of the range.
    head: usize,
    len: usize,
}

impl Buffer {
    /// For `len` bytes at `offset`. It fits every range of that length that begins at the same
    /// byte of a 4 KiB block; a write elsewhere costs a copy.
    pub fn new(offset: u64, len: u64) -> Self {
        let span = ByteSpan::new(offset, len);
        let blocks = u32::try_from(span.blocks()).unwrap_or(u32::MAX).max(1);
        Self::around(Memory::alloc(blocks), span)
    }

    /// A copy of `bytes`, to be written at `offset`.
    pub fn copy_of(offset: u64, bytes: &[u8]) -> Self {
        let mut buffer = Self::new(offset, bytes.len() as u64);
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// What came back with a request for `span`.
    pub(crate) fn around(memory: Memory, span: ByteSpan) -> Self {
        let memory = Owned::new(memory).unwrap_or_else(|shared| {
            // There are other references: the caller gets bytes of its own.
            let blocks = u32::try_from(span.blocks()).unwrap_or(u32::MAX).max(1);
            let own = Memory::alloc(blocks);
            own.copy_from(0, &shared, 0, u64::from(blocks) * BLOCK_BYTES);
            Owned::new(own).expect("fresh memory has one handle")
        });
        Self { memory, head: span.head_bytes() as usize, len: span.len as usize }
    }

    /// As the engine wants it for a range at `offset`: the first block's first byte first.
    pub(crate) fn into_memory(self, offset: u64) -> Memory {
        if offset % BLOCK_BYTES == self.head as u64 {
            self.memory.into_memory()
        } else {
            Self::copy_of(offset, &self).memory.into_memory()
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.head..self.head + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let range = self.head..self.head + self.len;
        &mut self.memory[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_where_the_place_within_the_block_differs() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5120).collect();
        for (made_for, written_at) in [(0, 8192), (512, 512), (512, 4608), (0, 3584), (3584, 512)] {
            let memory = Buffer::copy_of(made_for, &bytes).into_memory(written_at);
            let head = written_at % BLOCK_BYTES;
            assert_eq!(memory.to_vec(head, 5120), bytes, "{made_for} {written_at}");
        }
    }

    #[test]
    fn bytes_that_somebody_still_holds_are_copied() {
        let memory = Memory::alloc(1);
        memory.write_at(512, b"mine");
        let kept = memory.clone();
        let buffer = Buffer::around(memory, ByteSpan::new(512, 512));
        kept.write_at(512, b"gone");
        assert_eq!(buffer[..4], *b"mine");
        assert_eq!(buffer.len(), 512);
    }
}
