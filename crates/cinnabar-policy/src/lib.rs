//! What a cache would do for a workload: replacement policies without a cache, pure.
//!
//! References come from a trace as keys; [`intern`] turns keys into dense block numbers once, and
//! everything behind it is arrays: no hashing for each policy and size. [`replacement`] has one
//! policy a file, [`simulation`] runs one as a trace is read, [`counts`] says what writes do and
//! what is counted; [`reuse`] finds, in one pass, what an LRU cache of every size would do. No
//! clock, no file, no thread: same references, same counts.

#![deny(unsafe_code)]

pub mod access;
mod bit_set;
pub mod counts;
pub mod endurance;
pub mod engine_model;
pub mod intern;
pub mod monitor;
mod names;
pub mod planning;
mod queue;
pub mod replacement;
pub mod reuse;
pub mod simulate;
pub mod simulation;
pub mod sizing;

pub use access::Access;
pub use counts::{Counts, Writes};
pub use intern::{Interner, TooManyBlocks};
pub use monitor::Monitor;
pub use names::UnknownName;
pub use replacement::{Future, Outcome, Policy, Replacement, TooLong};
pub use reuse::{ReadOnly, Sampled, WriteBack};
pub use simulate::simulate;
pub use simulation::Simulation;
