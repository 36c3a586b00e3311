//! Real traces, replayed on the engine without I/O.

use cinnabar_engine::units::{ByteSpan, VolumeId};
use cinnabar_sim::InstantCache;
use cinnabar_sim::instant::plain_volume;
use cinnabar_trace::{Op, Record, TraceError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Larger than any volume of any trace here: 1 TiB.
const VOLUME_BLOCKS: u64 = 1 << 28;
const SECTOR: u64 = 512;

/// A trace that may not be there.
pub(crate) fn shared_trace(name: &str) -> Option<Vec<Record>> {
    shared_path(name).map(|path| load(&path))
}

/// A file of the shared traces; says so if it is not there.
pub(crate) fn shared_path(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("CINNABAR_TRACES")
        .map_or_else(|| root.join("../shared/traces"), |folder| root.join(folder));
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: traces not present ({})", path.display());
    None
}

/// The part of a trace that lives in the tree.
pub(crate) fn fixture() -> Vec<Record> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cinnabar-trace/data");
    load(&root.join("self_loop4_first100k.canon.csv.zst"))
}

fn load(path: &std::path::Path) -> Vec<Record> {
    let records = cinnabar_trace::open(path).expect("the trace opens");
    records.collect::<Result<_, TraceError>>().expect("the trace is valid")
}

/// What the engine is given of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// Every block touched is read: get-or-insert.
    AllReads,
    /// Reads and writes of the whole blocks touched, as block simulators see them.
    Blocks,
    /// Reads and writes of just the sectors touched.
    Sectors,
}

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replay {
    pub(crate) read_misses: u64,
    pub(crate) flash_bytes: u64,
    pub(crate) carried: u64,
}

/// Replays a trace.
pub(crate) fn replay(cache: &mut InstantCache, trace: &[Record], how: As) -> Replay {
    let mut volumes: BTreeMap<u32, VolumeId> = BTreeMap::new();
    for record in trace {
        let volume = *volumes.entry(record.volume).or_insert_with(|| {
            cache.attach(plain_volume(&format!("volume{}", record.volume), VOLUME_BLOCKS))
        });
        let blocks = record.blocks();
        let span = match how {
            As::Sectors => {
                let first = record.offset_bytes / SECTOR * SECTOR;
                let end = (record.offset_bytes + record.length_bytes).next_multiple_of(SECTOR);
                ByteSpan::new(first, end - first)
            }
            _ => ByteSpan::new(blocks.start * 4096, (blocks.end - blocks.start) * 4096),
        };
        match record.op {
            Op::Write if how != As::AllReads => cache.write_span(volume, span),
            Op::Read | Op::Write => cache.read_span(volume, span),
            Op::Flush | Op::Discard => {}
        }
    }
    let mut replay = Replay::default();
    for volume in volumes.into_values() {
        replay.read_misses += cache.volume_counters(volume).misses;
    }
    let counters = cache.cache_counters();
    assert_eq!(cache.failures(), 0, "no request of a trace fails");
    replay.flash_bytes = counters.flash_written_bytes;
    replay.carried = counters.carried_blocks;
    replay
}
