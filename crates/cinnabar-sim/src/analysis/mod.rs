//! Traces through the policy crate: intervals, plans, and what they come to.
//!
//! Called by `cinnabar analyze`.

pub mod intervals;

pub use intervals::{Every, Interval, Intervals};
