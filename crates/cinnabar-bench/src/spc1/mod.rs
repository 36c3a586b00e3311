//! The SPC-1-like benchmark: response time and rate of storage under eight streams a business scaling
//! unit, with the cache or without.
//!
//! A single run ([`run()`]), a search for the highest rate within a limit ([`find_max()`]), and the
//! engine alone ([`mock()`]).

mod error;
mod find_max;
mod mock;
mod report;
mod run;
mod steps;
mod warm;

pub use error::BenchError;
pub use find_max::{MaxReport, Maximum, Search, find_max};
pub use mock::{MockReport, mock};
pub use report::{CacheReport, Report, ServerReport, StreamReport};
pub use run::{Progress, run};
pub use steps::Step;

use crate::drive::Timed;
use crate::target::{CacheOptions, UnitSpec, survey};
use cinnabar_trace::generate::spc1::{BLOCK_BYTES, Generator, Mix, Settings};
use std::time::Duration;

pub const ASUS: usize = 3;
/// Mean response time that SPC-1 allows.
pub const LIMIT: Duration = Duration::from_millis(30);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// ASU1 to ASU3: what each is laid over.
    pub asus: [Vec<String>; ASUS],
    /// Business scaling units; 50 I/Os a second each.
    pub bsu: u32,
    /// How long.
    pub length: Duration,
    /// Whose shares of reads.
    pub mix: Mix,
    /// Fixes every I/O.
    pub seed: u64,
    /// The cache, if there is to be one.
    pub cache: Option<CacheOptions>,
    /// Length of a row of time.
    pub period: Duration,
}

impl Plan {
    /// The ASUs as units of a target. The log bypasses the cache, as in pblio.
    pub fn units(&self) -> [UnitSpec; ASUS] {
        std::array::from_fn(|asu| UnitSpec {
            name: format!("asu{}", asu + 1),
            places: self.asus[asu].clone(),
            read_only: false,
            cached: asu < 2,
        })
    }

    /// Looks at all storage, and says what can't be run on it before anything is written.
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn check(&self) -> Result<Settings, BenchError> {
        let sizes = survey(&self.units())?;
        let asu_blocks = std::array::from_fn(|asu| sizes[asu] / BLOCK_BYTES);
        let settings = Settings { bsu: self.bsu, mix: self.mix, asu_blocks, seed: self.seed };
        settings.check()?;
        Ok(settings)
    }
}

/// The workload's I/Os until a time of its own.
struct Source<'a> {
    generator: &'a mut Generator,
    until_ns: u64,
    /// The log is left out.
    without_log: bool,
}

impl Iterator for Source<'_> {
    type Item = Result<Timed, std::convert::Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let io = self.generator.next_io();
            if io.at_ns > self.until_ns {
                return None;
            }
            if self.without_log && usize::from(io.asu) == ASUS - 1 {
                continue;
            }
            return Some(Ok(Timed {
                at_ns: io.at_ns,
                unit: usize::from(io.asu),
                write: io.write,
                offset: io.block * BLOCK_BYTES,
                len: u64::from(io.blocks) * BLOCK_BYTES,
                stream: usize::from(io.stream),
            }));
        }
    }
}
