//! Workloads made from a seed: block traces that need no file.
//!
//! The same generator, settings and seed give the same requests on every machine.

mod blend;
pub mod boot_storm;
mod chance;
mod clock;
pub mod demo;
pub mod desktop;
mod error;
pub mod file_server;
mod lengths;
pub mod mix;
mod popularity;
pub mod sixteen;
pub mod spc1;
pub mod working_set;
pub mod zipf;

pub(crate) use chance::Chance;
pub use error::Error;
pub use lengths::{LENGTH_BLOCKS_MAX, Lengths};

use crate::record::{Op, Record};
use working_set::BLOCK_BYTES;

/// A request of whole blocks.
const fn request(ts_us: u64, volume: u32, write: bool, first: u64, blocks: u64) -> Record {
    Record {
        ts_us,
        volume,
        op: if write { Op::Write } else { Op::Read },
        offset_bytes: first * BLOCK_BYTES,
        length_bytes: blocks * BLOCK_BYTES,
    }
}
