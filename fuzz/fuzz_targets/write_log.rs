//! The write log in its simulated world: bytes draw what happens, the oracle looks at the back end after
//! each of its effects.
//!
//! The world is that of the crate's own simulation. The first bytes draw how the run is.
//! `CINNABAR_GUIDED=FILE CINNABAR_TRACE=1 cargo test -p cinnabar-writeback --test it every_input -- --nocapture`
//! says what happens in an input.

#![no_main]
#![allow(dead_code)]

#[path = "../../crates/cinnabar-writeback/tests/it/crash.rs"]
mod crash;
#[path = "../../crates/cinnabar-writeback/tests/it/disk.rs"]
mod disk;
#[path = "../../crates/cinnabar-writeback/tests/it/guest.rs"]
mod guest;
#[path = "../../crates/cinnabar-writeback/tests/it/guided.rs"]
mod guided;
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

use cinnabar_writeback::mutant::Mutants;
use std::sync::LazyLock;

/// The deliberate bug to be looked for.
static MUTANTS: LazyLock<Mutants> = LazyLock::new(mutants);

#[cfg(feature = "mutants")]
fn mutants() -> Mutants {
    use cinnabar_writeback::mutant::Mutant;
    let Ok(name) = std::env::var("CINNABAR_MUTANT") else { return Mutants::default() };
    let found = Mutant::ALL.iter().find(|mutant| format!("{mutant:?}") == name);
    Mutants::only(*found.expect("CINNABAR_MUTANT names a mutant"))
}

#[cfg(not(feature = "mutants"))]
fn mutants() -> Mutants {
    Mutants::default()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(what) = guided::run(bytes, *MUTANTS) {
        panic!("{what}");
    }
});
