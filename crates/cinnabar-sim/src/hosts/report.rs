//! What has happened in runs that broke no promise.

macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)*) => {
        /// Something that a search of two hosts must have met.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HostFault { $($(#[$doc])* $fault,)* }

        impl HostFault {
            /// Every one, in order.
            pub const ALL: &'static [Self] = &[$(Self::$fault,)*];
        }
    };
}

faults! {
    /// A host has taken the volume.
    Taken,
    /// It has taken it back, and believed what it had cached.
    BelievedAgain,
    /// What it had cached was not believed.
    Dropped,
    /// The other host has let go of the volume.
    Given,
    /// A guest has moved with its memory.
    Moved,
    /// A guest was started on the other host.
    FailedOver,
    /// A host was frozen, and went on later.
    Frozen,
    /// It was the owner, and another one had taken the volume meanwhile.
    WokenTooLate,
    /// A write that it had in hand has reached the image after that.
    LateWrite,
    /// It was frozen for so long that it has sent again what it had no answer to.
    SentAgain,
    /// A write of it was refused by the image.
    Fenced,
    /// A host was cut off from the image and the other host.
    CutOff,
    /// An owner's request has waited, for its lock was not seen within the lease.
    LeaseOver,
    /// An owner has found that its lock was broken.
    LockLost,
    /// A host that was to break a lock has waited for its owner's lease.
    Outwaited,
    /// A daemon was killed, or a host lost power.
    Crash,
    /// Both hosts and the image's server lost power.
    Outage,
    /// The operator's word has taken a volume.
    Forced,
    /// It was wrong: the other host served the volume on.
    Breach,
    /// A message was lost.
    MessageLost,
    /// A message came twice.
    MessageDoubled,
    /// An answer came to an attempt that was over.
    AnswerLate,
    /// The other host was refused.
    Refused,
    /// A hand-over has ended with a flush that failed.
    DrainFailed,
    /// The image could not be opened for writing.
    OpenFailed,
    /// The record could not be made durable.
    RecordFailed,
    /// A destination has read before it owned the volume.
    EarlyRead,
    /// A request has waited for the volume.
    Held,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// Seeds run.
    pub seeds: u64,
    /// Requests answered.
    pub answered: u64,
    /// Blocks believed and read from a cache.
    pub read_hits: u64,
    /// Simulated time, in ns.
    pub virtual_ns: u64,
    /// Of one run: the order of all that happened.
    pub digest: u64,
    counts: Vec<u64>,
}

impl HostReport {
    pub(super) fn note(&mut self, fault: HostFault) {
        self.counts.resize(HostFault::ALL.len(), 0);
        self.counts[fault as usize] += 1;
    }

    /// How often it has happened.
    pub fn of(&self, fault: HostFault) -> u64 {
        self.counts.get(fault as usize).copied().unwrap_or(0)
    }

    /// Adds another one; digests mean nothing after that.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.answered += other.answered;
        self.read_hits += other.read_hits;
        self.virtual_ns += other.virtual_ns;
        self.counts.resize(HostFault::ALL.len(), 0);
        for fault in HostFault::ALL {
            self.counts[*fault as usize] += other.of(*fault);
        }
    }

    /// What has never happened.
    pub fn missing(&self) -> Vec<HostFault> {
        HostFault::ALL.iter().copied().filter(|fault| self.of(*fault) == 0).collect()
    }
}
