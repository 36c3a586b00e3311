//! The write log over a simulated SSD, above a simulated back end: crashes, power cuts, servers that
//! restart, and an oracle that looks at the back end after each of its effects.

mod disk;
mod memory;
mod oracle;
mod ssd;
mod world;

use world::{Settings, World};

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("CINNABAR_SEEDS") else { return 0..300 };
    let (from, to) = range.split_once("..").expect("CINNABAR_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn no_seed_shows_an_image_that_a_disk_could_not_hold() {
    let mut counts = world::Counts::default();
    for seed in seeds() {
        let mut world = World::new(seed, Settings::drawn(seed));
        if let Err(wrong) = world.run() {
            panic!("seed {seed}: {wrong}");
        }
        counts.add(&world.counts);
    }
    println!("{counts:?}");
    if seeds().end - seeds().start >= 200 {
        counts.check();
    }
}
