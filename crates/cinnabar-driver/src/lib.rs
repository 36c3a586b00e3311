//! The parts of a driver of the engine that hold no clock, no file and no thread.
//!
//! The daemon, the library for embedding and the fault simulator run this code; what differs between
//! them comes in through doors: the time is an argument, the port is a trait ([`ShardIo`]) or a token,
//! a wake-up is an instant that the caller waits for.
//!
//! * [`pool`]: all shards, which any thread runs, one at a time each.
//! * [`shard`]: one engine with its events, its wake-up and the binding of its volumes.
//! * [`change_proof`]: what a recorded change proof says of the time since.
//! * [`clone_map`]: which objects of a clone are its own, and which reads its parent answers.
//! * [`device_life`]: the cache device: opening, loss, replacement, letting go.
//! * [`qos_queue`]: where back-end I/O waits for its turn among the volumes of a group.
//! * [`health_news`]: how a shard is, as several threads tell it.
//! * [`held`]: completions that are delivered later.
//! * [`io_tracker`]: the I/Os under way: their owners, their deadlines, completions held back.
//! * [`lost_ranges`]: what a restarted server may have lost, until it is dropped from the cache.
//! * [`ownership`]: which of two hosts serves a volume that moves.
//! * [`pending_proofs`]: change proofs and generations asked for, and what can be done together.
//! * [`silence`]: how long something has shown no sign, without the time in which nobody looked.
//! * [`slow_work`]: work that may block: what of it may begin now.
//! * [`volume_life`]: a volume from its attach to its end: commands in their order, I/O under way.
//! * [`write_mode`]: how a volume comes to the write log and leaves it.

#![deny(unsafe_code)]

pub mod change_proof;
pub mod clone_map;
pub mod device_life;
pub mod health_news;
pub mod held;
pub mod io_count;
pub mod io_tracker;
pub mod lost_ranges;
pub mod ownership;
pub mod pending_proofs;
pub mod pool;
pub mod qos;
pub mod qos_queue;
pub mod returning;
pub mod shard;
pub mod silence;
pub mod slow_work;
mod sync;
mod volume_end;
pub mod volume_life;
mod warmth;
pub mod write_mode;

pub use change_proof::ChangeProof;
pub use clone_map::CloneMap;
pub use device_life::{DeviceLife, DevicePhase, DeviceStep};
pub use io_count::IoCount;
pub use io_tracker::{IoTracker, TrackedIo};
pub use ownership::Ownership;
pub use pending_proofs::PendingProofs;
pub use pool::ShardPool;
pub use qos_queue::QosQueue;
pub use shard::{Binding, Shard, ShardIo};
pub use silence::Silence;
pub use slow_work::SlowWork;
pub use volume_end::{EndError, EndStep};
pub use volume_life::{Phase, VolumeLife};
pub use write_mode::WriteMode;
