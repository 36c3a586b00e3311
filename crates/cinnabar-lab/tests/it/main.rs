//! The real laboratory, started and asked from outside.
//!
//! Started by `cargo test -p cinnabar-lab`. Everything happens in temporary folders; what a test starts
//! it ends, by process id.

mod analyze;
mod commands;
mod compare;
mod demo_load;
#[path = "../../../cinnabar-trace/tests/it/files.rs"]
mod files;
mod replay;
#[path = "../../../cinnabar/tests/it/rig.rs"]
mod rig;
mod simulate;
mod simulate_hits;
mod simulate_holland;
mod simulate_timed;
mod spc1;
#[path = "../../../cinnabar/tests/it/terminal.rs"]
mod terminal;
mod trace;
mod trace_bad;
mod trace_commands;

use std::path::Path;

/// The program under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cinnabar-lab"))
}
