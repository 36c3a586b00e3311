//! A volume's requests as its guests make them, while the write log is between them and the engines.
//!
//! The engines count what comes to them: past the log from guests, by way of it from the destage. So
//! that the counters mean the same in every mode, requests are counted here while the volume is in the
//! log, and what the engines have counted from its joining to its leaving is left out. Of reads the
//! engines see those of guests only, so theirs count; what the log answers alone is added.

use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::counters::VolumeCounters;

/// Requests, and the blocks that writes have touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    reads: u64,
    writes: u64,
    flushes: u64,
    trims: u64,
    zeroes: u64,
    blocks_written: u64,
}

/// What a volume has asked for by way of the log, since it was attached. No request of its guests is
/// under way when it joins or leaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Of guests, given to the log.
    guests: Requests,
    /// What the engines counted in earlier stays in the log.
    left_out: Requests,
    /// What they had counted when it joined, if it is there.
    joined: Option<Requests>,
    /// Blocks of reads that the log answered alone: in earlier stays, and in this one or the last.
    alone: (u64, u64),
}

impl Requests {
    fn of(counters: &VolumeCounters) -> Self {
        let VolumeCounters { reads, writes, flushes, trims, zeroes, blocks_written, .. } =
            *counters;
        Self { reads, writes, flushes, trims, zeroes, blocks_written }
    }

    fn each(self, other: Self, sum: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reads: sum(self.reads, other.reads),
            writes: sum(self.writes, other.writes),
            flushes: sum(self.flushes, other.flushes),
            trims: sum(self.trims, other.trims),
            zeroes: sum(self.zeroes, other.zeroes),
            blocks_written: sum(self.blocks_written, other.blocks_written),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }
}

impl Traffic {
    /// A guest asks the log for this.
    pub fn guest_asks<P>(&mut self, op: &Op<P>) {
        match op {
            Op::Read { .. } => self.guests.reads += 1,
            Op::Write { span, .. } => {
                self.guests.writes += 1;
                self.guests.blocks_written += span.blocks();
            }
            Op::Flush => self.guests.flushes += 1,
            Op::Trim { .. } => self.guests.trims += 1,
            Op::WriteZeroes { .. } => self.guests.zeroes += 1,
            Op::Invalidate { .. } => {}
        }
    }

    /// The volume has joined the log; the engines have counted so much by now.
    pub fn joined(&mut self, engines: &VolumeCounters) {
        self.joined = Some(Requests::of(engines));
        self.alone = (self.alone.0 + self.alone.1, 0);
    }

    /// It has left the log, or could not join it.
    pub fn left(&mut self, engines: &VolumeCounters) {
        if let Some(joined) = self.joined.take() {
            let meanwhile = Requests::of(engines).minus(joined);
            self.left_out = self.left_out.plus(meanwhile);
        }
    }

    /// So many blocks of reads has the log answered alone in this stay.
    pub fn answered_alone(&mut self, blocks: u64) {
        self.alone.1 = blocks;
    }

    /// The same of all stays.
    pub fn read_hits_log(&self) -> u64 {
        self.alone.0 + self.alone.1
    }

    /// The engines' counters as guests see them. A read of which the log has a part counts by what
    /// the engines have found of all its blocks.
    pub fn of_guests(&self, engines: &VolumeCounters) -> VolumeCounters {
        let past = self.joined.unwrap_or_else(|| Requests::of(engines)).minus(self.left_out);
        let all = past.plus(self.guests);
        let alone = self.read_hits_log();
        VolumeCounters {
            reads: all.reads,
            writes: all.writes,
            flushes: all.flushes,
            trims: all.trims,
            zeroes: all.zeroes,
            blocks_read: engines.blocks_read + alone,
            blocks_written: all.blocks_written,
            read_hits: engines.read_hits + alone,
            ..*engines
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_on_through_changes_of_the_mode() {
        let mut engines =
            VolumeCounters { reads: 2, blocks_read: 6, misses: 6, ..Default::default() };
        let mut traffic = Traffic::default();
        for _ in 0..2 {
            let before = traffic.of_guests(&engines);
            traffic.joined(&engines);
            assert_eq!(traffic.of_guests(&engines), before, "nothing was asked for");
            traffic.guest_asks(&Op::<()>::Flush);
            // The destage, in parts of several shards, and a read that the log passes on.
            engines.writes += 7;
            engines.flushes += 3;
            (engines.reads, engines.blocks_read) = (engines.reads + 1, engines.blocks_read + 4);
            engines.misses += 4;
            traffic.answered_alone(3);
            let there = traffic.of_guests(&engines);
            assert_eq!((there.writes, there.flushes), (before.writes, before.flushes + 1));
            assert_eq!(there.blocks_read, before.blocks_read + 7);
            assert_eq!(there.read_hits + there.misses, there.blocks_read);
            traffic.left(&engines);
            assert_eq!(traffic.of_guests(&engines), there, "nor by leaving");
            engines.writes += 1;
            assert_eq!(traffic.of_guests(&engines).writes, there.writes + 1, "past the log");
        }
        assert_eq!(traffic.read_hits_log(), 6);
    }
}
