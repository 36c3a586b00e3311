//! The sixteen synthetic servers, by what their blocks are used again for: the classes that the issue of
//! their making asks for, counted by the reuse analysis.

use crate::golden_policies::accesses;
use cinnabar_policy::WriteBack;
use cinnabar_policy::reuse::Mix;
use cinnabar_trace::Record;
use cinnabar_trace::generate::sixteen::{Kind, Settings, Sixteen, VOLUMES};

/// Of each volume, over a day at a fiftieth.
fn mixes() -> Vec<Mix> {
    let settings = Settings { scale: 0.02, days: 1, seed: 4 };
    let mut volumes: Vec<Vec<Record>> = vec![Vec::new(); VOLUMES.len()];
    for record in Sixteen::new(settings).expect("good settings") {
        volumes[record.volume as usize].push(record);
    }
    let mix = |records: Vec<Record>| {
        let mut analysis = WriteBack::default();
        analysis.extend(&accesses(&records));
        analysis.finish().mix
    };
    volumes.into_iter().map(mix).collect()
}

#[test]
fn servers_are_used_again_as_their_kind_says() {
    for (row, mix) in VOLUMES.iter().zip(mixes()) {
        let all = mix.reuses() as f64;
        let share = |part: u64| part as f64 / all;
        match row.kind {
            Kind::Written => assert!(share(mix.waw) > 0.5, "{}: {mix:?}", row.name),
            Kind::Read => assert!(share(mix.rar) > 0.5, "{}: {mix:?}", row.name),
            Kind::Mixed => {
                let least = mix.rar.min(mix.raw).min(mix.war).min(mix.waw);
                assert!(share(least) > 0.05, "{}: {mix:?}", row.name);
            }
        }
    }
}
