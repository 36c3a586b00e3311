//! What a run has met: moments of the engine (which kinds of I/O are under way, whether the index is
//! being loaded, ...), two at a time, with what happened in them.
//!
//! Lines of code that ran tell little of a state machine: each line of a checkpoint and of a rebase has
//! run long before the two meet. So a fuzzer is given these, too.

use crate::stamp::mix;

/// Counters that a fuzzer watches.
pub const FEATURES: usize = 1 << 16;

/// A set of features.
#[derive(Clone, Debug)]
pub struct Coverage {
    bits: Vec<u64>,
    /// Moves made, and events that the machines have taken.
    pub moves: u64,
    /// See above.
    pub events: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { bits: vec![0; FEATURES / 64], moves: 0, events: 0 }
    }
}

impl Coverage {
    /// `event` happened while these moments lasted, one bit each.
    pub(super) fn met(&mut self, event: u64, moments: u64) {
        let mut first = moments;
        self.add(event << 14);
        while first != 0 {
            let one = u64::from(first.trailing_zeros()) + 1;
            first &= first - 1;
            let mut second = first;
            self.add(event << 14 | one << 7);
            while second != 0 {
                let other = u64::from(second.trailing_zeros()) + 1;
                second &= second - 1;
                self.add(event << 14 | one << 7 | other);
            }
        }
    }

    fn add(&mut self, feature: u64) {
        let index = mix(feature) as usize % FEATURES;
        self.bits[index / 64] |= 1 << (index % 64);
    }

    /// The features met.
    pub fn features(&self) -> impl Iterator<Item = usize> {
        let words = self.bits.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
