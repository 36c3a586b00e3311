//! A host that loses its cache while the others keep theirs: what its warm-up costs it, and them.
//!
//! The measured part has three phases: before the loss; until the host that lost its cache finds
//! nearly as much of what it reads as before ([`report::WARM_SHARE`]); and after. [`settings`] says
//! what can be chosen and `check` what makes sense, `state` keeps the phases of each host and the
//! limit of its back-end I/O, `course` is where they meet the model, [`report`] is what is found and
//! [`stats`] its form for tables and JSON.

pub(super) mod check;
mod course;
pub mod report;
pub mod settings;
pub(super) mod state;
pub mod stats;
#[cfg(test)]
mod tests;

pub use report::LossReport;
pub use settings::LossSettings;
pub use stats::LossStats;
