//! Volumes: what the engine keeps of each. What the driver says of one is part of the seam.

use crate::counters::VolumeCounters;
use crate::inflight::RangeLocks;
use crate::plan::Mode;
pub use crate::seam::volume::{Belief, DropReason, Recorded, VolumeSpec, Warmth};
use crate::seam::{IoError, RequestId};
use crate::sequential::{Detector, Stripes};
use crate::units::ByteSpan;
pub use cinnabar_format::proof::ProofToken;

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeState {
    /// Serves requests.
    Attached,
    /// Refuses new requests and waits for those under way.
    Detaching(RequestId),
    /// Its backend is being flushed for the last time.
    Flushing(RequestId),
    /// Its backend has been flushed; waits for the proof.
    Detached,
    /// The device is to know of its end, durably, before the command is answered, with this failure
    /// if there is one.
    Sealing(RequestId, Option<IoError>),
    /// Only its blocks are left, with the proof that says whether to believe them.
    Sealed,
}

/// What a backend flush covers that begins at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covers {
    /// Writes that had completed.
    pub(crate) writes: u64,
    /// The newest chunk of the log, on this device.
    pub(crate) sequence: u64,
    /// Which device, counted: another one numbers its chunks from elsewhere.
    pub(crate) device: u64,
}

/// The regular question for a volume's proof.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beat {
    /// When it is asked next at the earliest; at once if it never was.
    pub(crate) next: Option<crate::units::Instant>,
    pub(crate) in_flight: bool,
    /// Something was written since.
    pub(crate) due: bool,
}

pub(crate) struct Volume {
    pub(crate) spec: VolumeSpec,
    pub(crate) incarnation: u32,
    pub(crate) state: VolumeState,
    pub(crate) counters: VolumeCounters,
    pub(crate) locks: RangeLocks,
    pub(crate) detector: Detector,
    /// Requests under way, flushes included.
    pub(crate) requests: u32,
    /// Those of them that were answered for taking too long, or will be.
    pub(crate) late: u32,
    /// Group that it is a member of, if it is one.
    pub(crate) group: Option<u16>,
    /// What a plan gives it beyond its minimum, if one does.
    pub(crate) share_target_blocks: Option<u64>,
    /// Backend writes, trims and zeroes that have completed, and how many of those a completed
    /// flush covers.
    pub(crate) writes: u64,
    pub(crate) writes_flushed: u64,
    /// Something may have been written since the proof in `spec` was taken.
    pub(crate) written: bool,
    /// A flush of its backend failed in this attachment: which of the writes before it are lost
    /// it is unknown. Every later flush covers them and fails, too, and nothing of it is cached,
    /// or served from the cache, until it is attached again.
    pub(crate) sync_failed: Option<IoError>,
    /// Nothing of it is kept, and no flush covers its writes: its backend may have lost some.
    pub(crate) discarded: bool,
    /// Invalidations under way, those included that wait for their blocks: until they are done, no
    /// flush covers its writes.
    pub(crate) invalidations: u32,
    /// Those that the router has announced: of some this shard has its part, of some it will get it.
    pub(crate) announced: u32,
    pub(crate) beat: Beat,
    /// Its generation has been changed since the device was lost; until then writes wait here.
    pub(crate) generation_bumped: bool,
    pub(crate) awaiting_generation: Vec<usize>,
    /// A new generation is being asked for.
    pub(crate) bumping_generation: bool,
    /// The device was lost under it, with a record of it as being written: writes of it after
    /// a clean detach would look like ourselves.
    pub(crate) device_lost: bool,
    /// Index of the volume of its name that was dropped for it while the index was being loaded:
    /// how many blocks that had is known in the end.
    pub(crate) replaces: Option<u16>,
}

/// Why a request doesn't enter the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    Sequential,
    Large,
    PassThrough,
    /// The index is being loaded.
    Loading,
    /// There is no cache device.
    NoDevice,
}

impl Volume {
    pub(crate) fn new(spec: VolumeSpec, incarnation: u32, state: VolumeState) -> Self {
        Self {
            spec,
            incarnation,
            state,
            counters: VolumeCounters::default(),
            locks: RangeLocks::default(),
            detector: Detector::default(),
            requests: 0,
            late: 0,
            group: None,
            share_target_blocks: None,
            writes: 0,
            writes_flushed: 0,
            written: false,
            sync_failed: None,
            discarded: false,
            invalidations: 0,
            announced: 0,
            beat: Beat::default(),
            generation_bumped: false,
            awaiting_generation: Vec::new(),
            bumping_generation: false,
            device_lost: false,
            replaces: None,
        }
    }

    /// Whether nothing of it is looked up in the cache, or kept.
    pub(crate) fn passes_through(&self) -> bool {
        self.spec.mode == Mode::PassThrough || self.sync_failed.is_some()
    }

    /// Whether, and why, an access bypasses the cache; counts its blocks. `cache` is what keeps
    /// every access from it.
    pub(crate) fn bypass(
        &mut self,
        span: ByteSpan,
        stripes: Stripes,
        cache: Option<Bypass>,
    ) -> Option<Bypass> {
        let run = self.detector.note(span, stripes);
        let passes_through = self.passes_through();
        let over = |bytes: u64, limit: u64| limit > 0 && bytes >= limit;
        let counts = &mut self.counters.bypassed;
        let (reason, count) = if cache == Some(Bypass::NoDevice) {
            (Bypass::NoDevice, &mut counts.no_device)
        } else if passes_through {
            (Bypass::PassThrough, &mut counts.pass_through)
        } else if over(span.len, self.spec.bypass_large_bytes) {
            (Bypass::Large, &mut counts.large)
        } else if over(run, self.spec.bypass_sequential_bytes) {
            (Bypass::Sequential, &mut counts.sequential)
        } else if cache == Some(Bypass::Loading) {
            (Bypass::Loading, &mut counts.loading)
        } else {
            return None;
        };
        *count += span.blocks();
        Some(reason)
    }
}
