//! Volumes: what the driver gives the engine for them, and what it keeps of each.

use crate::counters::VolumeCounters;
use crate::inflight::RangeLocks;
use crate::plan::Mode;
use crate::seam::{IoError, RequestId};
use crate::sequential::{Detector, Stripes};
use crate::units::ByteSpan;

/// Proof, in the backend's own words, of who a volume is and when it was last written: identity,
/// size, change time and the clock's time for a file. Opaque here; the backend that wrote it judges
/// it ([`Belief`]). The last 8 bytes are the driver's: the attachment in which it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofToken(pub [u8; 64]);

impl ProofToken {
    /// Where the driver's part begins.
    const ATTACHMENT: usize = 56;

    /// The same, taken in this attachment: a number chosen at random for each.
    #[must_use]
    pub fn of_attachment(mut self, attachment: u64) -> Self {
        self.0[Self::ATTACHMENT..].copy_from_slice(&attachment.to_le_bytes());
        self
    }

    /// In which attachment it was taken.
    ///
    /// # Panics
    /// Never: there are bytes enough.
    pub fn attachment(&self) -> u64 {
        u64::from_le_bytes(self.0[Self::ATTACHMENT..].try_into().expect("8 bytes"))
    }
}

/// What the backend says of the time between a recorded [`ProofToken`] and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// No one else wrote.
    Unchanged,
    /// It is another volume, or it was written. Not even `exclusive` outweighs this.
    Changed,
    /// It can't tell.
    Unknown,
}

impl Belief {
    /// Of what several shards recorded of a volume; `judge` is the backend's word on one record.
    ///
    /// Within one attachment each shard records the proofs that it asked for, and one that was not
    /// written has an old one, which then can't tell: one that can is enough. Records of different
    /// attachments are left by a crash in the middle of an attach: a shard that has not recorded
    /// the newer one may hold what that one had dropped, so all of them must agree.
    pub fn of_all(recorded: &[Recorded], judge: impl Fn(&Recorded) -> Self) -> Self {
        let attachment = |record: &Recorded| record.proof.as_ref().map(ProofToken::attachment);
        let mut groups: Vec<(Option<u64>, Self)> = Vec::new();
        for record in recorded {
            let (name, belief) = (attachment(record), judge(record));
            match groups.iter_mut().find(|group| group.0 == name) {
                Some(group) => group.1 = group.1.or(belief),
                None => groups.push((name, belief)),
            }
        }
        groups.into_iter().map(|group| group.1).reduce(Self::and).unwrap_or(Self::Unknown)
    }

    /// One that has proof is enough.
    const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Changed, _) | (_, Self::Changed) => Self::Changed,
            (Self::Unchanged, _) | (_, Self::Unchanged) => Self::Unchanged,
            (Self::Unknown, Self::Unknown) => Self::Unknown,
        }
    }

    /// Both must agree.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Changed, _) | (_, Self::Changed) => Self::Changed,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Unchanged, Self::Unchanged) => Self::Unchanged,
        }
    }

    /// For a backend whose proof holds only as long as it stays the same.
    pub fn of_equality(then: Option<&ProofToken>, now: Option<&ProofToken>) -> Self {
        match (then, now) {
            (Some(then), Some(now)) if then == now => Self::Unchanged,
            (Some(_), Some(_)) => Self::Changed,
            _ => Self::Unknown,
        }
    }
}

/// What the cache device knows of a volume that is not attached; for the driver, which compares it
/// with the backend before it attaches the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The newest proof; `None`: none could be had.
    pub proof: Option<ProofToken>,
    /// We may have written since that proof was taken: it was left by a crash. A change time that
    /// moved within the stated window is then our own doing.
    pub written: bool,
}

