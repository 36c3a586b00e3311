//! Detection of sequential scans, which would sweep the cache without ever being read again.
//!
//! Called by the request paths for each read and write of a volume.

use crate::units::ByteSpan;

/// Streams followed at a time.
const STREAMS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    end: u64,
    bytes: u64,
    used: u64,
}

/// The recent streams of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detector {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Detector {
    /// Notes an access; gives the bytes of the run that it continues, itself included.
    pub(crate) fn note(&mut self, span: ByteSpan) -> u64 {
        self.clock += 1;
        let clock = self.clock;
        let continued = |s: &&mut Stream| s.used > 0 && s.end == span.offset;
        if let Some(stream) = self.streams.iter_mut().find(continued) {
            *stream = Stream { end: span.end(), bytes: stream.bytes + span.len, used: clock };
            return stream.bytes;
        }
        let oldest = self.streams.iter_mut().min_by_key(|s| s.used).expect("there are streams");
        *oldest = Stream { end: span.end(), bytes: span.len, used: clock };
        span.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_told_apart_and_random_accesses_are_none() {
        let mut detector = Detector::default();
        let mut run = 0;
        for i in 0..10u64 {
            run = detector.note(ByteSpan::new(i * 4096, 4096));
            detector.note(ByteSpan::new((1 << 30) + i * 8192, 8192));
            assert_eq!(detector.note(ByteSpan::new((5 + i * 7919) << 20, 4096)), 4096);
        }
        assert_eq!(run, 40_960);
    }
}
