//! The cache itself, sans-I/O: a single-owner state machine with events in and actions out.
//!
//! Start with [`seam`], the only way in and out.

#![deny(unsafe_code)]

pub mod address_map;
pub mod bounds;
mod buffers;
pub mod config;
pub mod counters;
mod descriptors;
pub mod engine;
mod ghost;
pub mod health;
mod inflight;
pub mod journal;
pub mod limits;
mod log;
pub mod metadata;
pub mod mutant;
mod outbox;
pub mod plan;
pub mod prefetch;
mod probation;
mod rehearsal;
pub mod seam;
mod sequential;
mod store;
pub mod units;
pub mod volume;

pub use bounds::{Bound, Bounds, Crossings};
pub use config::{Admission, Config, Endurance, Eviction};
pub use descriptors::mix;
pub use engine::{Engine, Phase, Phases};
pub use seam::*;
pub use store::AtRisk;
