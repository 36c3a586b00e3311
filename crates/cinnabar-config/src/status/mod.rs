//! The status of a daemon: what its data plane measures and counts for it, raw, and what that is for
//! operators, as JSON and as metrics.

#![forbid(unsafe_code)]

pub mod exposition;
pub mod faults;
pub mod latency;
pub mod metrics;
pub mod raw;
pub mod report;
pub mod traffic;
