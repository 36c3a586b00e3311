//! One volume with a loop, scans and a popular background: a workload on which replacement policies
//! differ.
//!
//! A loop a little larger than a cache is what LRU can't hold a single block of; scans push
//! everything else out; the background is worth keeping.

use super::blend::{self, Blend};
use super::chance::Chance;
use super::clock::{Clock, check_rate};
use super::error::{Error, check_number, check_range, check_share};
use super::lengths::Lengths;
use super::popularity::ALPHA_MAX;
use super::working_set::BLOCKS_MAX;
use crate::record::Record;

/// What is asked for. Loops and scans read 64 KiB at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Blocks of 4 KiB that are read in order, again and again.
    pub loop_blocks: u64,
    /// Share of the reads that go on with the loop.
    pub loop_share: f64,
    /// Blocks that a scan reads, from anywhere on the volume.
    pub scan_blocks: u64,
    /// Share of the reads that go on with a scan; what is left of the reads goes to the background.
    pub scan_share: f64,
    /// Blocks of the background, which by Zipf's law are read and written.
    pub zipf_blocks: u64,
    /// Zipf's exponent, 0 to 4.
    pub alpha: f64,
    /// Share of all requests that write; the background only.
    pub write_share: f64,
    /// Lengths of the background's requests.
    pub lengths: Lengths,
    /// Requests a second, a Poisson stream.
    pub per_second: f64,
    /// Fixes everything that chance decides.
    pub seed: u64,
}

impl Default for Settings {
    /// A loop of 1 GiB, scans of 256 MiB, 2 GiB of background.
    fn default() -> Self {
        Self {
            loop_blocks: 1 << 18,
            loop_share: 0.3,
            scan_blocks: 1 << 16,
            scan_share: 0.1,
            zipf_blocks: 1 << 19,
            alpha: 0.9,
            write_share: 0.2,
            lengths: Lengths::default(),
            per_second: 500.0,
            seed: 1,
        }
    }
}

/// The workload: an endless iterator in order of time.
#[derive(Debug)]
pub struct Mix {
    blend: Blend,
    per_second: f64,
    clock: Clock,
    chance: Chance,
}

impl Mix {
    /// The workload of these settings, at its start.
    ///
    /// # Errors
    /// A number out of range, or shares that are more than everything.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let mut chance = Chance::new(settings.seed, 0);
        let blend = blend::Settings {
            volume: 0,
            write_share: settings.write_share,
            written: (settings.zipf_blocks, settings.alpha),
            log: (0, 0.0),
            read: (0, 0.0),
            read_back: 1.0,
            looped: (settings.loop_blocks, settings.loop_share),
            scan: (settings.scan_blocks, settings.scan_share),
            lengths: settings.lengths,
        };
        let blend = Blend::new(blend, &mut chance);
        Ok(Self { blend, per_second: settings.per_second, clock: Clock::new(), chance })
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        let most = BLOCKS_MAX / 2;
        check_range("a background in blocks", self.zipf_blocks, self.lengths.most(), most)?;
        check_range("a loop in blocks", self.loop_blocks, 1, most)?;
        check_range("a scan in blocks", self.scan_blocks, 1, BLOCKS_MAX)?;
        check_share("a share of the loop", self.loop_share)?;
        check_share("a share of scans", self.scan_share)?;
        check_share("a share of writes", self.write_share)?;
        if self.loop_share + self.scan_share > 1.0 {
            return Err(Error::Shares("the shares of loop and scans"));
        }
        check_number("an exponent", self.alpha, 0.0, ALPHA_MAX)?;
        check_rate(self.per_second)
    }
}

impl Iterator for Mix {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let ts_us = self.clock.next_us(self.per_second, &mut self.chance);
        Some(self.blend.next(ts_us, &mut self.chance))
    }
}
