//! A cap on what a volume fills into flash, a second.
//!
//! No fill waits for it: a guest has its data already, and what is not filled is a later miss. So a block
//! beyond the cap stays in RAM for as long as probation keeps it, and is counted.

use crate::units::{BLOCK_BYTES, Instant};

/// Fills may be ahead of their time by so much, in ns: with it any second has at most 5 % more than the
/// cap, and a block.
const SLACK_NS: u64 = 50_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct FillCap {
    /// 0: there is no cap.
    bytes_a_second: u64,
    /// When the next block is due, in ns.
    due_ns: u64,
    /// Blocks that were not let through.
    pub(crate) capped_blocks: u64,
}

impl FillCap {
    /// Another cap from now on; 0 is none. Of what was filled ahead of its time nothing is remembered.
    pub(crate) const fn set(&mut self, bytes_a_second: u64) {
        if self.bytes_a_second != bytes_a_second {
            self.bytes_a_second = bytes_a_second;
            self.due_ns = 0;
        }
    }

    /// Whether no block may be filled now.
    pub(crate) const fn is_spent(&self, now: Instant) -> bool {
        self.bytes_a_second > 0 && self.due_ns > now.0.saturating_add(SLACK_NS)
    }

    /// Whether a block may be filled now; counts the one that may not.
    pub(crate) fn passes(&mut self, now: Instant) -> bool {
        if self.bytes_a_second == 0 {
            return true;
        }
        if self.is_spent(now) {
            self.capped_blocks += 1;
            return false;
        }
        let step = (BLOCK_BYTES * 1_000_000_000).div_ceil(self.bytes_a_second);
        self.due_ns = self.due_ns.max(now.0).saturating_add(step);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks let through of those asked for, one every `every` ns, in each of `seconds` seconds.
    fn passed(cap: &mut FillCap, seconds: u64, every: u64) -> Vec<u64> {
        (0..seconds)
            .map(|second| {
                let from = (second + 10) * 1_000_000_000;
                let times = (from..from + 1_000_000_000).step_by(every as usize);
                times.filter(|now| cap.passes(Instant(*now))).count() as u64
            })
            .collect()
    }

    #[test]
    fn any_second_is_within_5_percent_of_the_cap_and_what_is_beyond_is_counted() {
        for bytes_a_second in [1 << 20, 50_000_000, 1 << 30] {
            let mut cap = FillCap::default();
            cap.set(bytes_a_second);
            let most = bytes_a_second / BLOCK_BYTES;
            let every = 1_000_000_000 / (most * 3);
            let seconds = passed(&mut cap, 5, every);
            for blocks in &seconds {
                assert!(*blocks <= most + most / 20 + 1, "{blocks} of {most}");
                assert!(*blocks >= most - most / 100 - 1, "{blocks} of {most}");
            }
            let asked = 5 * 1_000_000_000_u64.div_ceil(every);
            assert_eq!(cap.capped_blocks, asked - seconds.iter().sum::<u64>());
        }
    }

    #[test]
    fn without_a_cap_all_pass_and_a_new_cap_counts_at_once() {
        let mut cap = FillCap::default();
        assert!((0..1000).all(|now| cap.passes(Instant(now))));
        cap.set(1);
        assert!(cap.passes(Instant(1000)), "the first block");
        assert!(!cap.passes(Instant(1_000_000_000)), "the next one is an hour ahead");
        cap.set(1);
        assert!(!cap.passes(Instant(1_000_000_000)), "the same cap forgets nothing");
        cap.set(1 << 20);
        assert!(cap.passes(Instant(1_000_000_000)));
    }
}
