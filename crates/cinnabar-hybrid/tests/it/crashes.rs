//! The process dies at each step of moves: what was acknowledged is there, and nothing is left behind.

use crate::client::{Client, EXTENT, created, quick};
use crate::faulty::{Faulty, Plan};
use cinnabar_hybrid::local::LocalPlace;
use cinnabar_hybrid::pools::Place;
use cinnabar_hybrid::settings::Settings;
use cinnabar_placement::{Object, Pool, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const EXTENTS: u64 = 6;
const PAGES: usize = (EXTENTS * EXTENT / 4096) as usize;
const BUDGET: u64 = 3;

/// What each page may hold: what was acknowledged last, and what failed since.
struct Model(Vec<BTreeSet<u8>>);

impl Model {
    fn check(&mut self, client: &Client, when: &str) {
        let bytes = client.read(0, PAGES).expect("all is there");
        for (page, (may, there)) in self.0.iter_mut().zip(bytes.chunks(4096)).enumerate() {
            let byte = there[0];
            assert!(there.iter().all(|b| *b == byte), "{when}: page {page} is of two writes");
            assert!(may.contains(&byte), "{when}: page {page} holds {byte} instead of {may:?}");
            *may = BTreeSet::from([byte]);
        }
    }
}

/// Writes pages of two hot extents, then of two others, until extents went both ways or the pools died.
fn work(client: &Client, model: &mut Model, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let until = Instant::now() + Duration::from_secs(5);
    let both = |client: &Client| {
        let counts = client.0.status().counts;
        counts.moved[0] > 0 && counts.moved[1] > 0
    };
    let begun = Instant::now();
    while Instant::now() < until && !both(client) {
        let hot = if begun.elapsed() < Duration::from_millis(150) { [0, 1] } else { [3, 4] };
        let extent: u64 = hot[rng.random_range(0..2)];
        let page = extent as usize * (EXTENT as usize / 4096) + rng.random_range(0..16);
        let byte = rng.random_range(1..=255);
        if client.write(page as u64 * 4096, 1, byte).is_err() {
            model.0[page].insert(byte);
            return;
        }
        model.0[page] = BTreeSet::from([byte]);
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Objects' files that there are.
fn objects(place: &LocalPlace) -> BTreeSet<Object> {
    let in_pool = |(path, pool): (&Path, Pool)| {
        std::fs::read_dir(path).expect("a folder").filter_map(move |entry| {
            let name = entry.expect("an entry").file_name();
            Object::parse(&name.to_string_lossy(), pool).ok()
        })
    };
    [(&*place.fast, Pool::Fast), (&*place.slow, Pool::Slow)].into_iter().flat_map(in_pool).collect()
}

/// The next owner, which moves nothing, finds what was acknowledged, and cleans up.
fn look_after(place: &mut LocalPlace, model: &mut Model, when: &str) {
    let still = Settings { copy_bytes_per_s: 0, ..Settings::default() };
    let client = Client::open(place, still).expect(when);
    model.check(&client, when);
    let until = Instant::now() + Duration::from_secs(20);
    let of_table = loop {
        let contents = place.look().expect("a table");
        let quiet = |state| matches!(state, State::Stable | State::Fresh);
        if contents.records.iter().all(|(_, record)| quiet(record.state)) {
            break contents.records.iter().filter_map(|(e, record)| record.truth(*e)).collect();
        }
        assert!(Instant::now() < until, "{when}: moves are not brought to an end");
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(client);
    let there = objects(place);
    let missing: Vec<_> = BTreeSet::difference(&of_table, &there).collect();
    let fresh = place.look().expect("a table").records;
    let fresh = |o: &&Object| fresh.iter().any(|(e, r)| *e == o.extent && r.state == State::Fresh);
    assert!(missing.iter().all(fresh), "{when}: lost {missing:?}");
    assert!(there.is_subset(&of_table), "{when}: {there:?} and {of_table:?}");
    let fast = there.iter().filter(|object| object.pool == Pool::Fast).count();
    assert!(fast as u64 <= BUDGET, "{when}: {fast} objects in the fast pool");
}

#[test]
fn no_crash_at_a_step_loses_a_write() {
    let mut died = 0;
    for dies_at in 0..32 {
        for after in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let place = created(folder.path(), EXTENTS, BUDGET);
            let mut model = Model(vec![BTreeSet::from([0]); PAGES]);
            let steps = Arc::new(AtomicU64::new(0));
            let plan =
                Plan { steps: Arc::clone(&steps), dies_at, after, fails: None, silent_until: None };
            let mut faulty = Faulty(place.clone(), plan);
            let client = Client::open(&mut faulty, quick()).expect("open");
            work(&client, &mut model, dies_at);
            drop(client);
            died += u32::from(steps.load(Relaxed) > dies_at);
            let when = format!("dies {} step {dies_at}", if after { "after" } else { "at" });
            let mut place = place;
            look_after(&mut place, &mut model, &when);
            // And once more: what was found stays.
            look_after(&mut place, &mut model, &format!("{when}, again"));
        }
    }
    assert!(died > 30, "only {died} runs came to their step");
}

#[test]
fn extents_move_while_they_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = created(folder.path(), EXTENTS, BUDGET);
    let mut model = Model(vec![BTreeSet::from([0]); PAGES]);
    let client = Client::open(&mut place, quick()).expect("open");
    for seed in 0..5 {
        work(&client, &mut model, seed);
        model.check(&client, "while extents move");
    }
    client.flush().expect("durable");
    // The status is a second old.
    std::thread::sleep(Duration::from_millis(1100));
    let status = client.0.status();
    assert!(status.counts.moved.iter().all(|moves| *moves > 0), "{status:?}");
    assert!(status.host_bytes > 0 && status.last_move.is_some(), "{status:?}");
    assert!(status.fast_bytes <= status.budget_bytes, "{status:?}");
    drop(client);
    look_after(&mut place, &mut model, "at the end");
}
