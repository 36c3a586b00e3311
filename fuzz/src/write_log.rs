//! The write log in its simulated world: bytes draw what happens, the oracle looks at the back end after
//! each of its effects.
//!
//! The world is that of the crate's own simulation. The first bytes draw how the run is.
//! `CINNABAR_GUIDED=FILE CINNABAR_TRACE=1 cargo test -p cinnabar-writeback --test it every_input -- --nocapture`
//! says what happens in an input.

use crate::write_world::guided;
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

/// Bytes that draw what happens; whether a guest has written.
///
/// # Panics
/// When the oracle finds something wrong.
pub fn run(bytes: &[u8]) -> bool {
    match guided::run(bytes, *MUTANTS) {
        Ok(counts) => counts.writes > 0,
        Err(what) => panic!("{what}"),
    }
}
