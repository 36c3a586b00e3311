//! Numbers that look random and repeat for the same seed.

/// A generator (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The same numbers for the same `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// A random number.
    pub fn roll(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The upper bits are the better ones.
        (self.roll() >> 16) % end
    }
}
