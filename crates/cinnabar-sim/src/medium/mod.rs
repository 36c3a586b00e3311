//! Simulated media: the cache device and the backends, holding stamps and metadata pages.
//!
//! An I/O goes through three steps: [`Media::start`] checks it against the seam's rules,
//! [`Media::effect`] lets a part of it happen on the medium (the driver chooses when, in which order
//! and in how many parts), [`Media::finish`] moves what was read into the engine's memory and makes
//! the completion. [`CacheDevice::power_cut`] and [`Backend::power_cut`] lose, reorder and tear what
//! no flush covers.

mod backend;
mod cache_device;
mod cell;
pub mod proof;
mod rules;
mod transfer;
mod volatile;

pub use backend::Backend;
pub use cache_device::{CacheDevice, Death, Losses, Part};
pub(crate) use rules::offset_bytes;
pub use transfer::Transfer;

use crate::rng::Rng;
use crate::stamp::{Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::{BLOCK_BYTES, VolumeId};
use cinnabar_engine::{IoDone, IoError, IoId, IoOp, IoRequest, Target};
use std::collections::BTreeMap;
use std::ops::Range;

/// The cache device, the backends, and which volume is on which backend.
#[derive(Debug)]
pub struct Media {
    pub cache: CacheDevice,
    pub backends: Vec<Backend>,
    attached: BTreeMap<VolumeId, usize>,
    /// Cache I/O under way: range of blocks, and whether it writes.
    busy: BTreeMap<IoId, (Range<u64>, bool)>,
}

impl Media {
    /// Media with nothing attached.
    pub fn new(cache: CacheDevice, backends: Vec<Backend>) -> Self {
        Self { cache, backends, attached: BTreeMap::new(), busy: BTreeMap::new() }
    }

    /// From now on I/O to the volume goes to that backend.
    pub fn attach(&mut self, volume: VolumeId, backend: usize) {
        self.attached.insert(volume, backend);
    }

    /// From now on I/O to the volume breaks the rules.
    pub fn detach(&mut self, volume: VolumeId) {
        self.attached.remove(&volume);
    }

    /// The engine is gone: nothing is attached, nothing under way. What its writes have left counts
    /// as complete at this tick.
    pub fn crash(&mut self, tick: u64) {
        self.attached.clear();
        self.busy.clear();
        self.cache.abandon(tick);
        self.backends.iter_mut().for_each(|backend| backend.abandon(tick));
    }

    /// The cache device is left: what is under way on it is no matter of another one's.
    pub fn leave_cache(&mut self) {
        self.busy.clear();
    }

    /// A part of a transfer will never happen: the engine died.
    pub fn miss(&mut self, transfer: &Transfer, units: Range<usize>) {
        if transfer.backend.is_none() {
            self.cache.miss(transfer, units);
        }
    }

    /// Lets the backends' clocks go on.
    pub fn pass_ns(&mut self, ns: u64) {
        self.backends.iter_mut().for_each(|backend| backend.pass_ns(ns));
    }

    /// Is this block of the cache device under I/O?
    pub fn is_busy(&self, blocks: &Range<u64>) -> bool {
        self.busy.values().any(|(taken, _)| taken.start < blocks.end && blocks.start < taken.end)
    }

    /// Sends a transfer of the cache device, or one block of it, to another place, if there is a
    /// fitting one: a read anywhere where something is, a write where
    /// [`elsewhere`](CacheDevice::elsewhere) says, if no I/O is under way there. Gives the part that
    /// it was meant for, and whether the rest of it goes where it belongs.
    pub fn misdirect(&mut self, transfer: &mut Transfer, rng: &mut Rng) -> Option<(Part, bool)> {
        let (range, writes) = rules::cache_blocks(&transfer.request.op)?;
        let units = transfer.units();
        let astray = if rng.chance(0.5) {
            0..units
        } else {
            let unit = rng.below(units as u64) as usize;
            unit..unit + 1
        };
        let len = astray.len() as u64;
        let place = match &transfer.request.op {
            IoOp::ReadMeta { .. } => self.cache.metadata_elsewhere(rng, &range, len),
            _ => self.cache.elsewhere(rng, &range, len),
        };
        let place = place.filter(|p| !writes || !self.is_busy(&(*p..*p + len)))?;
        let part = self.cache.part(range.start * BLOCK_BYTES);
        self.cache.superblock_astray |= writes && part == Part::Superblock;
        transfer.misdirect(astray, place);
        Some((part, len < units as u64))
    }

    /// Blocks of cache writes under way.
    pub fn blocks_in_flight(&self) -> u64 {
        let writing = self.busy.values().filter(|(_, writes)| *writes);
        writing.map(|(range, _)| range.end - range.start).sum()
    }

    /// The backend an I/O goes to, if it goes to one.
    pub fn backend_of(&self, target: Target) -> Option<usize> {
        match target {
            Target::Cache => None,
            Target::Backend(volume) => self.attached.get(&volume).copied(),
        }
    }

    /// Takes an I/O that the engine asks for at this tick.
    ///
    /// # Errors
    /// [`Kind::BadIo`] or [`Kind::Overlap`] if the engine must not ask for it.
    pub fn start(&mut self, request: IoRequest<Stamped>, tick: u64) -> Result<Transfer, Violation> {
        let backend = self.backend_of(request.target);
        match (request.target, backend) {
            (Target::Cache, _) => {
                rules::check_cache(&request, self.cache.blocks())?;
                self.cache.check_room(&request)?;
                self.claim(&request)?;
            }
            (Target::Backend(_), Some(backend)) => {
                rules::check_backend(&request, &self.backends[backend])?;
            }
            (Target::Backend(volume), None) => {
                let what = format!("I/O to {volume:?}, which is not attached: {request:?}");
                return Err(Violation::new(Kind::BadIo, what));
            }
        }
        Ok(Transfer::new(request, backend, tick))
    }

    /// A write must not meet any other I/O on the cache device: their order would be undefined, and
    /// a slot would be reused under a read.
    fn claim(&mut self, request: &IoRequest<Stamped>) -> Result<(), Violation> {
        let Some((range, writes)) = rules::cache_blocks(&request.op) else { return Ok(()) };
        for (other, (taken, taken_writes)) in &self.busy {
            let overlaps = taken.start < range.end && range.start < taken.end;
            if overlaps && (writes || *taken_writes) {
                let what = format!(
                    "{:?} uses cache blocks {range:?} while {other:?} is using {taken:?}",
                    request.id
                );
                return Err(Violation::new(Kind::Overlap, what));
            }
        }
        self.busy.insert(request.id, (range, writes));
        Ok(())
    }

    /// Lets a part of a transfer happen: `units` are sectors on a backend, blocks on the cache
    /// device. A flush has no units.
    pub fn effect(&mut self, transfer: &mut Transfer, units: Range<usize>) {
        match transfer.backend {
            None => self.cache.effect(transfer, units),
            Some(backend) => self.backends[backend].effect(transfer, units),
        }
    }

    /// Ends a transfer at this tick.
    ///
    /// # Errors
    /// [`Kind::TouchedBuffer`] if its memory changed while it was under way.
    pub fn finish(
        &mut self,
        mut transfer: Transfer,
        result: Result<(), IoError>,
        tick: u64,
    ) -> Result<IoDone, Violation> {
        self.busy.remove(&transfer.request.id);
        transfer.check_memory()?;
        match transfer.backend {
            Some(backend) => self.backends[backend].finish(&transfer, result, tick),
            None => self.cache.finish(&transfer, result, tick),
        }
        transfer.deliver();
        let proves = matches!(transfer.request.op, IoOp::Prove) && result.is_ok();
        let proof = transfer.backend.filter(|_| proves).map(|index| self.backends[index].proof());
        let raises = matches!(transfer.request.op, IoOp::BumpGeneration { .. }) && result.is_ok();
        let raised = transfer.backend.filter(|_| raises);
        let generation = raised.map(|index| self.backends[index].generation);
        let pages = match transfer.request.op {
            IoOp::ReadMeta { pages, .. } | IoOp::WriteMeta { pages, .. } => pages,
            _ => Vec::new(),
        };
        Ok(IoDone { pages, proof, generation, ..IoDone::new(transfer.request.id, result) })
    }

    /// The whole life of a transfer at once.
    ///
    /// # Errors
    /// As [`Media::start`] and [`Media::finish`].
    pub fn carry_out(
        &mut self,
        request: IoRequest<Stamped>,
        tick: u64,
    ) -> Result<IoDone, Violation> {
        let mut transfer = self.start(request, tick)?;
        let units = 0..transfer.units();
        self.effect(&mut transfer, units);
        self.finish(transfer, Ok(()), tick)
    }
}

/// What a sector of a fresh backend holds.
fn initial(backend: usize, sectors: u64) -> Vec<Stamp> {
    (0..sectors).map(|sector| Stamp::new(backend, sector, 0)).collect()
}
