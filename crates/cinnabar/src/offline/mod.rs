//! Offline tools for a cache device or a write log that no daemon uses: check it, dump it, repair what
//! is safe, bring writes to their back end.
//!
//! Everything is read with the engine's own decoders, in pieces of a bounded size, and nothing that
//! is on the device is taken at its word: a hostile image costs time, never a panic. Nothing here
//! touches the terminal; long work tells how far it is through [`Watch`].

pub mod check;
pub mod checkpoints;
pub mod chunks;
pub mod dump;
mod error;
pub mod image;
pub mod journal;
pub mod regions;
pub mod repair;
pub mod report;
pub mod sum;
pub mod superblocks;
pub mod write_log;

pub use error::OfflineError;
pub use image::{Image, Source};
pub use regions::Regions;

/// Is told how far long work is.
pub trait Watch {
    /// `done` of `of` steps of `what` are done; called often.
    fn at(&mut self, what: &'static str, done: u64, of: u64);

    /// What follows is about shard `shard` of `of`; not called if there is only one.
    fn shard(&mut self, _shard: u32, _of: u32) {}
}

/// Nobody watches.
impl Watch for () {
    fn at(&mut self, _: &'static str, _: u64, _: u64) {}
}
