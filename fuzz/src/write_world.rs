//! The simulated world of the write log's own tests.

#![allow(dead_code, reason = "the tests use the rest")]

#[path = "../../crates/cinnabar-writeback/tests/it/crash.rs"]
mod crash;
#[path = "../../crates/cinnabar-writeback/tests/it/disk.rs"]
mod disk;
#[path = "../../crates/cinnabar-writeback/tests/it/disks.rs"]
mod disks;
#[path = "../../crates/cinnabar-writeback/tests/it/guest.rs"]
mod guest;
#[path = "../../crates/cinnabar-writeback/tests/it/guided.rs"]
pub(crate) mod guided;
#[path = "../../crates/cinnabar-writeback/tests/it/host.rs"]
mod host;
#[path = "../../crates/cinnabar-writeback/tests/it/look.rs"]
mod look;
#[path = "../../crates/cinnabar-writeback/tests/it/memory.rs"]
mod memory;
#[path = "../../crates/cinnabar-writeback/tests/it/memory_file.rs"]
mod memory_file;
#[path = "../../crates/cinnabar-writeback/tests/it/mirror.rs"]
mod mirror;
#[path = "../../crates/cinnabar-writeback/tests/it/oracle.rs"]
mod oracle;
#[path = "../../crates/cinnabar-writeback/tests/it/rng.rs"]
mod rng;
#[path = "../../crates/cinnabar-writeback/tests/it/settings.rs"]
mod settings;
#[path = "../../crates/cinnabar-writeback/tests/it/ssd.rs"]
mod ssd;
#[path = "../../crates/cinnabar-writeback/tests/it/world.rs"]
mod world;
