//! Small worlds: what the fuzzer has found interesting runs as a test, and random bytes do, too.
//!
//! `CINNABAR_GUIDED=FILE` tells the story of one input and fails where it fails.

use cinnabar_engine::mutant::Mutants;
use cinnabar_sim::search::{evolve, guided, run};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the inputs are that the fuzzer begins with.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/guided")
}

#[test]
fn every_input_of_the_corpus_is_sound() {
    if let Ok(file) = std::env::var("CINNABAR_GUIDED") {
        let bytes = std::fs::read(file).expect("the input");
        for line in guided::story(&bytes) {
            println!("{line}");
        }
        run(&bytes).expect("sound");
        return;
    }
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus()).expect("the corpus is in the tree") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a file of the corpus");
        if let Err(failure) = run(&bytes) {
            panic!("{}: {failure}", path.display());
        }
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is empty");
}

/// Bytes of a generator that needs nothing: so many that each kind of move comes.
#[test]
fn random_bytes_are_sound() {
    let first: u64 = std::env::var("CINNABAR_FIRST").map_or(0, |n| n.parse().expect("a number"));
    let count: u64 = std::env::var("CINNABAR_RUNS").map_or(100, |n| n.parse().expect("a number"));
    let mut state = 0;
    for seed in first..first + count {
        state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        if let Err(failure) = run(&bytes) {
            panic!("seed {seed}: {failure}");
        }
    }
    assert_ne!(state, 0);
}

/// Inputs made of those of the corpus, as a fuzzer makes them: `CINNABAR_GUIDED_SECONDS` of them.
#[test]
fn inputs_made_of_the_corpus_are_sound() {
    let inputs = std::fs::read_dir(corpus()).expect("the corpus is in the tree");
    let inputs = inputs.map(|entry| entry.expect("a file").path());
    let inputs = inputs.map(|path| std::fs::read(path).expect("a file of the corpus"));
    let limit = Duration::from_secs(number("CINNABAR_GUIDED_SECONDS", 2));
    let evolved = evolve::search(inputs, 7, limit, Mutants::default());
    println!("{} runs, {} kept, {} moments", evolved.runs, evolved.kept, evolved.features);
    if let Some(failure) = evolved.failure {
        panic!("{failure}");
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}
