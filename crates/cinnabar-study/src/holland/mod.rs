//! The published results of Holland, Angelino, Wald and Seltzer, "Flash caching on the storage
//! client" (USENIX ATC 2013), as experiments: which configurations, which figures, which claims.
//!
//! Nothing here runs anything: an experiment is a list of [`Config`] with what is to be read from
//! their outcomes. One more experiment is not in the paper: the file server with a queue
//! (`loaded-filer`), which the published model leaves out.
//!
//! - [`experiments`]: one file each
//! - [`figure`]: lines of points, and the quantity they show
//! - [`check`]: claims as bounds on what was measured
//! - [`target`]: values of an independent model, with what may lie between
//! - [`measured`]: the outcomes, by configuration

pub mod check;
pub mod experiments;
pub mod figure;
pub mod measured;
pub mod target;

pub use check::{Bound, Check, Formula};
pub use figure::{Across, Figure, Line, Point, Quantity};
pub use measured::Measured;
pub use target::Target;

use crate::timed::Config;
use crate::timed::config::BLOCKS_PER_GIB;

/// What all experiments have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Divides all sizes and the periods of syncers.
    pub scale: u32,
    /// Fixes what chance decides.
    pub seed: u64,
}

/// One question, with all that answers it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// For the command line: `working-set`.
    pub name: &'static str,
    /// Title of the experiment.
    pub title: &'static str,
    /// The published result; for `loaded-filer`, its subject.
    pub published: &'static str,
    /// Which of the six results it is, if it is one.
    pub claim: Option<u8>,
    /// What is drawn.
    pub figures: Vec<Figure>,
    /// What must hold, and what is worth telling.
    pub checks: Vec<Check>,
    /// What an independent model found.
    pub targets: Vec<Target>,
}

impl Experiment {
    /// Every configuration that it needs, each once, in order of first use.
    pub fn configs(&self) -> Vec<Config> {
        let drawn = self.figures.iter().flat_map(Figure::configs);
        let aimed = self.targets.iter().map(|target| &target.config);
        distinct(drawn.chain(aimed).chain(self.checks.iter().flat_map(Check::configs)))
    }
}

/// Each configuration once, in order of first use.
pub fn distinct<'a>(configs: impl Iterator<Item = &'a Config>) -> Vec<Config> {
    let mut found: Vec<Config> = Vec::new();
    for config in configs {
        if !found.contains(config) {
            found.push(*config);
        }
    }
    found
}

impl Setup {
    /// The base configuration: 60 GB of working set, 8 GB of RAM, 64 GB of flash.
    fn base(self) -> Config {
        Config { scale: self.scale, seed: self.seed, ..Config::default() }
    }

    /// The same with another working set and another flash cache, in GiB.
    fn sized(self, working_set_gib: u64, flash_gib: u64) -> Config {
        Config {
            working_set_blocks: working_set_gib * BLOCKS_PER_GIB,
            flash_blocks: flash_gib * BLOCKS_PER_GIB,
            ..self.base()
        }
    }
}
