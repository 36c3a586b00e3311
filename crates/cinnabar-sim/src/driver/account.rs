//! What one cache device may believe of one volume, as far as the driver knows.
//!
//! Each device has an account of each volume, and takes it along when it is put away and another one
//! is used.

use crate::stamp::Stamp;
use cinnabar_engine::volume::{Belief, DropReason};

/// How a volume was left when an engine last had it on this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// No engine ever had it, or it was forgotten.
    Never,
    /// Sealed, with a proof or without; after a clean stop, with just so many blocks.
    Sealed { proven: bool, blocks: Option<u64> },
    /// Not sealed, or not yet.
    Lost,
}

/// Sectors that another writer wrote since an engine last had the volume on this device.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pub(super) first: u64,
    /// What they held before: what the device may still hold.
    pub(super) before: Vec<Stamp>,
    /// When, by the backend's clock, in ns.
    pub(super) at_ns: u64,
}

/// A device's account of a volume.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) left: Left,
    /// It was sealed with a proof when the daemon died, and nothing was under way with it.
    pub(super) sealed_before_crash: bool,
    /// The volume's generation when it was left.
    pub(super) generation: u64,
    /// And when it was attached: if it was raised in between, the device need not have heard of it.
    pub(super) attached: u64,
    /// It was attached while the device was being given up or replaced, which some shards had done
    /// and others had not: under which generation each of them recorded it is not known here.
    pub(super) mixed: bool,
    /// The host should have it down as this device's: it was attached, or entrusted, to no other since.
    pub(super) own: bool,
    /// The device may know of it by an attach that was never answered.
    pub(super) may_know: bool,
    /// It was forgotten, and not attached since: it may be written unreported.
    pub(super) forgotten: bool,
    pub(super) foreign: Vec<Foreign>,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            left: Left::Never,
            sealed_before_crash: false,
            generation: 0,
            attached: 0,
            mixed: false,
            own: false,
            may_know: false,
            forgotten: false,
            foreign: Vec::new(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.left = Left::Never;
        self.may_know = false;
        self.forgotten = true;
        self.foreign.clear();
    }

    /// Is this a reason to drop the blocks that the device holds?
    pub(super) fn justifies(
        &self,
        reason: DropReason,
        belief: Belief,
        exclusive: bool,
        generation: u64,
    ) -> bool {
        match reason {
            DropReason::BackendChanged => belief == Belief::Changed,
            DropReason::NoProof => belief == Belief::Unknown && !exclusive,
            DropReason::WrittenWithoutCache => {
                self.generation != generation || self.attached != generation || self.mixed
            }
        }
    }

    /// May blocks be believed?
    pub(super) fn may_be_warm(&self, belief: Belief, exclusive: bool, generation: u64) -> bool {
        let trusted = match belief {
            Belief::Unchanged => true,
            Belief::Changed => false,
            Belief::Unknown => exclusive,
        };
        self.left != Left::Never && trusted && self.generation == generation
    }
}
