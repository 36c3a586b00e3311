//! The cache itself, sans-I/O: a single-owner state machine with events in and actions out.
//!
//! Called by two drivers: the daemon's io_uring loop (crate `cinnabar`) and the virtual driver
//! (crate `cinnabar-sim`). Start with [`seam`], the only way in and out.

pub mod config;
pub mod counters;
pub mod engine;
pub mod limits;
pub mod metadata;
pub mod plan;
pub mod seam;
pub mod units;
pub mod volume;

pub use config::{Config, Eviction};
pub use engine::Engine;
pub use seam::*;
