//! Workloads made from a seed: block traces that need no file.
//!
//! Called by the benchmarks, the simulator and `cinnabar trace generate`. The same generator, settings
//! and seed give the same requests on every machine.

mod chance;
pub mod desktop;
mod error;
pub mod spc1;
pub mod working_set;

pub(crate) use chance::Chance;
pub use error::Error;
