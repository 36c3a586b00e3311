//! The model of the engine that `urd` plans by, against the engine itself: hits and SSD writes of each
//! volume under fixed shares. It is a sample without segments, so it errs; the bounds say how much.

use super::mixture::{VOLUMES, mixture};
use crate::traces::fixture;
use cinnabar_policy::engine_model::EngineModel;
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::Part;
use cinnabar_study::compare::Division;
use cinnabar_study::compare::engine::Replayed;
use cinnabar_trace::{Op, Record};
use std::ops::Range;

const SEGMENT: u64 = 255;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// What the model may be off in equal shares, everything written through.
struct Bounds {
    /// Its hits of each volume, as a part of the volume's own reads.
    volumes: [f64; VOLUMES],
    /// Those of all volumes added up, as a part of all reads.
    all: f64,
    /// Its SSD writes over the engine's.
    writes: Range<f64>,
}

/// Hits off of each volume, in blocks, with its reads; the model's SSD writes over the engine's.
fn errors(trace: &[Record], capacity: u64, seed: u64) -> (Vec<(f64, f64)>, f64) {
    let blocks = capacity / VOLUMES as u64 / SEGMENT * SEGMENT;
    let mut replayed = Replayed::new(capacity, VOLUMES, 200_000);
    let part = Part { blocks, policy: WritePolicy::Through };
    replayed.adopt(&Division::Divided(vec![part; VOLUMES]));
    let mut model = EngineModel::new(capacity, seed);
    for record in trace {
        if matches!(record.op, Op::Read | Op::Write) {
            let is_write = record.op == Op::Write;
            let volume = record.volume as usize;
            replayed.request(volume, record.blocks(), is_write);
            model.extend(volume, record.blocks().map(|block| (block, is_write)));
        }
    }
    let outcome = replayed.finish().expect("nothing is refused");
    let (mut off, mut writes) = (Vec::new(), 0.0);
    for (counts, curves) in outcome.volumes.iter().zip(model.curves()) {
        let point = curves.at(blocks + SEGMENT);
        off.push((point.read_hits - counts.read_hits as f64, counts.reads as f64));
        writes += point.flash_writes;
    }
    (off, writes / outcome.ssd_writes as f64)
}

fn check(name: &str, trace: &[Record], segments: u64, bounds: &Bounds) {
    for seed in SEEDS {
        let (off, writes) = errors(trace, segments * SEGMENT, seed);
        let part = |(off, reads): &(f64, f64)| off / reads.max(1.0);
        let volumes: Vec<f64> = off.iter().map(part).collect();
        let sum = |of: fn(&(f64, f64)) -> f64| off.iter().map(of).sum::<f64>();
        let all = sum(|(off, _)| off.abs()) / sum(|(_, reads)| *reads);
        let what = format!(
            "{name}, {segments} segments, seed {seed}: hits off {volumes:.3?} of each volume's reads, \
             {all:.3} of all; SSD writes {writes:.2} of the engine's"
        );
        println!("{what}");
        let near = volumes.iter().zip(&bounds.volumes).all(|(off, most)| off.abs() <= *most);
        assert!(near && all <= bounds.all && bounds.writes.contains(&writes), "{what}");
    }
}

#[test]
fn the_model_is_near_the_engine_on_generated_guests() {
    let trace = mixture(3, 400_000, 12_000);
    // Shares of 16 segments: most of what the engine writes there is blocks that it copies forward.
    let small = Bounds { volumes: [0.02, 0.03, 0.06, 0.01], all: 0.01, writes: 0.2..0.4 };
    check("generated", &trace, 64, &small);
    let large = Bounds { volumes: [0.02, 0.03, 0.10, 0.01], all: 0.01, writes: 0.5..0.75 };
    check("generated", &trace, 200, &large);
}

#[test]
fn the_model_is_near_the_engine_on_recorded_guests() {
    let trace = fixture();
    // The second volume reads 4,701 blocks of 268,163, at distances about as long as its share.
    let small = Bounds { volumes: [0.05, 0.65, 0.04, 0.04], all: 0.03, writes: 1.5..2.2 };
    check("recorded", &trace, 100, &small);
    // Loops about as long as the shares: they fit, or not at all.
    let large = Bounds { volumes: [0.13, 0.02, 0.40, 0.42], all: 0.40, writes: 0.85..1.15 };
    check("recorded", &trace, 400, &large);
}
