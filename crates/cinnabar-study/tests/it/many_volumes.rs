//! More volumes than a small device's journal has room for.

use cinnabar_engine::{Command, Config};
use cinnabar_study::instant::{CacheSetup, InstantCache, plain_volume};

/// Records about volumes fill the ring of the smallest devices several times over.
const VOLUMES: usize = 2000;

#[test]
fn the_state_of_many_volumes_never_wedges_the_journal() {
    let setup = CacheSetup::single(4080, Config::default());
    let mut cache = InstantCache::new(setup);
    let volumes: Vec<_> =
        (0..VOLUMES).map(|i| cache.attach(plain_volume(&format!("vol{i}"), 64))).collect();
    for round in 0..3 {
        for volume in &volumes {
            cache.write(*volume, round, 1);
        }
    }
    assert_eq!(cache.failures(), 0);
    let counters = cache.cache_counters();
    assert!(counters.checkpoints > 0, "only a checkpoint makes room: {counters:?}");
    assert!(
        counters.journal_writes < 100 * VOLUMES as u64,
        "the journal is not written for its own sake: {counters:?}"
    );
    cache.restart();
    cache.command(Command::AwaitLoad).expect("the index is loaded");
}
