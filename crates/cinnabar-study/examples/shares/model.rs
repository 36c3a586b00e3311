//! The model of the engine that `urd` plans by, beside the engine: hits and SSD writes of equal shares.

use crate::sets::Set;
use cinnabar_policy::engine_model::EngineModel;
use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::Part;
use cinnabar_study::compare::Division;
use cinnabar_study::compare::engine::Replayed;
use cinnabar_trace::Op;

/// Blocks of a segment of the engine's log.
const SEGMENT: u64 = 255;
/// Caches of so many segments a volume.
const SEGMENTS: [u64; 4] = [18, 36, 90, 180];

pub(crate) fn print(set: &Set) {
    println!("{}: equal shares, written back; the engine and its model", set.name);
    for segments in SEGMENTS {
        let volumes = set.volumes();
        let (blocks, capacity) = (segments * SEGMENT, segments * SEGMENT * volumes as u64);
        let mut replayed = Replayed::new(capacity, volumes, 200_000);
        let part = Part { blocks, policy: WritePolicy::Back };
        replayed.adopt(&Division::Divided(vec![part; volumes]));
        let mut model = EngineModel::new(capacity, 1);
        for record in set.records() {
            if matches!(record.op, Op::Read | Op::Write) {
                let (volume, is_write) = (record.volume as usize, record.op == Op::Write);
                replayed.request(volume, record.blocks(), is_write);
                model.extend(volume, record.blocks().map(|block| (block, is_write)));
            }
        }
        let outcome = replayed.finish().expect("nothing is refused");
        let mut flash = 0.0;
        for (counts, curves) in outcome.volumes.iter().zip(model.curves()) {
            let point = curves.at(blocks);
            flash += point.flash_writes;
            let of = |part: f64, all: u64| part / all.max(1) as f64;
            println!(
                "  {} reads: hits {:.3} and {:.3}; {} writes: kept {:.3} and {:.3}",
                counts.reads,
                of(counts.read_hits as f64, counts.reads),
                of(point.read_hits, counts.reads),
                counts.writes,
                of(counts.writes_back as f64, counts.writes),
                of(point.kept_writes, counts.writes),
            );
        }
        let wrote = outcome.ssd_writes;
        println!("{segments} segments a volume: SSD writes {wrote} and {flash:.0}");
    }
}
