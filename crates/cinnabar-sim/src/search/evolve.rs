//! A guided search without a fuzzer: inputs that met something new are kept and changed on.
//!
//! For a question that needs no sanitizer, and no nightly compiler: does the guided search find this
//! deliberate bug, and which lines of the engine does it reach? The fuzz target `engine` sees lines of
//! code, too, and runs ten times as long.

use super::coverage::{Coverage, FEATURES};
use super::guided::{Failure, run_with};
use crate::rng::Rng;
use cinnabar_engine::mutant::Mutants;
use std::time::{Duration, Instant};

/// Longest input, in bytes.
const LEN_MAX: usize = 400;

/// What a search has seen.
#[derive(Debug, Default)]
pub struct Evolved {
    /// Inputs run.
    pub runs: u64,
    /// Inputs kept.
    pub kept: usize,
    /// Moments met with an event; see [`coverage`](super::coverage).
    pub features: usize,
    /// The first input that broke a promise.
    pub failure: Option<Box<Failure>>,
}

/// Begins with `corpus`, and goes on until a promise is broken or `limit` has passed. What it tries
/// depends on `seed` only; how far it comes, on the machine.
pub fn search(
    corpus: impl IntoIterator<Item = Vec<u8>>,
    seed: u64,
    limit: Duration,
    mutants: Mutants,
) -> Evolved {
    let start = Instant::now();
    let mut rng = Rng::new(seed);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut met = vec![false; FEATURES];
    let mut evolved = Evolved::default();
    let mut first: Vec<_> = corpus.into_iter().collect();
    while evolved.failure.is_none() && (!first.is_empty() || start.elapsed() < limit) {
        let input = first.pop().unwrap_or_else(|| child(&kept, &mut rng));
        evolved.runs += 1;
        match run_with(&input, mutants) {
            Ok(coverage) if is_new(&coverage, &mut met) => kept.push(input),
            Ok(_) => {}
            Err(failure) => evolved.failure = Some(failure),
        }
    }
    evolved.kept = kept.len();
    evolved.features = met.iter().filter(|met| **met).count();
    evolved
}

/// Notes what was met; says whether something of it was not before.
fn is_new(coverage: &Coverage, met: &mut [bool]) -> bool {
    let mut new = false;
    for feature in coverage.features() {
        new |= !std::mem::replace(&mut met[feature], true);
    }
    new
}

/// An input made of kept ones.
fn child(kept: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let byte = |rng: &mut Rng| rng.below(256) as u8;
    if kept.is_empty() || rng.chance(0.02) {
        return (0..rng.within(20..300)).map(|_| byte(rng)).collect();
    }
    // Newer ones are likelier: they are of what is being found just now.
    let recent = rng.chance(0.5) && kept.len() > 16;
    let from = if recent { kept.len() - 16 } else { 0 };
    let pick = |rng: &mut Rng| kept[rng.within(from as u64..kept.len() as u64) as usize].clone();
    let mut input = pick(rng);
    for _ in 0..rng.within(1..6) {
        let at = rng.below(input.len() as u64 + 1) as usize;
        match rng.below(6) {
            0 | 1 if at < input.len() => input[at] = byte(rng),
            0..=2 => {
                let some: Vec<u8> = (0..rng.within(1..6)).map(|_| byte(rng)).collect();
                input.splice(at..at, some);
            }
            3 => {
                let end = (at + rng.within(1..8) as usize).min(input.len());
                input.drain(at..end);
            }
            4 => {
                // Some of the moves once more, or of another input.
                let other = pick(rng);
                let first = rng.below(other.len() as u64 + 1) as usize;
                let end = (first + rng.within(1..40) as usize).min(other.len());
                input.splice(at..at, other[first..end].iter().copied());
            }
            _ => {
                let other = pick(rng);
                input.truncate(at);
                input.extend(other.get(at..).unwrap_or_default());
            }
        }
    }
    input.truncate(LEN_MAX);
    input
}
