//! Where a block that the other host has sent gets into the cache: in place of the back end, as the answer
//! to a read of the engine's.
//!
//! A fetched block is offered by an ordinary read of the volume. If the engine does not have the block, it
//! asks the back end while the read holds the block's range lock. This door answers that, if nothing has
//! changed the block since the volume was taken: whatever changes something is noted here before an engine
//! sees it, so a change that the engine has let go ahead of this read is known, and one that comes later
//! waits for the lock and takes the copy out as it would any other. If the door does not answer, the back
//! end does, and the read is one like any other.

use cinnabar_backend::Memory;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Op, Payload, RawMemory, Slices};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bits of the map of what was changed, at most: 1 MiB of memory. Each stands for one block of a volume of
/// 32 GiB, and for more of a larger one.
const BITS_MAX: u64 = 1 << 23;

/// See the module.
pub(in super::super::super) struct Door {
    /// Blocks may come through it.
    open: AtomicBool,
    inside: Mutex<Inside>,
}

struct Inside {
    changed: Changed,
    offers: Vec<Offer>,
    counts: Counts,
}

/// A fetched run of blocks, and the read that offers it.
struct Offer {
    first: u64,
    /// What the other host has sent.
    from: Memory,
    /// Memory of the read. Held, so that no other request's can be at the same place.
    into: Memory,
    /// Blocks that came through the door, and by how many I/Os.
    through: (u64, u64),
    /// Blocks that the back end was asked for.
    past: u64,
}

/// What the engines have counted of reads that no guest asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    blocks: u64,
    misses: u64,
    ios: u64,
    bytes: u64,
}

/// What was changed since the volume was taken: one bit for so many blocks.
struct Changed {
    bits: Vec<u64>,
    shift: u32,
}

impl Changed {
    fn new(blocks: u64) -> Self {
        let mut shift = 0;
        while blocks.div_ceil(1 << shift) > BITS_MAX {
            shift += 1;
        }
        let words = blocks.div_ceil(1 << shift).div_ceil(64) as usize;
        Self { bits: vec![0; words], shift }
    }

    fn mark(&mut self, span: ByteSpan) {
        let last = span.offset.saturating_add(span.len).saturating_sub(1) / BLOCK_BYTES;
        let (first, last) = ((span.offset / BLOCK_BYTES) >> self.shift, last >> self.shift);
        for word in first / 64..=last / 64 {
            let Some(bits) = usize::try_from(word).ok().and_then(|word| self.bits.get_mut(word))
            else {
                // Beyond what there was: nothing is fetched there.
                return;
            };
            let low = if word == first / 64 { first % 64 } else { 0 };
            let high = if word == last / 64 { last % 64 } else { 63 };
            *bits |= u64::MAX << low & u64::MAX >> (63 - high);
        }
    }

    /// Also true of what is beyond the volume.
    fn has(&self, block: u64) -> bool {
        let bit = block >> self.shift;
        let word = usize::try_from(bit / 64).ok().and_then(|word| self.bits.get(word));
        word.is_none_or(|word| word >> (bit % 64) & 1 != 0)
    }
}

