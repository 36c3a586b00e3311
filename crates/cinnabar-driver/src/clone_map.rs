//! Which objects of a clone are its own, and so which reads its parent answers.
//!
//! A clone's image is divided into objects. One that does not exist is read from the parent; one that
//! exists hides it. Whether it exists is known from the opening on, for nobody else may write: a bit an
//! object, set before a change of the object is sent, never cleared. `docs/design/clones.md` says why no read
//! is stale.
//!
//! Any thread may ask and set. What makes the order is that a read and a change of the same blocks come one
//! after the other on one thread, or by a letter between two.

#[cfg(test)]
mod tests;

use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Most objects within an overlap: 8 MiB of bits, and 256 TiB of objects of 4 MiB.
pub const OBJECTS_MAX: u64 = 1 << 26;
/// Bits of a word of the map.
const WORD_BITS: u64 = 64;

/// Why there is no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloneMapError {
    /// More bits than fit.
    #[error("it has {0} objects, at most {OBJECTS_MAX} are possible")]
    Objects(u64),
    /// Blocks must not reach from one object into another.
    #[error("objects of {0} bytes are not whole blocks of 4096 bytes")]
    ObjectBytes(u64),
}

/// See the module.
#[derive(Debug)]
pub struct CloneMap {
    object_bytes: u64,
    /// The parent may answer for what is before it, in bytes, whole blocks. It only falls.
    covered: AtomicU64,
    /// A bit for each object that begins before `covered` as it was at first.
    own: Box<[AtomicU64]>,
}

impl CloneMap {
    /// A map of a clone's objects within its overlap with the parent; `own` are the numbers of those that it
    /// has itself. Numbers beyond the overlap are passed over.
    ///
    /// # Errors
    /// [`CloneMapError`].
    pub fn new(
        object_bytes: u64,
        overlap_bytes: u64,
        own: impl IntoIterator<Item = u64>,
    ) -> Result<Self, CloneMapError> {
        if object_bytes == 0 || !object_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(CloneMapError::ObjectBytes(object_bytes));
        }
        let objects = overlap_bytes.div_ceil(object_bytes);
        if objects > OBJECTS_MAX {
            return Err(CloneMapError::Objects(objects));
        }
        let words = (0..objects.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        let covered = overlap_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let map = Self { object_bytes, covered: covered.into(), own: words };
        for object in own {
            if object < objects {
                map.own[(object / WORD_BITS) as usize].fetch_or(1 << (object % WORD_BITS), Relaxed);
            }
        }
        Ok(map)
    }

    /// A write, trim or zero of these bytes is about to be sent: the objects are the clone's own from now on.
    pub fn begin_change(&self, span: ByteSpan) {
        let Some((first, last)) = self.objects(span) else { return };
        for word in first / WORD_BITS..=last / WORD_BITS {
            let Some(bits) = self.own.get(word as usize) else { return };
            let bit_of = |object: u64| object - word * WORD_BITS;
            let from = if word == first / WORD_BITS { bit_of(first) } else { 0 };
            let to = if word == last / WORD_BITS { bit_of(last) } else { WORD_BITS - 1 };
            let mask = (u64::MAX << from) & (u64::MAX >> (WORD_BITS - 1 - to));
            // Most writes find what an earlier one has set.
            if bits.load(Acquire) & mask != mask {
                bits.fetch_or(mask, AcqRel);
            }
        }
    }

    /// Whether the parent answers a read of these bytes: all of their blocks are within the overlap, and no
    /// object of theirs is the clone's own.
    pub fn is_parents(&self, span: ByteSpan) -> bool {
        let Some((first, last)) = self.objects(span) else { return false };
        let end = span.end_block().saturating_mul(BLOCK_BYTES);
        end <= self.covered.load(Acquire) && (first..=last).all(|object| !self.is_own(object))
    }

    /// The parent answers for nothing behind so many bytes from now on.
    pub fn cut(&self, size_bytes: u64) {
        self.covered.fetch_min(size_bytes / BLOCK_BYTES * BLOCK_BYTES, AcqRel);
    }

    /// The parent answers for nothing any more: another client may have written the clone.
    pub fn lose(&self) {
        self.cut(0);
    }

    /// Bytes for which the parent may answer, where the clone has nothing of its own.
    pub fn covered_bytes(&self) -> u64 {
        self.covered.load(Acquire)
    }

    /// Objects within the overlap, and how many of them are the clone's own.
    pub fn objects_and_own(&self) -> (u64, u64) {
        let objects = self.covered_bytes().div_ceil(self.object_bytes);
        let own = self.own.iter().zip(0..objects.div_ceil(WORD_BITS)).map(|(word, at)| {
            let within = (objects - at * WORD_BITS).min(WORD_BITS);
            u64::from((word.load(Acquire) & (u64::MAX >> (WORD_BITS - within))).count_ones())
        });
        let own = own.sum();
        (objects, own)
    }

    /// Bytes of its table.
    pub fn ram_bytes(&self) -> u64 {
        size_of_val::<[AtomicU64]>(&self.own) as u64
    }

    /// The first and the last object that these bytes touch; `None` of no bytes.
    fn objects(&self, span: ByteSpan) -> Option<(u64, u64)> {
        let last = span.offset.checked_add(span.len.checked_sub(1)?)?;
        Some((span.offset / self.object_bytes, last / self.object_bytes))
    }

    fn is_own(&self, object: u64) -> bool {
        let word = self.own.get((object / WORD_BITS) as usize);
        word.is_none_or(|word| word.load(Acquire) >> (object % WORD_BITS) & 1 == 1)
    }
}
