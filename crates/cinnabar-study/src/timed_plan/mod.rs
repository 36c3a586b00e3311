//! Plans of timed simulations: a configuration, and axes along which it is varied.
//!
//! A plan is a TOML file; `docs/guide/timed-simulator.md` has every key. [`load`] reads it, `keys`
//! says what there is to set, `value` what a value may look like, `axes` makes points of axes,
//! `check` looks at each of them before anything is simulated, `survey` looks through a trace.

mod at;
mod axes;
mod check;
pub mod keys;
mod read;
mod survey;
#[cfg(test)]
mod tests;
mod value;

pub use axes::{Axis, POINTS_MAX, Point};
pub use check::{check, needed};
pub use read::{Setting, load};
pub use survey::{Survey, SurveyError, survey};
pub use value::{Literal, Wrong};

use crate::timed::{Config, Pace};
use std::path::PathBuf;

/// A plan, read but not yet looked at as a whole.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file it came from.
    pub file: PathBuf,
    /// What it is about, if it says so.
    pub title: Option<String>,
    /// What all points have in common.
    pub base: Config,
    /// Where each of [`keys::KEYS`] was set.
    pub origins: Vec<Origin>,
    /// The requests, if they are not made up.
    pub trace: Option<TraceInput>,
    /// What is varied, the first one slowest.
    pub axes: Vec<Axis>,
}

/// Where a key was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it has its default.
    #[default]
    Default,
    /// In this line of the plan.
    Line(usize),
    /// By `--set`.
    Flag,
}

/// The trace of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInput {
    /// The file.
    pub path: PathBuf,
    /// When its requests are asked for.
    pub pace: Pace,
    /// Where it was set.
    pub origin: Origin,
}

impl Plan {
    /// The keys that mean something: with a trace, not those of requests that are made up.
    pub fn keys(&self) -> impl Iterator<Item = &'static keys::Key> {
        let made_up = self.trace.is_none();
        keys::KEYS.iter().filter(move |key| made_up || !keys::MADE_UP.contains(&key.name))
    }
}
