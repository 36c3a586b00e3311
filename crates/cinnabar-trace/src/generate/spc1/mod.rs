//! The SPC-1-like enterprise workload: eight streams for every business scaling unit over three
//! application storage units (ASUs), after Daniel and Faith ("A portable, open-source implementation
//! of the SPC-1 workload", IISWC 2005).
//!
//! It is *like* SPC-1, not SPC-1: results are not comparable with published SPC-1 results.

mod error;
mod sequential;
mod streams;
mod walk;

pub use error::Spc1Error;
pub use streams::{Mix, STREAMS, StreamRow};

use crate::error::TraceError;
use crate::generate::Chance;
use crate::record::{Op, Record};
use sequential::Run;
use streams::{Address, INTENSITIES_SUM};
use walk::{Region, Walker};

pub const BLOCK_BYTES: u64 = 4096;
/// I/Os a second of one business scaling unit.
pub const IOPS_PER_BSU: u32 = 50;
/// Business scaling units that share the state of their leaves.
pub const BSU_PER_CONTEXT: u32 = 100;
/// Business scaling units at most: a million I/Os a second.
pub const BSU_MAX: u32 = 20_000;
/// ASUs below this many blocks (80 MiB) make the walk degenerate.
pub const WALK_BLOCKS_MIN: u64 = 20_480;

/// What is to be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Business scaling units, 1 to [`BSU_MAX`].
    pub bsu: u32,
    /// Shares of reads.
    pub mix: Mix,
    /// Sizes of ASU1 to ASU3, in 4 KiB blocks.
    pub asu_blocks: [u64; 3],
    /// Determines all random numbers.
    pub seed: u64,
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// When it is to be issued, in ns since the start.
    pub at_ns: u64,
    /// Its row of [`STREAMS`].
    pub stream: u8,
    pub write: bool,
    pub asu: u8,
    /// First 4 KiB block within the ASU.
    pub block: u64,
    /// Length in blocks, 1 to 16.
    pub blocks: u32,
}

/// The workload: an endless iterator of I/Os in order of time.
///
/// Independent Poisson streams together are one Poisson stream whose I/Os belong to each with the
/// probability of its share; so there is one clock here and no queue of eight streams a unit.
#[derive(Debug)]
pub struct Generator {
    chance: Chance,
    settings: Settings,
    mean_gap_ns: f64,
    now_ns: f64,
    /// By context: what its streams share.
    contexts: Vec<Context>,
    /// By unit: positions of its streams.
    units: Vec<Unit>,
}

/// Leaves of the three regions: ASU1 at 15 %, ASU1 at 70 %, ASU2 at 47 %.
type Context = [Region; streams::WALKS];

/// The places of the streams of one business scaling unit.
#[derive(Clone, Debug, Default)]
struct Unit {
    walkers: [Option<Walker>; streams::WALKS],
    runs: [Option<Run>; streams::RUNS],
}

impl Settings {
    /// Says what can't be generated.
    ///
    /// # Errors
    /// [`Spc1Error`]: units out of range, an ASU without a leaf to walk on, or sizes that don't fit
    /// each other.
    pub fn check(&self) -> Result<(), Spc1Error> {
        error::check(self)
    }

    /// Groups of at most [`BSU_PER_CONTEXT`] units.
    pub fn contexts(&self) -> u32 {
        self.bsu.div_ceil(BSU_PER_CONTEXT)
    }

    /// Blocks of ASU1 and ASU2, which a cache is for; ASU3 is a log.
    pub fn cached_blocks(&self) -> u64 {
        self.asu_blocks[0] + self.asu_blocks[1]
    }
}

impl Generator {
    /// The workload of these settings, at its start.
    ///
    /// # Errors
    /// As [`Settings::check`].
    pub fn new(settings: Settings) -> Result<Self, Spc1Error> {
        settings.check()?;
        let regions: Context =
            streams::walks().map(|(asu, at)| Region::new(settings.asu_blocks[asu], at));
        let mean_gap_ns =
            1e9 / (f64::from(settings.bsu) * f64::from(IOPS_PER_BSU) * INTENSITIES_SUM);
        Ok(Self {
            chance: Chance::new(settings.seed, 1),
            mean_gap_ns,
            now_ns: 0.0,
            contexts: vec![regions; settings.contexts() as usize],
            units: vec![Unit::default(); settings.bsu as usize],
            settings,
        })
    }

    /// What it was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The time of the I/O that was drawn last, in ns.
    #[expect(clippy::cast_sign_loss, reason = "time only grows")]
    pub fn now_ns(&self) -> u64 {
        self.now_ns as u64
    }

    /// Goes on with the same streams at another rate: more or fewer units, from now on. New units
    /// begin as at a start; the places of those that go are forgotten.
    ///
    /// # Errors
    /// As [`Settings::check`]; nothing has changed then.
    pub fn set_bsu(&mut self, bsu: u32) -> Result<(), Spc1Error> {
        let settings = Settings { bsu, ..self.settings.clone() };
        let fresh = Self::new(settings)?;
        let mut contexts = fresh.contexts;
        contexts.iter_mut().zip(self.contexts.drain(..)).for_each(|(new, old)| *new = old);
        self.contexts = contexts;
        self.units.resize(bsu as usize, Unit::default());
        (self.settings, self.mean_gap_ns) = (fresh.settings, fresh.mean_gap_ns);
        Ok(())
    }

    /// The next I/O.
    pub fn next_io(&mut self) -> Io {
        self.now_ns += self.chance.exponential(self.mean_gap_ns);
        let unit = self.chance.below(u64::from(self.settings.bsu)) as usize;
        let index = streams::pick(&mut self.chance);
        let row = &STREAMS[index];
        let write = !self.chance.with(row.read_share(self.settings.mix));
        let asu_blocks = self.settings.asu_blocks[row.asu];
        let (block, blocks) = match row.address {
            Address::Uniform { align } => {
                let places = asu_blocks / u64::from(align);
                (self.chance.below(places) * u64::from(align), 1)
            }
            Address::Walk { walk } => {
                let region = &mut self.contexts[unit / BSU_PER_CONTEXT as usize][walk];
                let place = &mut self.units[unit].walkers[walk];
                let walker = place.get_or_insert_with(|| region.enter(&mut self.chance));
                (region.access(walker, write, &mut self.chance), 1)
            }
            Address::Sequential { run, from, reach, length } => {
                let blocks = sequential::draw_length(&mut self.chance);
                let place = &mut self.units[unit].runs[run];
                let bounds = sequential::Bounds::new(asu_blocks, from, reach, length);
                (bounds.advance(place, blocks, &mut self.chance), blocks)
            }
        };
        Io { at_ns: self.now_ns(), stream: index as u8, write, asu: row.asu as u8, block, blocks }
    }
}

impl Iterator for Generator {
    type Item = Io;

    fn next(&mut self) -> Option<Io> {
        Some(self.next_io())
    }
}

impl Io {
    /// As a line of a trace; ASU1 to ASU3 are volumes 0 to 2.
    pub fn record(&self) -> Record {
        Record {
            ts_us: self.at_ns / 1000,
            volume: u32::from(self.asu),
            op: if self.write { Op::Write } else { Op::Read },
            offset_bytes: self.block * BLOCK_BYTES,
            length_bytes: u64::from(self.blocks) * BLOCK_BYTES,
        }
    }
}

/// The workload as a trace that never ends, for whatever takes one.
pub fn records(generator: Generator) -> impl Iterator<Item = Result<Record, TraceError>> {
    generator.map(|io| Ok(io.record()))
}
