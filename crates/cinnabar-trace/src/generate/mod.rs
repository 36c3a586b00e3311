//! Workloads made from a seed: block traces that need no file.
//!
//! Called by the benchmarks, the simulator and `cinnabar trace generate`. The same generator, settings
//! and seed give the same requests on every machine.

mod chance;
pub mod desktop;
pub mod spc1;

pub(crate) use chance::Chance;
