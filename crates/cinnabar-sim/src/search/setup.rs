//! How a small world is made: chosen by the first bytes of a run.

use super::tape::Tape;
use crate::machine::{CacheSetup, Format};
use cinnabar_engine::Config;
use cinnabar_engine::bounds::Bounds;
use cinnabar_engine::config::Eviction;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::Mode;

#[derive(Clone, Copy, Debug)]
pub struct VolumeSetup {
    /// Its size in sectors.
    pub sectors: u64,
    /// Alignment that its backend needs.
    pub align_bytes: u32,
    /// No one else writes it, says the operator.
    pub exclusive: bool,
    /// Its backend can prove whether it was written.
    pub proof: bool,
    /// Initial mode.
    pub mode: Mode,
}

/// A cache and its volumes.
#[derive(Clone, Debug)]
pub struct Setup {
    pub cache: CacheSetup,
    /// Pages of a shard's journal.
    pub journal_pages: u64,
    pub volumes: Vec<VolumeSetup>,
}

pub(super) const SECOND_NS: u64 = 1_000_000_000;

impl Setup {
    /// The setup that a tape begins with.
    pub(super) fn from_tape(tape: &mut Tape<'_>, mutants: Mutants) -> Self {
        let (flags, tiny) = (tape.byte(), tape.byte());
        let eviction = if flags & 1 == 0 { Eviction::Clock } else { Eviction::Probation };
        let shards = if flags & 0xE == 0xE { 2 } else { 1 };
        let config = Config {
            eviction,
            probation_blocks: Some(if flags & 0x10 == 0 { 4 } else { 64 }),
            chunk_age_ns_max: if flags & 0x20 == 0 { 0 } else { SECOND_NS / 2 },
            heartbeat_ns: SECOND_NS,
            bounds: bounds(tiny),
            mutants,
            ..Config::default()
        };
        let capacity_blocks = 4 * 255 * u64::from(shards);
        let span_log2 = u32::from(flags >> 6);
        let cache = CacheSetup { shards, span_log2, ..CacheSetup::single(capacity_blocks, config) };
        let volumes = (0..2).map(|_| Self::volume(tape)).collect();
        // In fewer than 24 pages, writing live records once more would never make room.
        let journal_pages = if tiny & 0x40 == 0 { 24 } else { 64 };
        Self { cache, journal_pages, volumes }
    }

    /// A freshly formatted device for it.
    pub(super) fn format(&self, serial: u8) -> Format {
        let CacheSetup { capacity_blocks, segment_chunks, shards, span_log2, .. } = self.cache;
        let region = u32::try_from(capacity_blocks / u64::from(shards)).expect("a small one");
        let geometry = Geometry::for_capacity(region, segment_chunks)
            .with_journal(self.journal_pages)
            .divided(shards, span_log2);
        Format::of(&Superblock::format_all([0xC1 ^ serial; 16], geometry))
    }

    fn volume(tape: &mut Tape<'_>) -> VolumeSetup {
        let flags = tape.byte();
        let blocks = [4, 16, 64, 700][usize::from(flags & 3)];
        // A size that is no multiple of the block's.
        let cut = if flags & 0x20 == 0 { 0 } else { 3 };
        let align_bytes = if flags & 0x10 == 0 { 512 } else { 4096 };
        VolumeSetup {
            sectors: blocks * 8 - if align_bytes == 512 { cut } else { 0 },
            align_bytes,
            exclusive: flags & 4 == 0,
            proof: flags & 8 == 0,
            mode: if flags & 0xC0 == 0xC0 { Mode::WriteAround } else { Mode::WriteThrough },
        }
    }
}

/// The engine's own, but where a bit of `tiny` says so.
fn bounds(tiny: u8) -> Bounds {
    let mut bounds = Bounds::default();
    let is = |bit: u8| tiny >> bit & 1 == 1;
    if is(0) {
        bounds = Bounds { open_pages: 4, load_pages: 1, load_reads: 2, replay_reads: 1, ..bounds };
    }
    if is(1) {
        bounds.replay_blocks = 8;
    }
    if is(2) {
        bounds.invalidate_lookups = 4;
    }
    bounds.incarnations = 256;
    if is(3) {
        bounds.passed_ranges = 2;
    }
    if is(4) {
        bounds.parts = 2;
        bounds =
            Bounds { miss_blocks: 2, write_blocks: 2, zero_blocks: 2, partial_blocks: 1, ..bounds };
    }
    if is(5) {
        bounds = Bounds { journal_pages: 1, checkpoint_pages: 1, ..bounds };
    }
    if is(7) {
        bounds = Bounds { stop_slots: 4, clean_slots: (1, 8), parked_segments: 1, ..bounds };
    }
    bounds
}