impl Door {
    /// Open, for a volume of so many bytes of which nothing was changed yet.
    pub(super) fn new(size_bytes: u64) -> Self {
        let changed = Changed::new(size_bytes / BLOCK_BYTES);
        let inside = Inside { changed, offers: Vec::new(), counts: Counts::default() };
        Self { open: AtomicBool::new(true), inside: Mutex::new(inside) }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // A panic ends the process, or a test.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether blocks may come through it.
    #[inline]
    pub(in super::super::super) fn is_open(&self) -> bool {
        self.open.load(Acquire)
    }

    /// Nothing comes through it any more, and what it needs memory for is let go of.
    pub(super) fn close(&self) {
        let mut inside = self.inside();
        self.open.store(false, SeqCst);
        inside.changed = Changed { bits: Vec::new(), shift: 0 };
        inside.offers = Vec::new();
    }

    /// An engine is about to be asked this.
    pub(in super::super::super) fn note(&self, op: &Op<Memory>) {
        let span = match op {
            Op::Write { span, .. }
            | Op::Trim { span, .. }
            | Op::WriteZeroes { span, .. }
            | Op::Invalidate { span } => *span,
            Op::Read { .. } | Op::Flush => return,
        };
        if span.len > 0 {
            self.inside().changed.mark(span);
        }
    }

    /// Whether this block can still be offered.
    pub(super) fn is_unchanged(&self, block: u64) -> bool {
        !self.inside().changed.has(block)
    }

    /// A read into `into` is about to offer these blocks.
    pub(super) fn offer(&self, first: u64, from: Memory, into: Memory) {
        let mut inside = self.inside();
        if self.is_open() {
            inside.offers.push(Offer { first, from, into, through: (0, 0), past: 0 });
        }
    }

    /// The read into this memory has ended.
    pub(super) fn end_offer(&self, into: &Memory) {
        let mut inside = self.inside();
        let is_it = |offer: &Offer| std::ptr::eq(offer.into.as_ptr(), into.as_ptr());
        if let Some(at) = inside.offers.iter().position(is_it) {
            let offer = inside.offers.swap_remove(at);
            let blocks = offer.from.len_bytes() / BLOCK_BYTES;
            let counts = &mut inside.counts;
            counts.reads += 1;
            counts.blocks += blocks;
            counts.misses += (offer.through.0 + offer.past).min(blocks);
            counts.ios += offer.through.1;
            counts.bytes += offer.through.0 * BLOCK_BYTES;
        }
    }

    /// An engine asks the back end for these bytes, under the lock of their blocks. True if they have been
    /// put where it wants them.
    pub(in super::super::super) fn answers(&self, offset: u64, data: &Slices<Memory>) -> bool {
        let [slice] = data.as_slice() else { return false };
        let mut inside = self.inside();
        let Inside { changed, offers, .. } = &mut *inside;
        let is_it = |offer: &&mut Offer| std::ptr::eq(offer.into.as_ptr(), slice.data.as_ptr());
        let Some(offer) = offers.iter_mut().find(is_it) else { return false };
        let whole = [offset, slice.at, slice.len].iter().all(|n| n.is_multiple_of(BLOCK_BYTES));
        let fits = slice.at.checked_add(slice.len).is_some_and(|end| end <= offer.from.len_bytes());
        if !whole || !fits || offer.first * BLOCK_BYTES + slice.at != offset {
            return false;
        }
        let (first, count) = (offset / BLOCK_BYTES, slice.len / BLOCK_BYTES);
        if (first..first + count).any(|block| changed.has(block)) {
            offer.past += count;
            return false;
        }
        slice.data.copy_from(slice.at, &offer.from, slice.at, slice.len);
        offer.through = (offer.through.0 + count, offer.through.1 + 1);
        true
    }

    /// The engines' counters without the reads that offered something.
    pub(in super::super::super) fn without(&self, own: &VolumeCounters) -> VolumeCounters {
        let Counts { reads, blocks, misses, ios, bytes } = self.inside().counts;
        VolumeCounters {
            reads: own.reads.saturating_sub(reads),
            blocks_read: own.blocks_read.saturating_sub(blocks),
            read_hits: own.read_hits.saturating_sub(blocks - misses),
            misses: own.misses.saturating_sub(misses),
            backend_reads: own.backend_reads.saturating_sub(ios),
            backend_read_bytes: own.backend_read_bytes.saturating_sub(bytes),
            ..*own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::Slice;

    const SIZE: u64 = 1000 * BLOCK_BYTES;

    /// A request that changes a part of a volume.
    type Change = fn(ByteSpan, Memory, bool) -> Op<Memory>;

    fn blocks(first: u64, count: u64) -> ByteSpan {
        ByteSpan::new(first * BLOCK_BYTES, count * BLOCK_BYTES)
    }

    /// A run of four blocks from block 10 on, offered.
    fn offered() -> (Door, Memory, Memory) {
        let (door, from, into) = (Door::new(SIZE), Memory::alloc(4), Memory::alloc(4));
        from.write_at(0, &[7; 4 * 4096]);
        into.zero(0, 4 * 4096);
        door.offer(10, from.clone(), into.clone());
        (door, from, into)
    }

    fn ask(door: &Door, offset: u64, data: &Memory, at: u64, len: u64) -> bool {
        let slices: Slices<Memory> = [Slice { data: data.clone(), at, len }].into_iter().collect();
        door.answers(offset, &slices)
    }

    #[test]
    fn a_miss_of_what_is_offered_is_answered_and_nothing_else() {
        let (door, _, into) = offered();
        assert!(ask(&door, 11 * 4096, &into, 4096, 8192));
        let found = into.to_vec(0, 4 * 4096);
        assert!(found[..4096].iter().all(|b| *b == 0) && found[12288..].iter().all(|b| *b == 0));
        assert!(found[4096..12288].iter().all(|b| *b == 7));
        let other = Memory::alloc(4);
        for (offset, data, at, len) in [
            (10 * 4096, &other, 0, 4096),
            (11 * 4096, &into, 0, 4096),
            (10 * 4096, &into, 0, 5 * 4096),
            (10 * 4096, &into, 0, 512),
            (14 * 4096, &into, 4 * 4096, 4096),
        ] {
            assert!(!ask(&door, offset, data, at, len), "{offset}, {at}, {len}");
        }
        door.end_offer(&into);
        assert!(!ask(&door, 10 * 4096, &into, 0, 4096), "it is over");
        let counted = VolumeCounters {
            reads: 5,
            blocks_read: 20,
            read_hits: 10,
            misses: 10,
            backend_reads: 3,
            backend_read_bytes: 40_960,
            ..Default::default()
        };
        let own = door.without(&counted);
        assert_eq!((own.reads, own.blocks_read, own.misses, own.read_hits), (4, 16, 8, 8));
        assert_eq!((own.backend_reads, own.backend_read_bytes), (2, 32_768));
    }

    #[test]
    fn what_was_changed_is_left_to_the_back_end() {
        let data = || Memory::alloc(1);
        let fua = false;
        let changes: [Change; 4] = [
            |span, data, fua| Op::Write { span, data, fua },
            |span, _, fua| Op::Trim { span, fua },
            |span, _, fua| Op::WriteZeroes { span, fua, may_punch: true },
            |span, _, _| Op::Invalidate { span },
        ];
        for change in changes {
            let (door, _, into) = offered();
            door.note(&change(ByteSpan::new(12 * 4096 + 512, 512), data(), fua));
            assert!(!ask(&door, 10 * 4096, &into, 0, 4 * 4096), "one of them was changed");
            assert!(!ask(&door, 12 * 4096, &into, 8192, 4096));
            assert!(ask(&door, 10 * 4096, &into, 0, 8192), "others were not");
            assert!(!door.is_unchanged(12) && door.is_unchanged(11) && door.is_unchanged(13));
        }
        let (door, _, into) = offered();
        door.note(&Op::Read { span: blocks(0, 1000), data: data() });
        door.note(&Op::Flush);
        assert!(ask(&door, 10 * 4096, &into, 0, 4 * 4096), "nothing was changed");
        door.close();
        assert!(!door.is_open() && !ask(&door, 10 * 4096, &into, 0, 4096), "it is closed");
        door.offer(10, data(), into.clone());
        assert!(!ask(&door, 10 * 4096, &into, 0, 4096), "and stays closed");
    }

    #[test]
    fn the_map_has_every_block_that_was_touched_whatever_the_size() {
        for (blocks_all, spans) in [
            (1000, vec![(0, 1), (63, 2), (128, 64), (999, 1)]),
            (BITS_MAX * 5, vec![(0, 1), (BITS_MAX * 5 - 1, 1), (777_777, 300)]),
            (130, vec![(0, 130)]),
        ] {
            let mut changed = Changed::new(blocks_all);
            assert!(changed.bits.len() as u64 * 64 <= BITS_MAX + 63);
            let step = 1 << changed.shift;
            for (first, count) in &spans {
                changed.mark(blocks(*first, *count));
            }
            for (first, count) in spans {
                for block in first..first + count {
                    assert!(changed.has(block), "{block} of {blocks_all}");
                }
            }
            let marked: u64 = changed.bits.iter().map(|word| u64::from(word.count_ones())).sum();
            assert!(marked * step <= blocks_all + step && changed.has(blocks_all + 64 * step));
        }
        // A span that reaches past the end, or overflows.
        let mut changed = Changed::new(100);
        changed.mark(ByteSpan::new(99 * 4096, u64::MAX));
        assert!(changed.has(99) && !changed.has(98));
    }
}
