//! The write log in its simulated world: bytes draw what happens, the oracle looks at the back end after
//! each of its effects.
//!
//! The world is that of the crate's own simulation. The first bytes draw how the run is.

#![no_main]
#![allow(dead_code)]

#[path = "../../crates/cinnabar-writeback/tests/it/crash.rs"]
mod crash;
#[path = "../../crates/cinnabar-writeback/tests/it/disk.rs"]
mod disk;
#[path = "../../crates/cinnabar-writeback/tests/it/guest.rs"]
mod guest;
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

use rng::Rng;
use settings::Settings;
use world::World;

/// Bytes for the settings, and of these for the memory's.
const SETTINGS: usize = 56;
const MEMORY: usize = 8;
/// Bytes that a step takes, more or less; what they don't reach is drawn from a fixed seed.
const STEP: usize = 4;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((settings, events)) = bytes.split_at_checked(SETTINGS) else { return };
    let (memory, settings) = settings.split_at(MEMORY);
    let mut settings = Settings::draw(&mut Rng::of_bytes(settings), &mut Rng::of_bytes(memory));
    settings.steps = (events.len() / STEP).min(1_500) as u32;
    if let Err(what) = World::with(1, Rng::of_bytes(events), &settings).run() {
        panic!("{what}");
    }
});
