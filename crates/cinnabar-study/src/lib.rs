//! The laboratory: what a cache would do, found without a server and without faults.
//!
//! * [`instant`]: the production engine with I/O that takes no time and moves no data; hit ratios,
//!   flash writes, CPU cost.
//! * [`hits`]: traces through policies, the production engine among them.
//! * [`analysis`], [`compare`]: reuse and sizes of recorded volumes; divisions of a cache against
//!   each other.
//! * [`timed`], [`sweep`], [`holland`]: flash caches in virtual time, many configurations at once, and
//!   a paper's experiments done again.

pub mod analysis;
pub mod compare;
pub mod hits;
pub mod holland;
pub mod instant;
pub mod rng;
pub mod sweep;
pub mod timed;
pub mod timed_plan;

pub use instant::{CacheSetup, InstantCache, Length};
