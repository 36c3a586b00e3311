//! The engine in a small world: bytes choose the next event, the oracle judges every answer.
//!
//! A failing input prints what happened; `CINNABAR_GUIDED=FILE cargo test -p cinnabar-search small` does
//! so without a fuzzer.

#![no_main]

use cinnabar_engine::mutant::Mutants;
use cinnabar_search::coverage::FEATURES;
use cinnabar_search::run_with;
use std::sync::LazyLock;

/// Moments of the engine, beside the lines of code that libFuzzer sees by itself.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static mut MOMENTS: [u8; FEATURES] = [0; FEATURES];

/// A panic of the engine is a finding with a story, not the end at once.
static MUTANTS: LazyLock<Mutants> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|_| {}));
    mutants()
});

/// The deliberate bug to be looked for.
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

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match run_with(bytes, *MUTANTS) {
        Ok(coverage) => {
            for feature in coverage.features() {
                // SAFETY: one thread runs inputs, and libFuzzer looks between two of them.
                unsafe { (&raw mut MOMENTS).cast::<u8>().add(feature).write(1) };
            }
        }
        Err(failure) => {
            eprintln!("{failure}");
            std::process::abort();
        }
    }
});
