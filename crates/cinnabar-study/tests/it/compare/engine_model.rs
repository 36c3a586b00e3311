//! The model of the engine that `urd` plans by, against the engine itself: hits and SSD writes under
//! fixed shares. It is a sample without segments, so it errs; the bounds below are on all volumes together,
//! and a volume that reads little can be off by far more of its own reads.

use super::mixture::{VOLUMES, mixture};
use crate::traces::fixture;
use cinnabar_policy::engine_model::EngineModel;
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::Part;
use cinnabar_study::compare::Division;
use cinnabar_study::compare::engine::Replayed;
use cinnabar_trace::{Op, Record};

const SEGMENT: u64 = 255;
/// Of all reads, what the model's hits are off.
const HITS_OFF_MAX: f64 = 0.10;
/// SSD writes of the model over the engine's, in equal shares, everything written through.
const WRITES_OVER: std::ops::Range<f64> = 0.5..2.0;

/// Hits off as a part of all reads, and the model's SSD writes over the engine's.
fn errors(trace: &[Record], capacity: u64, volumes: usize, seed: u64) -> (f64, f64) {
    let blocks = capacity / volumes as u64 / SEGMENT * SEGMENT;
    let mut replayed = Replayed::new(capacity, volumes, 200_000);
    let part = Part { blocks, policy: WritePolicy::Through };
    replayed.adopt(&Division::Divided(vec![part; volumes]));
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
    let (mut off, mut writes) = (0.0, 0.0);
    for (counts, curves) in outcome.volumes.iter().zip(model.curves()) {
        let point = curves.at(blocks + SEGMENT);
        off += (point.read_hits - counts.read_hits as f64).abs();
        writes += point.flash_writes;
    }
    (off / outcome.total().reads as f64, writes / outcome.ssd_writes as f64)
}

#[test]
fn the_model_is_near_the_engine() {
    let generated = mixture(3, 400_000, 12_000);
    let recorded = fixture();
    for seed in 1..=3 {
        for (name, trace, capacity) in [
            ("generated", &generated, 64 * SEGMENT),
            ("generated", &generated, 200 * SEGMENT),
            ("recorded", &recorded, 100 * SEGMENT),
            ("recorded", &recorded, 400 * SEGMENT),
        ] {
            let (off, writes) = errors(trace, capacity, VOLUMES, seed);
            let what =
                format!("{name}, {capacity} blocks, seed {seed}: {off} of the reads, {writes}");
            assert!(off <= HITS_OFF_MAX && WRITES_OVER.contains(&writes), "{what}");
        }
    }
}
