//! What guests of a volume in the write log have asked for, beside what the log has asked of the
//! engines in its place.
//!
//! The engines count what comes to them. So that a volume's counters mean the same in every mode, what
//! the log has asked for is taken off, and what guests have asked the log is added.

use cinnabar_backend::Memory;
use cinnabar_engine::Op;
use cinnabar_engine::counters::VolumeCounters;

/// Requests of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    reads: u64,
    writes: u64,
    flushes: u64,
    trims: u64,
    zeroes: u64,
    blocks_read: u64,
    blocks_written: u64,
}

/// Both sides of the log, since the volume was attached.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Traffic {
    guests: Requests,
    log: Requests,
}

impl Requests {
    fn add(&mut self, op: &Op<Memory>) {
        match op {
            Op::Read { span, .. } => {
                self.reads += 1;
                self.blocks_read += span.blocks();
            }
            Op::Write { span, .. } => {
                self.writes += 1;
                self.blocks_written += span.blocks();
            }
            Op::Flush => self.flushes += 1,
            Op::Trim { .. } => self.trims += 1,
            Op::WriteZeroes { .. } => self.zeroes += 1,
            Op::Invalidate { .. } => {}
        }
    }
}

impl Traffic {
    /// A guest asks the log for this.
    pub(in super::super) fn guest_asks(&mut self, op: &Op<Memory>) {
        self.guests.add(op);
    }

    /// The log asks the engines for this, or a volume that joins it.
    pub(in super::super) fn log_asks(&mut self, op: &Op<Memory>) {
        self.log.add(op);
    }

    /// Of the blocks read, those of reads that the log answered alone.
    pub(in super::super) fn read_hits_log(&self) -> u64 {
        self.guests.blocks_read.saturating_sub(self.log.blocks_read)
    }

    /// The engines' counters as guests see them. A read of which the log has a part counts by what
    /// the engines have found of all its blocks.
    pub(in super::super) fn of_guests(&self, engines: &VolumeCounters) -> VolumeCounters {
        let Self { guests, log } = self;
        // The engines may have refused one that was counted here.
        let count = |engines: u64, log: u64, guests: u64| engines.saturating_sub(log) + guests;
        let blocks_read = count(engines.blocks_read, log.blocks_read, guests.blocks_read);
        VolumeCounters {
            reads: count(engines.reads, log.reads, guests.reads),
            writes: count(engines.writes, log.writes, guests.writes),
            flushes: count(engines.flushes, log.flushes, guests.flushes),
            trims: count(engines.trims, log.trims, guests.trims),
            zeroes: count(engines.zeroes, log.zeroes, guests.zeroes),
            blocks_read,
            blocks_written: count(
                engines.blocks_written,
                log.blocks_written,
                guests.blocks_written,
            ),
            read_hits: blocks_read.saturating_sub(engines.misses),
            ..*engines
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::Payload;
    use cinnabar_engine::units::ByteSpan;

    fn read(blocks: u32) -> Op<Memory> {
        let span = ByteSpan::new(0, u64::from(blocks) * 4096);
        Op::Read { span, data: Memory::alloc(blocks) }
    }

    #[test]
    fn what_the_log_answers_counts_and_what_it_asks_for_does_not() {
        let mut traffic = Traffic::default();
        // Two reads, one of which the engines are asked for, and a destage of ten blocks beside them.
        traffic.guest_asks(&read(3));
        traffic.guest_asks(&read(2));
        traffic.log_asks(&read(2));
        let span = ByteSpan::new(0, 10 * 4096);
        traffic.log_asks(&Op::Write { span, data: Memory::alloc(10), fua: false });
        traffic.log_asks(&Op::Flush);
        traffic.guest_asks(&Op::Flush);
        traffic.guest_asks(&Op::Flush);
        // Of before the volume joined: one read of four blocks, all of them missed.
        let engines = VolumeCounters {
            reads: 2,
            blocks_read: 6,
            read_hits: 1,
            misses: 5,
            writes: 1,
            blocks_written: 10,
            flushes: 1,
            backend_writes: 1,
            ..VolumeCounters::default()
        };
        let seen = traffic.of_guests(&engines);
        assert_eq!((seen.reads, seen.blocks_read, seen.read_hits, seen.misses), (3, 9, 4, 5));
        assert_eq!((seen.writes, seen.blocks_written, seen.flushes), (0, 0, 2));
        assert_eq!((seen.backend_writes, traffic.read_hits_log()), (1, 3));
    }
}
