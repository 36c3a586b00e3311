//! The real binary, started and asked from outside: bad input, operators' commands, its life.
//!
//! Started by `cargo test -p cinnabar`. Everything happens in temporary folders and on the loopback;
//! what a test starts it ends, by process id.

mod analyze;
mod bad_input;
mod bad_requests;
mod block_device;
mod commands;
mod compare;
#[path = "../../../cinnabar-trace/tests/it/files.rs"]
mod files;
mod garbage;
mod history;
mod hostile_images;
mod http;
mod hung;
mod life;
mod live_cache;
mod manager;
mod nbd;
mod offline;
mod offline_shards;
mod operators;
mod packaging;
mod probe;
mod record;
mod reload;
mod replay;
mod report;
mod rig;
mod simulate;
mod simulate_hits;
mod simulate_holland;
mod simulate_timed;
mod spc1;
mod trace;
mod trace_bad;
mod trace_commands;
mod watch;
mod write_log;
