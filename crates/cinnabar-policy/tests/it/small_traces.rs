//! Small random traces with reuse of every kind: the same for the same seed.

use cinnabar_policy::Access;

/// Chance from a seed (splitmix64).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % u64::from(end)) as u32
    }
}

/// Up to 300 accesses of up to 30 blocks: pieces of loops, of a few hot blocks, and of anything.
pub(crate) fn small_trace(seed: u64) -> Vec<Access> {
    let mut rng = Rng::new(seed);
    let blocks = 1 + rng.below(30);
    let length = rng.below(300) as usize;
    let write_percent = [0, 10, 50, 90][rng.below(4) as usize];
    let mut accesses = Vec::new();
    while accesses.len() < length {
        let (kind, first) = (rng.below(3), rng.below(blocks));
        for step in 0..rng.below(20) {
            let block = match kind {
                0 => (first + step) % blocks,
                1 => (first + rng.below(3)) % blocks,
                _ => rng.below(blocks),
            };
            accesses.push(Access::new(block, rng.below(100) < write_percent));
        }
    }
    accesses
}
