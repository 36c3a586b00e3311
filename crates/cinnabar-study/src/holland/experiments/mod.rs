//! The experiments, one file each.

mod architectures;
mod consistency;
mod flash_read_time;
mod loaded_filer;
mod persistence;
mod policies;
mod ram;
mod working_set;
mod write_share;

use super::{Across, Experiment, Figure, Line, Quantity, Setup};
use crate::timed::Config;

/// Working sets of most figures, in GiB.
const SETS_GIB: [u64; 8] = [5, 10, 20, 40, 60, 80, 120, 160];
/// The two working sets that the paper looks at most, in GiB.
const BASE_SETS_GIB: [u64; 2] = [60, 80];
/// Flash of the base configuration, in GiB.
const FLASH_GIB: u64 = 64;

/// Their names, in the order of [`all`].
pub const NAMES: [&str; 9] = [
    "working-set",
    "policies",
    "architectures",
    "persistence",
    "consistency",
    "ram",
    "write-share",
    "flash-read-time",
    "loaded-filer",
];

/// All of them: the six results in the order of the paper, then what else it varies, then the
/// loaded file server.
pub fn all(setup: Setup) -> Vec<Experiment> {
    vec![
        working_set::experiment(setup),
        policies::experiment(setup),
        architectures::experiment(setup),
        persistence::experiment(setup),
        consistency::experiment(setup),
        ram::experiment(setup),
        write_share::experiment(setup),
        flash_read_time::experiment(setup),
        loaded_filer::experiment(setup),
    ]
}

/// Bytes of so many GiB, for the axis.
fn bytes(gib: u64) -> f64 {
    (gib << 30) as f64
}

/// A line over the sizes of the working set.
fn over_sets(name: &str, sets_gib: &[u64], config: impl Fn(u64) -> Config) -> Line {
    Line::new(name, sets_gib.iter().map(|set| (bytes(*set), format!("{set} GB"), config(*set))))
}

/// A figure of read latency over the size of the working set.
fn read_over_sets(slug: &'static str, title: &str, lines: Vec<Line>) -> Figure {
    Figure {
        slug,
        title: title.to_owned(),
        across: Across::Bytes("working set"),
        quantity: Quantity::ReadLatency,
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SETUP: Setup = Setup { scale: 64, seed: 1 };

    #[test]
    fn names_are_those_of_the_experiments() {
        let found: Vec<_> = all(SETUP).iter().map(|experiment| experiment.name).collect();
        assert_eq!(found, NAMES);
    }

    #[test]
    fn each_of_the_six_results_is_one_experiment_with_bounds() {
        let claims = all(SETUP).into_iter().filter(|experiment| experiment.claim.is_some());
        let numbers: Vec<_> = claims
            .map(|experiment| {
                assert!(experiment.checks.iter().any(|check| check.bound.is_some()));
                experiment.claim
            })
            .collect();
        assert_eq!(numbers, (1..=6).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn every_configuration_makes_sense_at_every_scale() {
        for scale in [1, 64, 1024] {
            for experiment in all(Setup { scale, seed: 7 }) {
                assert!(!experiment.figures.is_empty());
                for config in experiment.configs() {
                    assert_eq!(config.check(), Ok(()), "{}", experiment.name);
                    assert_eq!((config.scale, config.seed), (scale, 7));
                }
            }
        }
    }

    #[test]
    fn figures_have_names_of_their_own_and_lines_of_one_length_where_points_have_names() {
        let mut slugs = BTreeSet::new();
        for figure in all(SETUP).iter().flat_map(|experiment| &experiment.figures) {
            assert!(slugs.insert(figure.slug), "{}", figure.slug);
            for line in &figure.lines {
                assert!(!line.points.is_empty());
                let same = line.points.len() == figure.lines[0].points.len();
                assert!(same || !matches!(figure.across, Across::Names(_)), "{}", figure.slug);
            }
        }
    }
}
