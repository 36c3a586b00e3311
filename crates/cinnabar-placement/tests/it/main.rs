//! A hybrid volume over two simulated pools: crashes, hosts that are cut off, late operations, and an
//! oracle that knows what each part may hold.

mod host;
mod log;
mod media;
mod oracle;
mod settings;
mod slides;
mod world;

use cinnabar_placement::mutant::{Mutant, Mutants};
use settings::{Counts, Settings};
use world::World;

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("CINNABAR_SEEDS") else { return 0..1000 };
    let (from, to) = range.split_once("..").expect("CINNABAR_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn run(seed: u64, settings: &Settings, crash_at: Option<u32>) -> Result<Counts, String> {
    let run = || {
        let mut world = World::new(seed, settings);
        world.run(crash_at).map(|()| world.counts)
    };
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("an assert failed: {}", what.unwrap_or_default()))
    })
}

#[test]
fn no_seed_loses_doubles_or_ages_an_extent() {
    let (mut counts, mut wrong, seeds) = (Counts::default(), Vec::new(), seeds());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        match run(seed, &Settings::drawn(seed), None) {
            Ok(of) => counts.add(&of),
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
        if wrong.len() == 8 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{counts:?}");
    if count >= 500 {
        counts.check();
    }
}

/// Short runs with moves, writes, a shrink and a collection; the owner dies at each of their steps.
#[test]
fn no_step_is_a_bad_moment_for_a_crash() {
    for seed in 0..12 {
        let drawn = Settings::drawn(seed);
        let settings = Settings {
            steps: 160,
            extents: 3,
            budget_extents: 2,
            crash: 0.0,
            partition: 0.0,
            fails: 0.0,
            resize: 0.03,
            collect: 0.1,
            junk: 0.03,
            silent: 0.0,
            moves: 0.2,
            ..drawn
        };
        for step in 0..settings.steps {
            if let Err(what) = run(seed, &settings, Some(step)) {
                panic!("seed {seed}, a crash at step {step}: {what}");
            }
        }
    }
}

/// A guest that writes all the time, and copies that end whenever it has written meanwhile.
#[test]
fn an_extent_that_is_always_written_moves() {
    for seed in 0..100 {
        let mut settings = Settings::drawn(seed);
        (settings.crash, settings.partition, settings.fails) = (0.0, 0.0, 0.0);
        (settings.resize, settings.junk, settings.silent, settings.reads) = (0.0, 0.0, 0.0, 0.0);
        (settings.extents, settings.budget_extents, settings.hot) = (1, 1, 1);
        (settings.steps, settings.depth, settings.moves) = (900, 8, 0.3);
        settings.asserts = true;
        settings.volume.hold_max_ns = settings::NEVER_NS;
        let counts = run(seed, &settings, None).expect("it moves");
        assert!(counts.promoted > 0 && counts.held > 0 && counts.given_up == 0, "{counts:?}");
    }
}

/// Bugs of the table's file, whose simulation is its own.
const OF_LOG: [Mutant; 4] =
    [Mutant::LogHeadEarly, Mutant::LogNotDoubled, Mutant::LogUnverified, Mutant::LogSequenceReused];

#[test]
fn no_seed_loses_a_change_of_the_table() {
    for seed in seeds() {
        if let Err(what) = log::run(seed, Mutants::NONE) {
            panic!("seed {seed}: {what}");
        }
    }
}

fn is_found(seed: u64, mutant: Mutant) -> Result<(), String> {
    if OF_LOG.contains(&mutant) {
        let run = || log::run(seed, Mutants::only(mutant));
        return std::panic::catch_unwind(run).unwrap_or_else(|_| Err("an assert failed".into()));
    }
    let mut settings = Settings::drawn(seed);
    settings.volume.mutants = Mutants::only(mutant);
    run(seed, &settings, None).map(|_| ())
}

#[test]
fn each_deliberate_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let found = (0..2000).find_map(|seed| Some((seed, is_found(seed, *mutant).err()?)));
        match found {
            None => missed.push(format!("{mutant:?}")),
            Some((seed, what)) => {
                let what: String = what.chars().take(120).collect();
                println!("{mutant:?}: seed {seed}, {what}");
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "no seed finds {}", missed.join(", "));
}
