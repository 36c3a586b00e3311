//! Reuse analysis: what an LRU cache of every size would do, in one pass.
//!
//! Exact, or from a sample ([`sampled`]), whose measure the exact one is. A **distance** is the
//! number of other blocks used since; a reuse at distance d is a hit in every cache of more than d
//! blocks. [`write_back`] is for caches that keep what is written, [`read_only`] for those that drop
//! it; memory is bounded by different blocks, not by accesses.

pub mod curve;
pub mod estimate;
mod hole_stack;
pub mod mix;
mod places;
pub mod read_only;
pub mod sampled;
mod stack;
mod window;
pub mod write_back;

pub use curve::{Curve, Distances};
pub use estimate::Estimate;
pub use mix::Mix;
pub use read_only::{ReadOnly, ReadOnlyCurves};
pub use sampled::{Filter, Sampled, SampledCurves};
pub use write_back::{WriteBack, WriteBackCurves};
