//! Blocks that are not all alike: ranks by Zipf's law, and where the blocks of the ranks are.
//!
//! A table would need eight bytes a block; ranks are drawn by rejection instead (W. Hormann and G.
//! Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
//! 1996, as `rand_distr` has it), so a footprint of any size costs nothing.

use super::chance::Chance;
use rand_distr::{Distribution, Zipf};

/// Largest exponent that generators take: above, a handful of blocks is everything.
pub(super) const ALPHA_MAX: f64 = 4.0;

/// Blocks, some of which are asked for more often than others.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    ranks: Zipf<f64>,
    blocks: u64,
    places: Places,
}

impl Popularity {
    /// The k-th most popular of `blocks` blocks (at least one) has a probability proportional to
    /// 1 / k^alpha; 0 is all alike. `alpha` is 0 to [`ALPHA_MAX`].
    pub(super) fn new(blocks: u64, alpha: f64, chance: &mut Chance) -> Self {
        let ranks = Zipf::new(blocks as f64, alpha).expect("checked: blocks and an exponent");
        Self { ranks, blocks, places: Places::new(blocks, chance) }
    }

    /// Blocks of all ranks.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where a request of so many blocks begins, at most [`Popularity::blocks`]: at a multiple of its
    /// length, if it is not at the end, around a block by its popularity.
    pub(super) fn run(&self, blocks: u64, chance: &mut Chance) -> u64 {
        let block = self.block(chance);
        (block / blocks * blocks).min(self.blocks - blocks)
    }

    /// A block below `blocks`: popular ones are scattered over all of them.
    #[expect(clippy::cast_sign_loss, reason = "ranks begin at 1")]
    pub(super) fn block(&self, chance: &mut Chance) -> u64 {
        let rank = self.ranks.sample(chance.source()) as u64;
        self.places.of((rank - 1).min(self.blocks - 1))
    }
}

/// A permutation of numbers below a bound that needs no table: a Feistel network of four rounds over the
/// next even power of two, walked until it is below the bound (cycle walking), some 1 to 4 steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    end: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Places {
    /// A permutation of the numbers below `end`, which chance decides.
    pub(super) fn new(end: u64, chance: &mut Chance) -> Self {
        let bits = u64::BITS - end.saturating_sub(1).leading_zeros();
        Self {
            end,
            half_bits: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| chance.bits()),
        }
    }

    /// Where that number goes.
    ///
    /// # Panics
    /// If it is not below the end.
    pub(super) fn of(&self, number: u64) -> u64 {
        assert!(number < self.end, "only numbers below the end have a place");
        let mut place = self.step(number);
        // A cycle that leads out leads back in: at the latest to the number itself.
        while place >= self.end {
            place = self.step(place);
        }
        place
    }

    fn step(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            // The upper half of the product depends on all bits of the right half.
            let mixed = (right ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once() {
        for end in [1, 2, 3, 7, 64, 65, 1000, 4097] {
            let places = Places::new(end, &mut Chance::new(3, end));
            let mut taken: Vec<u64> = (0..end).map(|number| places.of(number)).collect();
            assert!(end < 64 || !taken.is_sorted(), "{end}");
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..end), "{end}");
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let end = 1_u64 << 20;
        let places = Places::new(end, &mut Chance::new(5, 0));
        let apart: u64 =
            (0..10_000).map(|number| places.of(number).abs_diff(places.of(number + 1))).sum();
        // Two places at random are a third of everything apart; the mean errs by 0.3 %.
        let mean = apart as f64 / 10_000.0 / end as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }
}
