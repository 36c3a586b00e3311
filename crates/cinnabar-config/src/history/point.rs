//! What a volume, or the cache, did in a short time.

use crate::history::totals::Totals;

/// Numbers of a point.
pub(crate) const FIELDS: usize = 16;

/// Of a short time. What does not fit into 32 bits counts as the largest number that does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Its end, in seconds since 1970.
    pub at_s: u32,
    /// How long it was, in milliseconds.
    pub span_ms: u32,
    /// Read requests.
    pub reads: u32,
    /// Write requests.
    pub writes: u32,
    pub read_blocks: u32,
    /// Of those, from RAM or the SSD.
    pub hit_blocks: u32,
    pub written_blocks: u32,
    /// Reads of the back end.
    pub backend_reads: u32,
    /// Writes of the back end.
    pub backend_writes: u32,
    /// Written to the SSD, in blocks, rounded up; of the cache only.
    pub ssd_written_blocks: u32,
    /// Blocks in the cache at its end.
    pub held_blocks: u32,
    /// The volume's own share at its end, in blocks, 0 if it has none; of the cache: all of it.
    pub share_blocks: u32,
    /// Mean latency of reads, in us.
    pub read_mean_us: u32,
    /// About the time that 99 of 100 reads did not exceed, in us.
    pub read_p99_us: u32,
    /// Mean latency of writes, in us.
    pub write_mean_us: u32,
    /// About the time that 99 of 100 writes did not exceed, in us.
    pub write_p99_us: u32,
}

/// What is true at the end of a point, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) held_blocks: u64,
    pub(crate) share_blocks: u64,
}

impl Point {
    /// What was done from one time to another, in milliseconds since 1970.
    pub(crate) fn new(from_ms: u64, to_ms: u64, done: &Totals, level: Level) -> Self {
        const SSD_BLOCK: u64 = cinnabar_format::units::BLOCK_BYTES;
        Self {
            at_s: short(to_ms / 1000),
            span_ms: short(to_ms.saturating_sub(from_ms)),
            reads: short(done.reads),
            writes: short(done.writes),
            read_blocks: short(done.read_blocks),
            hit_blocks: short(done.hit_blocks),
            written_blocks: short(done.written_blocks),
            backend_reads: short(done.backend_reads),
            backend_writes: short(done.backend_writes),
            ssd_written_blocks: short(done.ssd_written_bytes.div_ceil(SSD_BLOCK)),
            held_blocks: short(level.held_blocks),
            share_blocks: short(level.share_blocks),
            read_mean_us: short(done.read_times.mean_us()),
            read_p99_us: short(done.read_times.p99_us()),
            write_mean_us: short(done.write_times.mean_us()),
            write_p99_us: short(done.write_times.p99_us()),
        }
    }

    /// What was done directly behind it, within the same second, was done in it.
    pub(crate) fn absorb(&mut self, next: &Self) {
        let mean = |(one_us, one): (u32, u32), (other_us, other): (u32, u32)| {
            let sum = u64::from(one_us) * u64::from(one) + u64::from(other_us) * u64::from(other);
            short(sum.checked_div(u64::from(one) + u64::from(other)).unwrap_or(0))
        };
        let sum = u32::saturating_add;
        *self = Self {
            at_s: self.at_s,
            span_ms: sum(self.span_ms, next.span_ms),
            reads: sum(self.reads, next.reads),
            writes: sum(self.writes, next.writes),
            read_blocks: sum(self.read_blocks, next.read_blocks),
            hit_blocks: sum(self.hit_blocks, next.hit_blocks),
            written_blocks: sum(self.written_blocks, next.written_blocks),
            backend_reads: sum(self.backend_reads, next.backend_reads),
            backend_writes: sum(self.backend_writes, next.backend_writes),
            ssd_written_blocks: sum(self.ssd_written_blocks, next.ssd_written_blocks),
            held_blocks: next.held_blocks,
            share_blocks: next.share_blocks,
            read_mean_us: mean((self.read_mean_us, self.reads), (next.read_mean_us, next.reads)),
            read_p99_us: self.read_p99_us.max(next.read_p99_us),
            write_mean_us: mean(
                (self.write_mean_us, self.writes),
                (next.write_mean_us, next.writes),
            ),
            write_p99_us: self.write_p99_us.max(next.write_p99_us),
        };
    }

    /// As numbers, in the order of the fields.
    pub(crate) const fn numbers(&self) -> [u32; FIELDS] {
        [
            self.at_s,
            self.span_ms,
            self.reads,
            self.writes,
            self.read_blocks,
            self.hit_blocks,
            self.written_blocks,
            self.backend_reads,
            self.backend_writes,
            self.ssd_written_blocks,
            self.held_blocks,
            self.share_blocks,
            self.read_mean_us,
            self.read_p99_us,
            self.write_mean_us,
            self.write_p99_us,
        ]
    }

    /// Of numbers in the order of the fields.
    pub(crate) const fn of_numbers(numbers: [u32; FIELDS]) -> Self {
        let [
            at_s,
            span_ms,
            reads,
            writes,
            read_blocks,
            hit_blocks,
            written_blocks,
            backend_reads,
            backend_writes,
            ssd_written_blocks,
            held_blocks,
            share_blocks,
            read_mean_us,
            read_p99_us,
            write_mean_us,
            write_p99_us,
        ] = numbers;
        Self {
            at_s,
            span_ms,
            reads,
            writes,
            read_blocks,
            hit_blocks,
            written_blocks,
            backend_reads,
            backend_writes,
            ssd_written_blocks,
            held_blocks,
            share_blocks,
            read_mean_us,
            read_p99_us,
            write_mean_us,
            write_p99_us,
        }
    }
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
