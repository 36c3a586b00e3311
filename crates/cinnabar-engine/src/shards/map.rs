//! Which shard owns a block: a fixed function of the volume's name and the block's number, so that
//! any number of threads can serve a device.

use crate::metadata::superblock::Geometry;
use crate::mix;
use crate::units::{BLOCK_BYTES, ByteSpan};

/// See the module. Stripes of `1 << span_log2` blocks go round the shards; each volume begins with
/// another one, so that the busy first blocks of many small volumes are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMap {
    shards: u32,
    span_log2: u32,
}

impl ShardMap {
    /// The map of a device.
    pub const fn of(geometry: &Geometry) -> Self {
        Self { shards: geometry.shards, span_log2: geometry.shard_span_log2 }
    }

    /// Everything is the first shard's.
    pub const fn single() -> Self {
        Self { shards: 1, span_log2: 0 }
    }

    /// The usual map of so many shards, where there is no device to say.
    pub const fn usual(shards: u32) -> Self {
        Self { shards, span_log2: Geometry::SPAN_LOG2 }
    }

    /// Number of shards.
    pub const fn shards(&self) -> u32 {
        self.shards
    }

    /// Where a volume begins: FNV-1a of its name, mixed.
    pub fn first_shard(&self, name: &str) -> u32 {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (mix(hash, 0) % u64::from(self.shards)) as u32
    }

    /// The shard of a block of a volume that begins with shard `first`.
    pub const fn shard_of(&self, first: u32, block: u64) -> u32 {
        (((block >> self.span_log2) + first as u64) % self.shards as u64) as u32
    }

    pub const fn stripe_bytes(&self) -> u64 {
        BLOCK_BYTES << self.span_log2
    }

    /// Cuts off the first part of a span, which is not empty, that one shard owns alone; gives that
    /// shard.
    ///
    /// # Panics
    /// If the span is empty.
    pub fn cut(&self, first: u32, span: &mut ByteSpan) -> (u32, ByteSpan) {
        assert!(span.len > 0, "there is something to cut off");
        let shard = self.shard_of(first, span.first_block());
        let len = if self.shards == 1 {
            span.len
        } else {
            let stripe = self.stripe_bytes();
            span.len.min(stripe - span.offset % stripe)
        };
        let part = ByteSpan::new(span.offset, len);
        *span = ByteSpan::new(span.offset + len, span.len - len);
        (shard, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_span_in_order_and_neighbours_differ() {
        let map = ShardMap { shards: 3, span_log2: 2 };
        let mut rest = ByteSpan::new(3 * 4096 + 512, 9 * 4096);
        let (mut parts, mut end) = (Vec::new(), rest.offset);
        while rest.len > 0 {
            let (shard, part) = map.cut(2, &mut rest);
            assert_eq!(part.offset, end);
            for block in part.first_block()..part.end_block() {
                assert_eq!(map.shard_of(2, block), shard);
            }
            end = part.end();
            parts.push(shard);
        }
        assert_eq!((end, parts), (12 * 4096 + 512, vec![2, 0, 1, 2]));
    }

    #[test]
    fn volumes_begin_everywhere() {
        let map = ShardMap { shards: 4, span_log2: 10 };
        let mut seen = [0; 4];
        for i in 0..400 {
            seen[map.first_shard(&format!("vm-{i}")) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
    }
}
