//! The exact curves of a trace: keys are looked up, references are in memory already.

use crate::{cpu_seconds, peak_kib};
use cinnabar_policy::{Access, Interner, ReadOnly, WriteBack};
use cinnabar_trace::{open, references};
use std::hint::black_box;
use std::path::Path;

const STRIDE: usize = 1 << 16;

pub(crate) fn measure(kind: &str, trace: &str) -> Vec<f64> {
    let records = open(Path::new(trace)).expect("the trace opens");
    let all: Vec<(u64, bool)> = references(records)
        .map(|reference| reference.expect("a sound trace"))
        .map(|reference| (reference.key, reference.write))
        .collect();
    let wants_all = match kind {
        "all" => true,
        "write-back" => false,
        _ => panic!("write-back or all, not {kind}"),
    };
    let start = cpu_seconds();
    let (mut interner, mut accesses) = (Interner::default(), Vec::<Access>::new());
    let (mut back, mut only) = (WriteBack::default(), ReadOnly::default());
    for stride in all.chunks(STRIDE) {
        accesses.clear();
        interner.extend(stride.iter().copied(), &mut accesses).expect("few enough blocks");
        back.extend(&accesses);
        if wants_all {
            only.extend(&accesses);
        }
    }
    black_box((back.finish(), wants_all.then(|| only.finish())));
    let seconds = cpu_seconds() - start;
    vec![all.len() as f64, seconds, peak_kib()]
}
