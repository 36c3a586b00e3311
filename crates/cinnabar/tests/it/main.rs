//! The real binary, started and asked from outside: bad input, operators' commands, its life.
//!
//! Started by `cargo test -p cinnabar`. Everything happens in temporary folders and on the loopback;
//! what a test starts it ends, by process id.

mod bad_input;
mod bad_requests;
mod block_device;
mod commands;
mod daemon;
mod demo;
mod frozen;
mod garbage;
mod history;
mod hostile_images;
mod http;
mod hung;
mod lab;
mod life;
mod live_cache;
mod log;
mod manager;
mod nbd;
mod offline;
mod offline_shards;
mod operators;
mod packaging;
mod record;
mod reload;
mod report;
mod rig;
mod signals;
mod terminal;
mod turning;
mod watch;
mod write_log;

use std::path::Path;

/// The program under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cinnabar"))
}
