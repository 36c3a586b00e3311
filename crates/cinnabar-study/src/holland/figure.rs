//! Figures: lines of points over an axis, and what of an outcome they show.
//!
//! Made by the experiments; drawn and written out by the code that runs them.

use crate::timed::{Config, Outcome};

#[derive(Clone, Debug)]
pub struct Figure {
    /// For file names: `read-by-working-set`.
    pub slug: &'static str,
    /// As on the slides.
    pub title: String,
    /// What lies across.
    pub across: Across,
    /// What goes up.
    pub quantity: Quantity,
    /// Drawn in this order.
    pub lines: Vec<Line>,
}

/// What lies across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Bytes; more than one power of two of them.
    Bytes(&'static str),
    Share(&'static str),
    /// A time, in nanoseconds.
    Nanos(&'static str),
    /// A number of things.
    Count(&'static str),
    /// Nothing that can be measured: points have names.
    Names(&'static str),
}

/// What is read from an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Mean latency of reads, microseconds.
    ReadLatency,
    /// Mean latency of writes, microseconds.
    WriteLatency,
    /// Share of blocks written, 0 to 1, of which another host had a copy.
    Invalidations,
    /// Share of blocks read, 0 to 1, that were in RAM.
    RamHits,
    /// The same for flash.
    FlashHits,
    /// The same for neither.
    Misses,
    /// Reads and writes a virtual second, of all hosts.
    Rate,
    /// Blocks that the file server wrote for each that a host wrote.
    FilerWrites,
}

/// What belongs together.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where across; without meaning for names.
    pub x: f64,
    /// The same for people: "60 GB".
    pub label: String,
    /// What to run.
    pub config: Config,
}

impl Figure {
    /// Every configuration in it.
    pub fn configs(&self) -> impl Iterator<Item = &Config> {
        self.lines.iter().flat_map(|line| line.points.iter().map(|point| &point.config))
    }

    /// The same lines, another quantity.
    #[must_use]
    pub fn showing(&self, slug: &'static str, title: &str, quantity: Quantity) -> Self {
        Self { slug, title: title.to_owned(), quantity, ..self.clone() }
    }
}

impl Across {
    /// What is measured there.
    pub fn label(self) -> &'static str {
        match self {
            Self::Bytes(label)
            | Self::Share(label)
            | Self::Nanos(label)
            | Self::Count(label)
            | Self::Names(label) => label,
        }
    }
}

impl Quantity {
    /// The quantity's value in an outcome.
    pub fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Self::ReadLatency => outcome.reads.mean_ns() / 1e3,
            Self::WriteLatency => outcome.writes.mean_ns() / 1e3,
            Self::Invalidations => outcome.invalidation_share(),
            Self::RamHits => outcome.ram_share(),
            Self::FlashHits => outcome.flash_share(),
            Self::Misses => outcome.miss_share(),
            Self::Rate => {
                let done = outcome.reads.count() + outcome.writes.count();
                over(done as f64 * 1e9, outcome.simulated_ns as f64)
            }
            Self::FilerWrites => over(outcome.filer_writes as f64, outcome.block_writes as f64),
        }
    }

    /// Label of the axis, with its unit.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadLatency => "mean read latency",
            Self::WriteLatency => "mean write latency",
            Self::Invalidations => "writes that need an invalidation",
            Self::RamHits => "blocks read from RAM",
            Self::FlashHits => "blocks read from flash",
            Self::Misses => "blocks read from the file server",
            Self::Rate => "reads and writes a second",
            Self::FilerWrites => "file server writes a block written",
        }
    }

    /// For programs: with the unit last.
    pub fn key(self) -> &'static str {
        match self {
            Self::ReadLatency => "read_latency_us",
            Self::WriteLatency => "write_latency_us",
            Self::Invalidations => "invalidation_share",
            Self::RamHits => "ram_share",
            Self::FlashHits => "flash_share",
            Self::Misses => "miss_share",
            Self::Rate => "ios_per_second",
            Self::FilerWrites => "filer_writes_per_write",
        }
    }
}

fn over(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Line {
    /// A line from what lies across, its label and its configuration.
    pub fn new(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, String, Config)>,
    ) -> Self {
        let point = |(x, label, config)| Point { x, label, config };
        Self { name: name.into(), points: points.into_iter().map(point).collect() }
    }
}
