//! One volume whose blocks follow Zipf's law: the k-th most popular is asked for 1 / k^alpha as often.
//!
//! Popular blocks are scattered over the volume; a request of several blocks begins at a multiple of
//! its length.

use super::chance::Chance;
use super::clock::{Clock, check_rate};
use super::error::{Error, check_number, check_range, check_share};
use super::lengths::Lengths;
use super::popularity::{ALPHA_MAX, Popularity};
use super::request;
use super::working_set::BLOCKS_MAX;
use crate::record::Record;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Blocks of 4 KiB that can be asked for.
    pub footprint_blocks: u64,
    /// Zipf's exponent, 0 (all alike) to 4.
    pub alpha: f64,
    /// Share of requests that write, 0 to 1.
    pub write_share: f64,
    /// Lengths of requests.
    pub lengths: Lengths,
    /// Requests a second, a Poisson stream.
    pub per_second: f64,
    /// Fixes everything that chance decides.
    pub seed: u64,
}

impl Default for Settings {
    /// 4 GiB, exponent 0.9, a third of it writes, 500 a second.
    fn default() -> Self {
        Self {
            footprint_blocks: 1 << 20,
            alpha: 0.9,
            write_share: 0.33,
            lengths: Lengths::default(),
            per_second: 500.0,
            seed: 1,
        }
    }
}

/// The workload: an endless iterator in order of time.
#[derive(Debug)]
pub struct Zipf {
    settings: Settings,
    popularity: Popularity,
    clock: Clock,
    chance: Chance,
}

impl Zipf {
    /// The workload of these settings, at its start.
    ///
    /// # Errors
    /// A number out of range, or a footprint that the longest request does not fit into.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let least = settings.lengths.most();
        check_range("a footprint in blocks", settings.footprint_blocks, least, BLOCKS_MAX)?;
        check_number("an exponent", settings.alpha, 0.0, ALPHA_MAX)?;
        check_share("a share of writes", settings.write_share)?;
        check_rate(settings.per_second)?;
        let mut chance = Chance::new(settings.seed, 0);
        let popularity = Popularity::new(settings.footprint_blocks, settings.alpha, &mut chance);
        Ok(Self { settings, popularity, clock: Clock::new(), chance })
    }
}

impl Iterator for Zipf {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let chance = &mut self.chance;
        let ts_us = self.clock.next_us(self.settings.per_second, chance);
        let write = chance.with(self.settings.write_share);
        let blocks = self.settings.lengths.pick(chance);
        let first = self.popularity.run(blocks, chance);
        Some(request(ts_us, 0, write, first, blocks))
    }
}
