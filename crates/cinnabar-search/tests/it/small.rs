//! Small worlds: what the fuzzer has found interesting runs as a test, and random bytes do, too.
//!
//! `CINNABAR_GUIDED=FILE` tells the story of one input and fails where it fails.
//! `CINNABAR_MOVES=8 CINNABAR_MINUTES=5` looks further than the few moves that each test run tries.

use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_search::exhaustive::{Searched, search};
use cinnabar_search::scenes::Scene;
use cinnabar_search::{evolve, guided, run};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// All orders of a few moves, from each scene. `CINNABAR_MINUTES`, or `CINNABAR_SECONDS`, are for all
/// scenes together; as many are searched at a time as there are cores.
#[test]
fn every_order_of_a_few_moves_is_sound() {
    let moves = u32::try_from(number("CINNABAR_MOVES", 4)).expect("few moves");
    let seconds = number("CINNABAR_SECONDS", 60 * number("CINNABAR_MINUTES", 60));
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(Scene::ALL.len());
    let turns = Scene::ALL.len().div_ceil(cores) as u32;
    let limit = Duration::from_secs(seconds) / turns;
    for scenes in Scene::ALL.chunks(cores) {
        std::thread::scope(|scope| {
            for scene in scenes {
                scope.spawn(move || look_at(*scene, moves, limit));
            }
        });
    }
}

fn look_at(scene: Scene, moves: u32, limit: Duration) {
    let start = Instant::now();
    match search(scene, moves, limit, Mutants::default()) {
        Ok(Searched { moves, states, cut_off, complete }) => {
            let seconds = start.elapsed().as_secs_f64();
            let left = if complete { ", nothing is left" } else { "" };
            println!(
                "{scene:?}: N = {moves}, {states} states, {cut_off} cut off, {seconds:.0} s{left}"
            );
        }
        Err(failure) => panic!("{scene:?}: {failure}"),
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Deliberate bugs that few moves find: a checkpoint that ends while a rebase does, a run that grows
/// while the index is being loaded, and invalidation records that are missing or late.
#[test]
fn few_moves_find_deliberate_bugs() {
    let known = [
        (Mutant::RebaseMistaken, Scene::Rebasing, 3),
        (Mutant::PassedRunGrows, Scene::Loading, 4),
        (Mutant::NoRecord, Scene::Serving, 3),
        (Mutant::RecordAfterWrite, Scene::Serving, 3),
        (Mutant::RecordTooOld, Scene::Loading, 3),
        (Mutant::NoRecordWhileLoading, Scene::Loading, 3),
    ];
    for (mutant, scene, moves) in known {
        let found = search(scene, moves, Duration::MAX, Mutants::only(mutant));
        assert!(found.is_err(), "{mutant:?} is not found in {scene:?} by {moves} moves");
    }
}