/// What a driver says of a volume when it attaches it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// The volume's name, at most [`limits::NAME_BYTES_MAX`](crate::limits::NAME_BYTES_MAX) bytes.
    pub name: String,
    /// Size in bytes, a multiple of 512 and of `align_bytes`.
    pub size_bytes: u64,
    /// Alignment the backend needs for offset, length and memory: 512 or 4096.
    pub align_bytes: u32,
    /// Refuse writes.
    pub read_only: bool,
    /// Initial mode.
    pub mode: Mode,
    /// See [`VolumePlan`](crate::plan::VolumePlan).
    pub share_min_blocks: u64,
    /// See [`VolumePlan`](crate::plan::VolumePlan).
    pub share_max_blocks: u64,
    /// Accesses that continue one another for at least this many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Single requests of at least this many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
    /// The backend's proof as it stands now. `None`: this backend can't prove anything.
    pub proof: Option<ProofToken>,
    /// What the backend says of the time since the [`Recorded`] proof.
    pub belief: Belief,
    /// Raised outside of the cache device whenever it may have been written without it
    /// ([`IoOp::BumpGeneration`](crate::IoOp::BumpGeneration)); blocks recorded under another one
    /// are dropped.
    pub generation: u64,
    /// The operator's assertion that no one else writes this volume: believe without proof, after a
    /// clean detach and after a crash. A proof that says otherwise wins.
    pub exclusive: bool,
}

impl VolumeSpec {
    /// A volume with the usual settings, without any proof of who wrote it.
    pub fn new(name: String, size_bytes: u64) -> Self {
        Self {
            name,
            size_bytes,
            align_bytes: 512,
            read_only: false,
            mode: Mode::default(),
            share_min_blocks: 0,
            share_max_blocks: u64::MAX,
            bypass_sequential_bytes: 0,
            bypass_large_bytes: 0,
            proof: None,
            belief: Belief::Unknown,
            generation: 0,
            exclusive: false,
        }
    }
}

/// What became of the blocks of an earlier run, told at attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// Nothing was cached.
    New,
    /// Blocks are believed.
    Warm {
        /// How many.
        blocks: u64,
    },
    /// Blocks are believed; how many will be known when the index is loaded.
    Loading,
    /// Some shards believe their blocks, and others have dropped them: one that had not recorded
    /// that the volume had grown, for example.
    Partly {
        /// How many are believed; 0 as well while the index is being loaded.
        blocks: u64,
        /// How many were dropped, as far as that is known.
        dropped: u64,
        /// Why.
        reason: DropReason,
    },
    /// Blocks were dropped.
    Dropped {
        /// How many.
        blocks: u64,
        /// Why.
        reason: DropReason,
    },
}

/// Why cached blocks of an earlier run were not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The backend was changed, replaced or resized since.
    BackendChanged,
    /// The backend can't prove that it was not changed, and `exclusive` is not set.
    NoProof,
    /// It was, or may have been, written in a run that could not use this cache device.
    WrittenWithoutCache,
}

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
    /// When it was asked last.
    pub(crate) last: Option<crate::units::Instant>,
    pub(crate) in_flight: bool,
    /// Something was written since.
    pub(crate) due: bool,
}

/// A volume.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_recorded_another_attachment_must_agree() {
        use Belief::{Changed, Unchanged, Unknown};
        let all = |records: &[(u64, Belief)]| {
            let records: Vec<_> = records
                .iter()
                .map(|(attachment, belief)| {
                    let mut proof = ProofToken([0; 64]);
                    proof.0[0] = *belief as u8;
                    Recorded { proof: Some(proof.of_attachment(*attachment)), written: true }
                })
                .collect();
            let beliefs = [Unchanged, Changed, Unknown];
            Belief::of_all(&records, |r| beliefs[usize::from(r.proof.as_ref().expect("one").0[0])])
        };
        assert_eq!(all(&[]), Unknown);
        assert_eq!(all(&[(1, Unknown), (1, Unchanged)]), Unchanged);
        assert_eq!(all(&[(1, Unchanged), (1, Changed)]), Changed);
        assert_eq!(all(&[(1, Unknown), (2, Unchanged)]), Unknown);
        assert_eq!(all(&[(1, Unchanged), (2, Unknown), (2, Unchanged)]), Unchanged);
        assert_eq!(all(&[(1, Changed), (2, Unchanged)]), Changed);
    }
}
