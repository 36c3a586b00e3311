//! A small cache with one volume under the scripted driver, and what its sectors should hold.

use cinnabar_engine::Config;
use cinnabar_engine::IoId;
use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::{VolumeSpec, Warmth};
use cinnabar_sim::machine::EngineFactory;
use cinnabar_sim::medium::Backend;
use cinnabar_sim::script::Script;
use cinnabar_sim::{CacheSetup, Stamp};

/// A small cache: sixteen segments of 255 blocks.
pub(crate) const CAPACITY: u64 = 16 * 255;
const VOLUME_BLOCKS: u64 = 8 * CAPACITY;

pub(crate) type TestScript = Script<EngineFactory>;

pub(crate) fn spec() -> VolumeSpec {
    VolumeSpec::new("volume".to_owned(), VOLUME_BLOCKS * BLOCK_BYTES)
}

/// A cache with one volume, of so many sectors, on a backend of that alignment.
pub(crate) fn cache_over(sectors: u64, align_bytes: u64) -> (TestScript, VolumeId) {
    let setup = CacheSetup::single(CAPACITY, Config::default());
    let backend = Backend::new(0, sectors, align_bytes, false);
    let mut script = Script::new(EngineFactory, setup, vec![backend]);
    let (volume, warmth) = script.attach(0, spec());
    assert_eq!(warmth, Warmth::New);
    (script, volume)
}

/// As [`cache`], with these settings.
pub(crate) fn cache_of(config: Config) -> (TestScript, VolumeId) {
    let setup = CacheSetup::single(CAPACITY, config);
    let sectors = VOLUME_BLOCKS * BLOCK_BYTES / SECTOR_BYTES;
    let backend = Backend::new(0, sectors, 512, false);
    let mut script = Script::new(EngineFactory, setup, vec![backend]);
    let (volume, _) = script.attach(0, spec());
    (script, volume)
}

pub(crate) fn cache() -> (TestScript, VolumeId) {
    cache_over(VOLUME_BLOCKS * BLOCK_BYTES / SECTOR_BYTES, 512)
}

pub(crate) fn blocks(first: u64, count: u64) -> ByteSpan {
    ByteSpan::new(first * BLOCK_BYTES, count * BLOCK_BYTES)
}

pub(crate) fn sectors(first: u64, count: u64) -> ByteSpan {
    ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES)
}

/// What a span holds when all of it was last written with this version; 0 is untouched.
pub(crate) fn version(span: ByteSpan, version: u64) -> Vec<Stamp> {
    let first = span.offset / SECTOR_BYTES;
    (first..first + span.len / SECTOR_BYTES).map(|sector| Stamp::new(0, sector, version)).collect()
}

pub(crate) fn counters(script: &TestScript, volume: VolumeId) -> VolumeCounters {
    script.machine.volume_counters(volume).expect("an attached volume")
}

/// Stops clean and starts again: whatever was cached is now on the cache device and nowhere else.
pub(crate) fn restart(script: &mut TestScript, volume: VolumeId) -> (VolumeId, Warmth) {
    script.detach(volume);
    script.restart();
    script.attach(0, spec())
}

/// Reads enough other blocks, each until it has earned its place, to push everything out, while
/// one I/O is held.
pub(crate) fn push_out(script: &mut TestScript, volume: VolumeId, first: u64, held: Option<IoId>) {
    for block in (first..first + 4 * CAPACITY).step_by(64) {
        for _ in 0..3 {
            script.submit_read(volume, blocks(block, 64));
            script.settle_but(|io| Some(io.id) == held);
        }
    }
}
