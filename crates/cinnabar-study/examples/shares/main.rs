//! `urd` against `centaur` by the production engine: latency, SSD writes and room, over sizes and seeds.
//!
//! Started by `cargo xtask bench shares`. Time is virtual, so the counts are the same on every machine.
//! Arguments: the recording, then `--seeds N`, `--seed N` (only this one), `--margin PART`, `--omega X`,
//! `--only SET`, and `--claims`, which judges ECI-Cache's claims
//! instead, or `--model`, which shows how near the engine the model is that `urd` plans by.

mod claims;
mod model;
mod sets;
mod table;

use cinnabar_policy::sizing::{Allocator, Goal};
use cinnabar_study::compare::{Cache, Contestant, Measures, Model, compare};
use sets::Set;
use std::path::PathBuf;
use table::Row;

/// Sizes of the cache, as parts of what ECI-Cache asks for.
const PARTS: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 1.0, 3.0];
const SEEDS: u64 = 5;

/// What was asked for.
struct Args {
    trace: PathBuf,
    seeds: std::ops::RangeInclusive<u64>,
    goal: Goal,
    omega: f64,
    only: Option<String>,
    claims: bool,
    model: bool,
}

impl Args {
    fn read() -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let text = |name: &str| {
            let at = args.iter().position(|arg| arg == name)?;
            Some(args.get(at + 1).expect("a value behind each option").clone())
        };
        let number = |name| text(name).map(|text| text.parse::<f64>().expect("a number"));
        let whole = |name| text(name).map(|text| text.parse::<u64>().expect("a whole number"));
        let seed = whole("--seed");
        let seeds = whole("--seeds").unwrap_or(SEEDS);
        let margin = number("--margin").or(Goal::DOMINANT.margin);
        Self {
            trace: args.first().expect("the recording self_loop4").into(),
            seeds: seed.map_or(1..=seeds, |seed| seed..=seed),
            goal: Goal { margin, ..Goal::DOMINANT },
            omega: number("--omega").unwrap_or(0.0),
            only: text("--only"),
            claims: args.iter().any(|arg| arg == "--claims"),
            model: args.iter().any(|arg| arg == "--model"),
        }
    }
}

fn main() {
    let args = Args::read();
    for set in sets::all(&args.trace) {
        if args.only.as_ref().is_some_and(|only| only != set.name) {
            continue;
        }
        if args.claims {
            claims::print(&set);
            continue;
        }
        if args.model {
            model::print(&set);
            continue;
        }
        let rows: Vec<Row> = args.seeds.clone().flat_map(|seed| run(&set, &args, seed)).collect();
        table::print(&set, &rows);
    }
}

fn run(set: &Set, args: &Args, seed: u64) -> Vec<Row> {
    let mut options = set.options(seed);
    options.contestants = [Allocator::Centaur, Allocator::Urd].map(Contestant::Allocator).to_vec();
    options.models = vec![Model::Engine];
    options.parts = PARTS.to_vec();
    options.goal = args.goal;
    options.rules.prices.omega = args.omega;
    let found = compare(set.input(), &options, |_| {}).expect("it can be compared");
    let row = |cache: &Cache| {
        let of = |allocator| {
            let entry = cache.of(allocator).expect("it took part");
            let outcome = entry.engine.as_ref().expect("the engine ran");
            let measures = Measures::of(outcome, &options.rules.prices);
            let latency = |at: usize| measures.all()[at].unwrap_or(f64::NAN);
            let latencies = [0, 1, 4, 5].map(latency);
            (latencies, outcome.ssd_writes as f64, entry.allocated_blocks)
        };
        Row::new(cache.part, seed, of(Allocator::Urd), of(Allocator::Centaur))
    };
    found.caches.iter().map(row).collect()
}
