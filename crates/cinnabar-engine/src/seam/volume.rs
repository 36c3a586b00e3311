//! Volumes: what a driver says of one when it attaches it, and what became of its blocks.

use crate::seam::plan::Mode;
use cinnabar_format::proof::ProofToken;

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
    /// The volume's name, at most [`limits::NAME_BYTES_MAX`](cinnabar_format::limits::NAME_BYTES_MAX) bytes.
    pub name: String,
    /// Size in bytes, a multiple of 512 and of `align_bytes`.
    pub size_bytes: u64,
    /// Alignment the backend needs for offset, length and memory: 512 or 4096.
    pub align_bytes: u32,
    /// Refuse writes.
    pub read_only: bool,
    /// Initial mode.
    pub mode: Mode,
    /// See [`VolumePlan`](crate::seam::plan::VolumePlan).
    pub share_min_blocks: u64,
    /// See [`VolumePlan`](crate::seam::plan::VolumePlan).
    pub share_max_blocks: u64,
    /// See [`VolumePlan`](crate::seam::plan::VolumePlan).
    pub fill_limit_bytes: u64,
    /// Accesses that continue one another for at least this many bytes bypass the cache; 0 = never.
    pub bypass_sequential_bytes: u64,
    /// Single requests of at least this many bytes bypass the cache; 0 = never.
    pub bypass_large_bytes: u64,
    /// The backend's proof as it stands now. `None`: this backend can't prove anything.
    pub proof: Option<ProofToken>,
    /// What the backend says of the time since the [`Recorded`] proof.
    pub belief: Belief,
    /// Raised outside of the cache device whenever it may have been written without it
    /// ([`IoOp::BumpGeneration`](crate::seam::IoOp::BumpGeneration)); blocks recorded under another one
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
            fill_limit_bytes: 0,
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
