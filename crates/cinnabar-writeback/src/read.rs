//! Reads: what the log holds lies over what the engine says.

use crate::commit::Commits;
use crate::mutant::{Mutant, Mutants};
use crate::slots::Slots;
use crate::volume::Volume;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, sector_runs};
use cinnabar_engine::{Failure, Payload, RequestId};

/// A read under way.
pub(crate) struct Read<P> {
    pub(crate) id: RequestId,
    pub(crate) place: u16,
    pub(crate) span: ByteSpan,
    pub(crate) data: P,
    /// The engine was asked for some of it.
    pub(crate) asks: bool,
    /// Reads of the log and of the engine that have not ended.
    pub(crate) outstanding: u32,
    pub(crate) failed: Option<Failure>,
    pub(crate) layers: Vec<Layer<P>>,
}

/// Some sectors of a block that the log holds.
pub(crate) struct Layer<P> {
    pub(crate) block: u64,
    pub(crate) sectors: u8,
    pub(crate) from: Source<P>,
}

/// Where they are.
pub(crate) enum Source<P> {
    Zeros,
    /// In RAM: memory, and byte of the block in it.
    Ram(P, u64),
    /// In a slot; read into this memory.
    Slot(u32, Option<P>),
}

/// What the log holds of a span, and whether the engine has to be asked for the rest.
pub(crate) fn layers_of<P: Payload>(
    volume: &Volume<P>,
    slots: &Slots,
    span: ByteSpan,
    mutants: Mutants,
) -> (Vec<Layer<P>>, bool) {
    let (mut layers, mut asks) = (Vec::new(), false);
    for block in span.first_block()..span.end_block() {
        let mut wanted = volume.sectors(span, block);
        let mut version = slots.find(volume.record.volume, block);
        // A range that holds a block is newer than all that was written there.
        let looks = version.is_none() || !mutants.is(Mutant::RangeKeepsBlocks);
        if looks && volume.zeros.holds(block) {
            layers.push(Layer { block, sectors: wanted, from: Source::Zeros });
            continue;
        }
        while let Some(slot) = version
            && wanted != 0
        {
            let held = slots.data(slot).expect("a version has data");
            let sectors = held.sectors & wanted;
            if sectors != 0 {
                let from = source(&volume.commits, slot);
                layers.push(Layer { block, sectors, from });
            }
            wanted &= !sectors;
            version = slots.older(slot);
        }
        asks |= wanted != 0;
    }
    (layers, asks)
}

fn source<P: Payload>(commits: &Commits<P>, slot: u32) -> Source<P> {
    match commits.data_of(slot) {
        Some((data, at)) => Source::Ram(data.clone(), *at),
        None => Source::Slot(slot, None),
    }
}

impl<P: Payload> Layer<P> {
    /// Lays it over what the buffer of a read holds.
    pub(crate) fn lay(&self, span: ByteSpan, data: &P) {
        let base = (self.block - span.first_block()) * BLOCK_BYTES;
        // Sectors behind the volume's end count as wanted, and a buffer need not reach there.
        let end = (span.end() - self.block * BLOCK_BYTES).min(BLOCK_BYTES);
        for (at, len) in sector_runs(self.sectors) {
            let len = len.min(end.saturating_sub(at));
            if len == 0 {
                continue;
            }
            match &self.from {
                Source::Zeros => data.zero(base + at, len),
                Source::Ram(from, from_at) => data.copy_from(base + at, from, from_at + at, len),
                Source::Slot(_, Some(from)) => data.copy_from(base + at, from, at, len),
                Source::Slot(_, None) => panic!("a slot is read before it is laid"),
            }
        }
    }
}
