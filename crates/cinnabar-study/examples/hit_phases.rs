//! After a shift of the workload: accesses until the engine reads no more from the back end than the
//! best fixed way of admission does, and how often it changed its way.
//!
//! Started by `cargo xtask bench phases`. Each line is a cache that has seen one habit, and then sees
//! another one. Every fixed way runs beside on the same accesses. Counts are deterministic.

use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Admission, Config};
use cinnabar_policy::Writes;
use cinnabar_study::hits::engine::EngineCache;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::num::NonZeroU32;

/// Blocks of the cache.
const CACHE: u64 = 65_536;
/// Accesses before the shift, and after it.
const BEFORE: u64 = 6 * CACHE;
const AFTER: u64 = 12 * CACHE;
/// Accesses over which misses are compared.
const WINDOW: u64 = CACHE / 4;
/// What the engine may miss over the best fixed way to count as good.
const NEAR: f64 = 1.05;

/// What guests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// A loop of 1.3 times the cache.
    Loop,
    /// Each block is read once more 0.6 cache sizes later, and never again.
    Twice,
    /// Popular blocks of four times the cache, some of them written.
    Popular,
    /// A log that is only written, beside blocks that half of the cache holds.
    Log,
}

impl Habit {
    const ALL: [(Self, &str); 4] = [
        (Self::Loop, "loop that does not fit"),
        (Self::Twice, "read twice"),
        (Self::Popular, "popular blocks"),
        (Self::Log, "log and hot set"),
    ];

    /// The block of access number `step`, and whether it is written. Habits share no blocks.
    fn access(self, step: u64, chance: &mut SmallRng) -> (u64, bool) {
        let far = 1 << 24;
        match self {
            Self::Loop => (step % (CACHE * 13 / 10), false),
            Self::Twice => {
                let again = step / 2;
                (far + if step.is_multiple_of(2) { again + CACHE * 3 / 10 } else { again }, false)
            }
            Self::Popular => {
                // Of two draws the smaller: a straight line of popularity.
                let draw = |chance: &mut SmallRng| chance.random_range(0..4 * CACHE);
                let block = (0..4).map(|_| draw(chance)).min().expect("four");
                (2 * far + block, chance.random_bool(0.2))
            }
            Self::Log if !step.is_multiple_of(3) => (3 * far + step * 2 / 3 % (4 * CACHE), true),
            Self::Log => (4 * far + chance.random_range(0..CACHE / 2), false),
        }
    }
}

/// What one engine has missed, window by window, and the changes of its way.
struct Course {
    misses: Vec<u64>,
    changes: u64,
}

fn main() {
    println!(
        "A cache of {CACHE} blocks, {BEFORE} accesses before the shift and {AFTER} after it. Good: over one cache \
         size of accesses at most {NEAR} times the read misses of the fixed way that has the fewest \
         there.\n"
    );
    println!(
        "| before | after | good after, in cache sizes | changes of way | in the end, x best | best way |"
    );
    println!("|---|---|--:|--:|--:|---|");
    let (mut worst, mut most) = (0.0_f64, 0);
    for (from, from_name) in Habit::ALL {
        for (to, to_name) in Habit::ALL {
            if from == to {
                continue;
            }
            let accesses = |step| if step < BEFORE { (from, step) } else { (to, step - BEFORE) };
            let (near, changes, last, best) = compare(BEFORE + AFTER, accesses);
            let near_text = near.map_or("never".to_owned(), |near| format!("{near:.2}"));
            println!("| {from_name} | {to_name} | {near_text} | {changes} | {last:.3} | {best} |");
            worst = worst.max(near.unwrap_or(f64::INFINITY));
            most = most.max(changes);
        }
    }
    println!(
        "\nLongest: {worst:.2} cache sizes; most changes of the way after one shift: {most}.\n"
    );
    println!("| phases that alternate | each, in cache sizes | changes of way | for each phase |");
    println!("|---|--:|--:|--:|");
    for (one, one_name, other, other_name) in [
        (Habit::Loop, "loop that does not fit", Habit::Twice, "read twice"),
        (Habit::Log, "log and hot set", Habit::Popular, "popular blocks"),
    ] {
        for (length, name) in [(CACHE / 4, "1/4"), (CACHE, "1"), (4 * CACHE, "4")] {
            let phases = 24 * CACHE / length;
            let accesses = |step| {
                let phase = step / length;
                let habit = if phase % 2 == 0 { one } else { other };
                (habit, phase / 2 * length + step % length)
            };
            let changes = course(None, phases * length, &accesses).changes;
            let each = changes as f64 / phases as f64;
            println!("| {one_name}, {other_name} | {name} | {changes} | {each:.2} |");
        }
    }
}

/// Cache sizes after the shift until the engine is near the best fixed way, its changes since then,
/// its misses over the best's in the last four cache sizes, and which that was.
fn compare(
    steps: u64,
    accesses: impl Fn(u64) -> (Habit, u64),
) -> (Option<f64>, u64, f64, &'static str) {
    let own = course(None, steps, &accesses);
    let fixed = Admission::ALL.map(|way| (way, course(Some(way), steps, &accesses)));
    let shift = (BEFORE / WINDOW) as usize;
    let sum = |course: &Course, from: usize, count: usize| -> u64 {
        course.misses[from..from + count].iter().sum()
    };
    let span = (CACHE / WINDOW) as usize;
    let last = own.misses.len() - 4 * span;
    let best_of = |from: usize, count: usize| {
        let of = |(way, course): &(Admission, Course)| (sum(course, from, count), *way);
        fixed.iter().map(of).min_by_key(|(misses, _)| *misses).expect("four ways")
    };
    let is_near =
        |from: &usize| sum(&own, *from, span) as f64 <= best_of(*from, span).0 as f64 * NEAR;
    let near = (shift..=own.misses.len() - span).find(is_near);
    let (misses, way) = best_of(last, 4 * span);
    (
        near.map(|from| (from - shift) as f64 * WINDOW as f64 / CACHE as f64),
        own.changes,
        sum(&own, last, 4 * span) as f64 / misses.max(1) as f64,
        way.name(),
    )
}

/// Plays `steps` accesses into an engine.
fn course(
    admission: Option<Admission>,
    steps: u64,
    accesses: &impl Fn(u64) -> (Habit, u64),
) -> Course {
    let size = NonZeroU32::new(CACHE as u32).expect("not empty");
    let config = Config { admission, ..Config::default() };
    let mut cache = EngineCache::with(size, Writes::Through, config).expect("a sound size");
    let mut chance = SmallRng::seed_from_u64(1);
    let mut course = Course { misses: Vec::new(), changes: 0 };
    let (mut before, mut changes) = (0, 0);
    for step in 0..steps {
        let (habit, at) = accesses(step);
        let (block, write) = habit.access(at, &mut chance);
        let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
        cache.request(0, write, span).expect("one volume");
        if (step + 1).is_multiple_of(WINDOW) {
            let misses = cache.counts().read_misses;
            course.misses.push(misses - before);
            before = misses;
        }
        if step + 1 == BEFORE.min(steps) {
            changes = cache.cache_counters().trials.changes;
        }
    }
    let all = cache.cache_counters().trials.changes;
    course.changes = if steps == BEFORE + AFTER { all - changes } else { all };
    course
}
