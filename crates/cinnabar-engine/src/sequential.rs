//! Detection of sequential scans, which would sweep the cache without ever being read again.

use crate::metadata::superblock::Geometry;
use crate::units::{BLOCK_BYTES, ByteSpan};

/// Streams followed at a time.
const STREAMS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    end: u64,
    bytes: u64,
    used: u64,
}

/// What of a volume a shard sees: stripes of this many bytes, with gaps of so many between them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stripes {
    pub(crate) bytes: u64,
    pub(crate) gap_bytes: u64,
}

impl Stripes {
    pub(crate) const fn of(geometry: &Geometry) -> Self {
        let bytes = BLOCK_BYTES << geometry.shard_span_log2;
        Self { bytes, gap_bytes: bytes * (geometry.shards as u64 - 1) }
    }

    /// Bytes between the end of one access and the beginning of the next, if it continues it.
    const fn gap(self, end: u64, next: u64) -> Option<u64> {
        match next.checked_sub(end) {
            Some(0) => Some(0),
            Some(gap) if gap == self.gap_bytes && end.is_multiple_of(self.bytes) => Some(gap),
            _ => None,
        }
    }
}

/// The recent streams of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detector {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Detector {
    /// Notes an access; gives the bytes of the run that it continues, itself included.
    /// What other shards see of the run counts, too.
    pub(crate) fn note(&mut self, span: ByteSpan, stripes: Stripes) -> u64 {
        self.clock += 1;
        let clock = self.clock;
        for stream in self.streams.iter_mut().filter(|stream| stream.used > 0) {
            if let Some(gap) = stripes.gap(stream.end, span.offset) {
                let bytes = stream.bytes + gap + span.len;
                *stream = Stream { end: span.end(), bytes, used: clock };
                return bytes;
            }
        }
        let oldest = self.streams.iter_mut().min_by_key(|s| s.used).expect("there are streams");
        *oldest = Stream { end: span.end(), bytes: span.len, used: clock };
        span.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Stripes = Stripes { bytes: 4096, gap_bytes: 0 };

    #[test]
    fn interleaved_streams_are_told_apart_and_random_accesses_are_none() {
        let mut detector = Detector::default();
        let mut run = 0;
        for i in 0..10u64 {
            run = detector.note(ByteSpan::new(i * 4096, 4096), ONE);
            detector.note(ByteSpan::new((1 << 30) + i * 8192, 8192), ONE);
            assert_eq!(detector.note(ByteSpan::new((5 + i * 7919) << 20, 4096), ONE), 4096);
        }
        assert_eq!(run, 40_960);
    }

    #[test]
    fn a_scan_goes_on_behind_the_stripes_of_other_shards() {
        let stripes = Stripes { bytes: 8192, gap_bytes: 3 * 8192 };
        let mut detector = Detector::default();
        let mut note = |offset| detector.note(ByteSpan::new(offset, 4096), stripes);
        assert_eq!([note(0), note(4096), note(32_768)], [4096, 8192, 36_864]);
        // A stride of the same length from elsewhere is none.
        assert_eq!([note(4096), note(32_768 + 28_672)], [4096, 4096]);
    }
}
