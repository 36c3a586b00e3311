//! A day of sixteen servers, synthetic: volumes that want a cache in very different ways.
//!
//! It stands for the 16 volumes of MSR Cambridge that others divide a cache among, which can't be
//! passed on here. `table` has every number. Written volumes go over what they wrote before and
//! seldom read it; read ones have long loops and scans; mixed ones read and write the same popular
//! blocks.

mod table;

pub use table::{Kind, Row, VOLUMES};

use super::blend::{self, Blend};
use super::chance::Chance;
use super::clock::Clock;
use super::error::{Error, check_number, check_range};
use super::lengths::Lengths;
use crate::record::Record;

const BLOCKS_PER_GIB: f64 = 262_144.0;
const US_PER_HOUR: u64 = 3_600_000_000;
const HOURS_OF_DAY: u64 = 24;
/// How much busier a volume is in its hours.
const BUSIER: f64 = 3.0;
/// The log's part of what is written.
const LOG_PART: f64 = 0.25;
/// A scan's part of the footprint.
const SCAN_PART: f64 = 0.1;
/// Longest trace, in days.
pub const DAYS_MAX: u32 = 366;
/// Least scale: the smallest volume has 1 MiB there.
pub const SCALE_MIN: f64 = 1.0 / 512.0;
/// Largest factor for footprints and rates.
pub const SCALE_MAX: f64 = 64.0;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Footprints and rates are multiplied by this; a day stays a day, and how often a block is
    /// touched stays the same.
    pub scale: f64,
    /// How many days, 1 to [`DAYS_MAX`].
    pub days: u32,
    /// Fixes everything that chance decides.
    pub seed: u64,
}

impl Default for Settings {
    /// A day at a tenth: 5 million requests.
    fn default() -> Self {
        Self { scale: 0.1, days: 1, seed: 1 }
    }
}

/// The requests of all volumes, in order of time.
#[derive(Debug)]
pub struct Sixteen {
    end_us: u64,
    volumes: Vec<Volume>,
}

#[derive(Debug)]
struct Volume {
    blend: Blend,
    clock: Clock,
    chance: Chance,
    busy: (u32, u32),
    /// Requests a second in busy hours.
    per_second: f64,
    next_us: u64,
}

impl Sixteen {
    /// The set at its midnight.
    ///
    /// # Errors
    /// A scale or a number of days out of range.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        check_number("a scale", settings.scale, SCALE_MIN, SCALE_MAX)?;
        check_range("days", settings.days.into(), 1, DAYS_MAX.into())?;
        let volume = |(number, row)| Volume::new(number, row, &settings);
        let end_us = u64::from(settings.days) * HOURS_OF_DAY * US_PER_HOUR;
        Ok(Self { end_us, volumes: (0..).zip(&VOLUMES).map(volume).collect() })
    }

    /// When it ends, in microseconds.
    pub const fn end_us(&self) -> u64 {
        self.end_us
    }
}

impl Iterator for Sixteen {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        // The first of those that are next at the same time.
        let volume = self.volumes.iter_mut().min_by_key(|volume| volume.next_us)?;
        (volume.next_us < self.end_us).then(|| volume.next())
    }
}

impl Volume {
    fn new(number: u32, row: &Row, settings: &Settings) -> Self {
        let mut chance = Chance::new(settings.seed, number.into());
        let blend = Blend::new(row.blend(number, settings.scale), &mut chance);
        // The mean over a day is the row's rate.
        let busy_hours = f64::from(row.busy.1 - row.busy.0);
        let weight = (busy_hours * BUSIER + (24.0 - busy_hours)) / 24.0;
        let per_second = row.per_second * settings.scale * BUSIER / weight;
        let clock = Clock::new();
        let mut volume = Self { blend, clock, chance, busy: row.busy, per_second, next_us: 0 };
        volume.wait();
        volume
    }

    fn next(&mut self) -> Record {
        let record = self.blend.next(self.next_us, &mut self.chance);
        self.wait();
        record
    }

    /// To the next request: a stream at the busy rate, thinned out in the other hours.
    fn wait(&mut self) {
        loop {
            self.next_us = self.clock.next_us(self.per_second, &mut self.chance);
            let hour = (self.next_us / US_PER_HOUR % HOURS_OF_DAY) as u32;
            if (self.busy.0..self.busy.1).contains(&hour) || self.chance.with(1.0 / BUSIER) {
                return;
            }
        }
    }
}

impl Row {
    pub fn footprint_blocks(&self, scale: f64) -> u64 {
        blocks(self.footprint_gib * BLOCKS_PER_GIB * scale)
    }

    fn blend(&self, volume: u32, scale: f64) -> blend::Settings {
        let all = self.footprint_blocks(scale);
        let share = |percent: u32| f64::from(percent) / 100.0;
        let part = |percent: u32| blocks(all as f64 * share(percent));
        let written = part(self.written_percent);
        let log = if self.log_percent > 0 { blocks(written as f64 * LOG_PART) } else { 0 };
        let looped = part(self.loop_percent);
        blend::Settings {
            volume,
            write_share: share(self.write_percent),
            written: (written - log, self.alpha),
            log: (log, share(self.log_percent)),
            read: (all - written - looped, self.alpha),
            read_back: share(self.read_back_percent),
            looped: (looped, share(self.looped_percent)),
            scan: (blocks(all as f64 * SCAN_PART), share(self.scanned_percent)),
            lengths: Lengths::default(),
        }
    }
}

/// A count of blocks, rounded down.
#[expect(clippy::cast_sign_loss, reason = "footprints and parts of them are not negative")]
fn blocks(count: f64) -> u64 {
    count as u64
}
