//! Several engines that are one cache: each owns a fixed part of every volume's blocks, a region of
//! the cache device and nothing else.
//!
//! [`Router`] splits what guests and operators ask and joins the answers; it is all that a driver
//! with a thread for each engine needs. [`Sharded`] is a router with its engines behind the seam of
//! a single one, for drivers with one thread.
//!
//! # What holds across shards
//! * A block always belongs to the same shard ([`ShardMap`]), so everything the engine promises of
//!   a
//!   block it promises here. A request across a boundary is atomic by block, as on any disk.
//! * What is split is under way in a bounded number of parts, whatever guests ask for. What overlaps
//!   parts that are still to be sent waits, in order of arrival, so a split request is as much in
//!   its place as a whole one.
//! * A flush is answered when every shard's is, so it covers every write replied to before.
//! * A volume is attached, detached and sealed in all shards or none; its proofs are recorded by
//!   each, so the newest of all counts ([`Belief::of_all`](crate::volume::Belief::of_all)).
//! * A device that one shard lost is given up by all.

#![deny(unsafe_code)]

mod commands;
#[cfg(test)]
mod fairness;
mod io_name;
mod losses;
mod map;
mod requests;
mod router;
mod sharded;
#[cfg(test)]
mod tests;
mod waiting;

pub use io_name::name_io;
pub use losses::{Losses, OWN_COMMAND};
pub use map::ShardMap;
pub use router::{Owner, Router};
pub use sharded::Sharded;

use crate::Event;

/// An event for one of the engines.
#[derive(Debug)]
pub struct Routed<P> {
    /// Which.
    pub shard: u32,
    /// What.
    pub event: Event<P>,
}
