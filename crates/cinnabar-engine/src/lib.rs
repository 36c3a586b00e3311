//! The cache itself, sans-I/O: a single-owner state machine with events in and actions out.
//!
//! Start with [`seam`], the only way in and out. It is a crate of its own, as are the bytes on disk
//! ([`metadata`]): who needs no more than these depends on them alone.

#![deny(unsafe_code)]

pub mod address_map;
pub mod bounds;
mod buffers;
pub mod config;
mod descriptors;
pub mod engine;
mod ghost;
mod inflight;
pub mod journal;
mod log;
pub mod mutant;
mod outbox;
pub mod prefetch;
mod probation;
mod regions;
mod rehearsal;
pub mod seam;
mod sequential;
pub mod shards;
mod store;
pub mod volume;

pub use crate::seam::{counters, health, limits, plan, units};
pub use cinnabar_format as metadata;
pub use cinnabar_format::descriptor::mix;

pub use bounds::{Bound, Bounds, Crossings};
pub use config::{Admission, Config, Endurance, Eviction};
pub use engine::{Engine, KeptBlock, KeptCursor, KeptPage, Phase, Phases};
pub use seam::*;
pub use store::AtRisk;
