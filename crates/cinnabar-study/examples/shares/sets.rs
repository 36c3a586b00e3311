//! The two sets of volumes: one recorded and write-heavy, one generated.

use cinnabar_policy::Sampled;
use cinnabar_policy::monitor::Sampling;
use cinnabar_policy::sizing::{Allocator, Goal, Prices, Steadiness, Weighting};
use cinnabar_study::analysis::{Every, Look, Rules};
use cinnabar_study::compare::{Input, Options};
use cinnabar_trace::Record;
use cinnabar_trace::generate::sixteen::{Settings, Sixteen};
use std::collections::BTreeMap;
use std::path::Path;

/// Volumes, and where time is cut.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    records: Vec<Record>,
    every: Every,
}

/// Both.
pub(crate) fn all(trace: &Path) -> [Set; 2] {
    let recorded = cinnabar_trace::open(trace).expect("the recording opens");
    let generated = Settings { scale: 0.02, days: 1, seed: 4 };
    [
        Set {
            name: "self_loop4",
            records: recorded.map(|record| record.expect("the recording is whole")).collect(),
            every: Every::Time(10_000_000),
        },
        Set {
            name: "sixteen",
            records: Sixteen::new(generated).expect("good settings").collect(),
            every: Every::Time(1_800_000_000),
        },
    ]
}

impl Set {
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn volumes(&self) -> usize {
        self.records.iter().map(|record| record.volume as usize + 1).max().unwrap_or(0)
    }

    pub(crate) fn input(&self) -> Input<'_> {
        Input::Records(&self.records)
    }

    /// As the command has them by default, but for what is compared.
    pub(crate) fn options(&self, seed: u64) -> Options {
        Options {
            every: Some(self.every),
            contestants: Vec::new(),
            models: Vec::new(),
            parts: Vec::new(),
            look: Look::Sampled(Sampling::Blocks(Sampled::BLOCKS)),
            seed,
            decay: 0.5,
            reuses_min: 1,
            rules: Rules {
                allocator: Allocator::Urd,
                prices: Prices {
                    ssd_read_us: 88.0,
                    ssd_write_us: 21.0,
                    backend_read_us: 927.0,
                    backend_write_us: 141.0,
                    omega: 0.0,
                    lambda_us: 21.0,
                    mu_us: 0.0,
                },
                ssd_blocks_per_s: None,
                written_part_max: 0.5,
                intensity: 0.0,
                reach_part: 0.99,
                steadiness: Steadiness::default(),
            },
            goal: Goal::DOMINANT,
            weighting: Weighting::Own,
            bounds: BTreeMap::new(),
            jobs: None,
        }
    }
}
