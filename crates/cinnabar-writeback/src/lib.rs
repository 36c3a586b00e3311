//! The write log: writes are acknowledged when they are on the SSD, and reach the back end in the
//! guest's order.
//!
//! It stands above the engine, as a layer of its own with a device of its own: what is dirty is here,
//! what the back end has is the engine's matter. Like the engine it is a state machine that never
//! waits and does no I/O. `docs/design/write-back.md` has the promises and the formats.

#![deny(unsafe_code)]

mod append;
pub mod bounds;
mod commit;
mod destage;
pub mod format;
mod group;
mod log;
pub mod memory;
pub mod mirror;
pub mod mutant;
mod pace;
mod place;
mod places;
mod ranges;
mod read;
mod record;
pub mod recover;
mod retire;
pub mod seam;
mod segments;
mod slots;
mod throttle;
mod volume;

pub use group::GroupStatus;
pub use log::{Config, Counters, READS_MAX, WriteLog};
pub use pace::{PaceReason, PaceStatus};
pub use place::Status;
pub use seam::{Action, Command, Done, EngineId, Event, LogVolumeId, Misses, Refusal};
