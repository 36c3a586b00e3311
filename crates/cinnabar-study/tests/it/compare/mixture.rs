//! Guests that want different things of a cache, and options to compare them with.

use cinnabar_policy::sizing::{Allocator, Goal, Prices, Steadiness, Weighting};
use cinnabar_study::analysis::{Every, Look, Rules};
use cinnabar_study::compare::{Contestant, Model, Options};
use cinnabar_study::rng::Rng;
use cinnabar_trace::{Op, Record};
use std::collections::BTreeMap;

/// Volumes of the mixture.
pub(crate) const VOLUMES: usize = 4;
/// Length of an interval of it.
pub(crate) const INTERVAL_US: u64 = 1_000_000;

/// Requests of a loop of reads, a skewed mix, a volume that writes the same again and again, and a
/// scan that never comes back; `blocks` scales their sizes. An interval is as long as 2000 requests.
pub(crate) fn mixture(seed: u64, requests: u64, blocks: u64) -> Vec<Record> {
    let mut rng = Rng::new(seed);
    let mut cursors = [0_u64; VOLUMES];
    let request = |at: u64| {
        let volume = rng.below(VOLUMES as u64) as u32;
        let cursor = &mut cursors[volume as usize];
        let (block, is_write) = match volume {
            0 => (*cursor % (2 * blocks), false),
            1 => {
                let part = rng.pick(&[blocks / 8, blocks / 2, 2 * blocks]);
                (rng.below(part), rng.below(10) < 3)
            }
            2 => (rng.below(blocks), rng.below(100) < 97),
            _ => (*cursor, false),
        };
        let count = 1 + rng.below(4);
        *cursor += count;
        Record {
            ts_us: at * INTERVAL_US / 2000,
            volume,
            op: if is_write { Op::Write } else { Op::Read },
            offset_bytes: block * 4096,
            length_bytes: count * 4096,
        }
    };
    (0..requests).map(request).collect()
}

/// The latencies that allocators are compared with.
pub(crate) const PRICES: Prices = Prices {
    ssd_read_us: 88.0,
    ssd_write_us: 21.0,
    backend_read_us: 927.0,
    backend_write_us: 141.0,
    omega: 1.0,
    lambda_us: 21.0,
    mu_us: 0.0,
};

/// All allocators, in both models, exactly.
pub(crate) fn options() -> Options {
    Options {
        every: Some(Every::Time(INTERVAL_US)),
        contestants: Contestant::all(),
        models: vec![Model::Engine, Model::Papers],
        parts: vec![1.0, 0.3],
        look: Look::Exact,
        seed: 1,
        decay: 0.5,
        reuses_min: 1,
        rules: Rules {
            allocator: Allocator::Urd,
            prices: PRICES,
            ssd_blocks_per_s: None,
            written_part_max: 0.5,
            intensity: 1.0,
            reach_part: 1.0,
            steadiness: Steadiness::default(),
        },
        goal: Goal::PRICES,
        weighting: Weighting::Own,
        bounds: BTreeMap::new(),
        jobs: None,
    }
}
