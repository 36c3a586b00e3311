//! A guided search without a fuzzer: inputs in which something has happened more often than in any before
//! are kept, and changed on. The fuzz target `write_log` sees lines of code, too.

use crate::guided::{SETTINGS, run};
use crate::rng::Rng;
use crate::settings::Counts;
use cinnabar_writeback::mutant::{Mutant, Mutants};
use rand::RngExt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longest input, in bytes.
const LEN_MAX: usize = 1_200;

/// What a search has seen.
#[derive(Debug, Default)]
struct Evolved {
    runs: u64,
    kept: Vec<Vec<u8>>,
    /// What is wrong, and the input that shows it.
    failure: Option<(String, Vec<u8>)>,
}

/// Begins with `corpus`, and goes on with so many inputs, or until something is wrong.
fn search(corpus: Vec<Vec<u8>>, seed: u64, more: u64, mutants: Mutants) -> Evolved {
    let most = corpus.len() as u64 + more;
    let mut rng = Rng::seed_from_u64(seed);
    let mut met: BTreeSet<(&'static str, u32)> = BTreeSet::new();
    let (mut evolved, mut first) = (Evolved::default(), corpus);
    while evolved.failure.is_none() && evolved.runs < most {
        let input = first.pop().unwrap_or_else(|| child(&evolved.kept, &mut rng));
        evolved.runs += 1;
        match checked(&input, mutants) {
            Ok(counts) if is_new(&counts, &mut met) => evolved.kept.push(input),
            Ok(_) => {}
            Err(what) => evolved.failure = Some((what, input)),
        }
    }
    evolved
}

/// Asserts of the write log count.
fn checked(input: &[u8], mutants: Mutants) -> Result<Counts, String> {
    let run = || run(input, mutants);
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err("an assert failed".to_owned()))
}

fn is_new(counts: &Counts, met: &mut BTreeSet<(&'static str, u32)>) -> bool {
    let mut new = false;
    for (name, count) in counts.all() {
        // Once, twice, four times, and so on.
        new |= count > 0 && met.insert((name, count.ilog2()));
    }
    new
}

/// An input made of kept ones.
fn child(kept: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    if kept.is_empty() || rng.random_bool(0.05) {
        let len = rng.random_range(SETTINGS..LEN_MAX);
        return (0..len).map(|_| rng.random()).collect();
    }
    let mut input = kept[rng.random_range(0..kept.len())].clone();
    for _ in 0..rng.random_range(1..6) {
        let other = &kept[rng.random_range(0..kept.len())];
        let at = rng.random_range(0..=input.len());
        match rng.random_range(0..6) {
            0 if at < input.len() => input[at] = rng.random(),
            // What is rare.
            1 if at < input.len() => input[at] = 0,
            // How a run is lies at the front.
            2 if !input.is_empty() => {
                let end = input.len().min(SETTINGS);
                input[rng.random_range(0..end)] = rng.random();
            }
            3 => drop(input.drain(at..(at + rng.random_range(1..16)).min(input.len()))),
            4 => {
                let first = rng.random_range(0..=other.len());
                let end = (first + rng.random_range(1..80)).min(other.len());
                input.splice(at..at, other[first..end].iter().copied());
            }
            _ => {
                input.truncate(at);
                input.extend(other.get(at..).unwrap_or_default());
            }
        }
    }
    input.truncate(LEN_MAX);
    input
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/guided")
}

fn inputs() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(corpus()).expect("the corpus is in the tree");
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, std::fs::read(path).expect("a file of the corpus"))
    };
    let mut all: Vec<_> = entries.map(|entry| read(entry.expect("a file").path())).collect();
    all.sort();
    all
}

/// `CINNABAR_GUIDED=FILE` runs one input, with `CINNABAR_TRACE=1` to see what happens.
#[test]
fn every_input_of_the_corpus_is_sound() {
    if let Some(file) = std::env::var_os("CINNABAR_GUIDED") {
        let counts = run(&std::fs::read(file).expect("the input"), Mutants::default());
        println!("{:?}", counts.expect("sound"));
        return;
    }
    let all = inputs();
    assert!(all.len() > 10, "the corpus is small");
    for (name, input) in all {
        if let Err(what) = checked(&input, Mutants::default()) {
            panic!("{name}: {what}");
        }
    }
}

/// So many inputs made of those of the corpus, as a fuzzer makes them: `CINNABAR_GUIDED_RUNS`. With
/// `CINNABAR_CORPUS=FOLDER` those that are kept are written there.
#[test]
fn inputs_made_of_the_corpus_are_sound() {
    let runs = std::env::var("CINNABAR_GUIDED_RUNS");
    let runs = runs.map_or(40, |text| text.parse().expect("a number"));
    let first = inputs().into_iter().map(|(_, input)| input).collect();
    let evolved = search(first, 7, runs, Mutants::default());
    println!("{} runs, {} kept", evolved.runs, evolved.kept.len());
    if let Some(folder) = std::env::var_os("CINNABAR_CORPUS") {
        for (number, input) in evolved.kept.iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("kept-{number:03}")), input)
                .expect("the folder is there");
        }
        if let Some((_, input)) = &evolved.failure {
            std::fs::write(Path::new(&folder).join("failure"), input).expect("it is there");
        }
    }
    if let Some((what, _)) = evolved.failure {
        panic!("{what}");
    }
}

/// Deliberate bugs that the search found within some hundred runs, and the inputs that show them: each is
/// called as its bug. `CINNABAR_MUTANT_RUNS=300` looks for all of them, `CINNABAR_CORPUS=FOLDER` keeps what
/// is found.
#[test]
fn the_search_finds_deliberate_bugs() {
    std::panic::set_hook(Box::new(|_| {}));
    let all = inputs();
    if let Ok(runs) = std::env::var("CINNABAR_MUTANT_RUNS") {
        let runs = runs.parse().expect("a number");
        for mutant in Mutant::ALL {
            let first = all.iter().map(|(_, input)| input.clone()).collect();
            let evolved = search(first, 7, runs, Mutants::only(*mutant));
            let found = evolved.failure.as_ref().map(|(what, _)| what);
            println!("{mutant:?}: {} runs, {found:?}", evolved.runs);
            if let (Some((_, input)), Some(folder)) =
                (evolved.failure, std::env::var_os("CINNABAR_CORPUS"))
            {
                let path = Path::new(&folder).join(format!("{mutant:?}"));
                std::fs::write(path, input).expect("the folder is there");
            }
        }
        return;
    }
    let mut found = 0;
    for mutant in Mutant::ALL {
        let Some((name, input)) = all.iter().find(|(name, _)| *name == format!("{mutant:?}"))
        else {
            continue;
        };
        let wrong = checked(input, Mutants::only(*mutant)).is_err();
        println!("{name}: {wrong}");
        assert!(wrong, "{name} does not show its bug any more");
        found += 1;
    }
    println!("{found} deliberate bugs");
    assert!(found >= 10, "{found}");
}
