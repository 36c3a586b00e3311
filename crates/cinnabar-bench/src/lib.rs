//! Benchmarks: what storage does, with and without a cache.
//!
//! Never touches the terminal itself.
//!
//! * [`target`]: the storage under test, with the cache in front of it or without.
//! * [`drive`]: plays I/Os on a target, at their times or so many at a time.
//! * [`latency`], [`meter`]: what is counted of a play.
//! * [`spc1`]: the SPC-1-like benchmark.
//! * [`replay`]: a block trace on real storage; the desktop experiment.

pub mod drive;
pub mod latency;
pub mod meter;
pub mod replay;
pub mod report;
pub mod spc1;
pub mod target;
