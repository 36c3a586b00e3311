//! What a run draws from: a seed, or bytes that a fuzzer has made.

use rand::{SeedableRng, TryRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::convert::Infallible;

/// See the module.
#[derive(Debug)]
pub(crate) struct Rng {
    /// One for each number; what comes behind them is drawn from the seed. The byte 0 is the smallest
    /// number: what is rare happens.
    bytes: std::vec::IntoIter<u8>,
    seeded: Xoshiro256PlusPlus,
}

impl Rng {
    pub(crate) fn seed_from_u64(seed: u64) -> Self {
        Self { bytes: Vec::new().into_iter(), seeded: SeedableRng::seed_from_u64(seed) }
    }

    /// Each number from one byte. Used by the fuzz target `write_log`.
    #[allow(dead_code)]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        Self { bytes: bytes.into_iter(), seeded: SeedableRng::seed_from_u64(0) }
    }
}

impl TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        match self.bytes.next() {
            Some(byte) => Ok(u32::from(byte) * 0x0101_0101),
            None => self.seeded.try_next_u32(),
        }
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        match self.bytes.next() {
            Some(byte) => Ok(u64::from(byte) * 0x0101_0101_0101_0101),
            None => self.seeded.try_next_u64(),
        }
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        self.seeded.try_fill_bytes(dst)
    }
}
