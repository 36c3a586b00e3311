//! The engine in a small world: bytes choose the next event, the oracle judges every answer.
//!
//! A failing input prints what happened; `CINNABAR_GUIDED=FILE cargo test -p cinnabar-sim small` does
//! so without a fuzzer.

use cinnabar_engine::mutant::Mutants;
use cinnabar_sim::search::coverage::FEATURES;
use cinnabar_sim::search::run_with;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Moments of the engine, beside the lines of code that libFuzzer sees by itself: it looks at this section.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static MOMENTS: [AtomicU8; FEATURES] = [const { AtomicU8::new(0) }; FEATURES];

/// The deliberate bug to be looked for.
static MUTANTS: LazyLock<Mutants> = LazyLock::new(mutants);

#[cfg(feature = "mutants")]
fn mutants() -> Mutants {
    use cinnabar_engine::mutant::Mutant;
    let Ok(name) = std::env::var("CINNABAR_MUTANT") else { return Mutants::default() };
    let found = Mutant::ALL.iter().find(|mutant| format!("{mutant:?}") == name);
    Mutants::only(*found.expect("CINNABAR_MUTANT names a mutant"))
}

#[cfg(not(feature = "mutants"))]
fn mutants() -> Mutants {
    Mutants::default()
}

/// A panic of the engine is a finding with a story, not the end at once, where it can be caught.
pub fn keep_quiet() {
    if cfg!(panic = "unwind") {
        std::panic::set_hook(Box::new(|_| {}));
    }
}

/// Events; whether there was one.
///
/// # Panics
/// When the oracle finds something wrong; the story is on standard error.
pub fn run(bytes: &[u8]) -> bool {
    match run_with(bytes, *MUTANTS) {
        Ok(coverage) => {
            for feature in coverage.features() {
                MOMENTS[feature].store(1, Ordering::Relaxed);
            }
            coverage.moves > 0
        }
        Err(failure) => {
            eprintln!("{failure}");
            panic!("{}", failure.violation);
        }
    }
}
