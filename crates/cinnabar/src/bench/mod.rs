//! Benchmarks: what storage does, with and without a cache.
//!
//! Called by `cinnabar bench`.
//!
//! * [`probe`]: the latency of a device by size, operation and depth, and a model of it.

pub mod probe;
