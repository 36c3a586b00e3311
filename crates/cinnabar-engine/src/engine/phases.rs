//! What an engine is doing: a set of phases, for a simulation that looks for moments where two
//! mechanisms meet.
//!
//! Nothing is kept for it: [`Engine::phases`] reads the state there is, and costs nothing for those
//! who doesn't ask.

use super::Engine;
use super::lifecycle::{Closing, Lifecycle};
use super::open::Opening;
use crate::seam::Payload;
use crate::store::CheckpointPhase;
use crate::volume::{Volume, VolumeState};

macro_rules! phases {
    ($($(#[$doc:meta])* $phase:ident = $name:literal,)*) => {
        /// Something that an engine does over some time, or a step of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Phase { $($(#[$doc])* $phase,)* }

        impl Phase {
            /// Every phase, in order.
            pub const ALL: &'static [Self] = &[$(Self::$phase,)*];

            /// Its name in reports: lower case, words joined by underscores.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$phase => $name,)* }
            }
        }
    };
}

phases! {
    /// The device is being opened: its metadata are read.
    OpenReads = "open_reads",
    /// A new device, or a doubtful one, is being blanked.
    OpenBlank = "open_blank",
    /// The superblocks are being marked as in use.
    OpenMarks = "open_marks",
    /// Pages of the checkpoint are being loaded.
    LoadPages = "load_pages",
    /// Headers of newer chunks are being read.
    LoadHeaders = "load_headers",
    /// newer chunks and records are being applied.
    LoadReplay = "load_replay",
    /// What passed through meanwhile is being taken out.
    LoadPassed = "load_passed",
    /// A checkpoint waits for chunks to be written.
    CheckpointChunks = "checkpoint_chunks",
    /// Its pages are being written.
    CheckpointPages = "checkpoint_pages",
    /// The device is being flushed before its head.
    CheckpointFlush = "checkpoint_flush",
    /// Its head is being written.
    CheckpointHead = "checkpoint_head",
    /// A page of the journal is being written.
    JournalWrite = "journal_write",
    /// The journal is being rewritten, and its last page is not under way.
    Rebase = "rebase",
    /// The last page of a rebase is being written.
    RebaseLast = "rebase_last",
    /// A segment is announced to be emptied, and the record is not durable.
    CleanAnnounced = "clean_announced",
    /// A segment is being emptied, and none of its blocks is being read.
    CleanScan = "clean_scan",
    /// Blocks to be reinserted are being read.
    CleanReads = "clean_reads",
    /// An emptied segment waits for reads of it.
    CleanParked = "clean_parked",
    /// A chunk is being written.
    ChunkWrite = "chunk_write",
    /// Writes wait for invalidation records.
    Gate = "gate",
    /// A write waits for the record of a region's opening.
    RegionOpening = "region_opening",
    /// A region is active.
    RegionOpen = "region_open",
    /// The record of a region's end is not durable.
    RegionClosing = "region_closing",
    /// Requests go on at the next wake.
    Paused = "paused",
    /// Every write appends an invalidation record until the next checkpoint.
    Doubtful = "doubtful",
    /// The cache device is being flushed.
    LogFlush = "log_flush",
    /// A backend is asked for its proof.
    Prove = "prove",
    /// A generation is being changed.
    BumpGeneration = "bump_generation",
    /// A volume that is leaving waits for its requests.
    DetachWaits = "detach_waits",
    /// Its backend is being flushed.
    DetachFlush = "detach_flush",
    /// It has left, and is not sealed.
    Detached = "detached",
    /// Volumes that were attached, sealed or forgotten wait for their records.
    Recording = "recording",
    /// More incarnations are being reserved.
    Reserving = "reserving",
    /// Blocks of volumes that are gone are being swept out, for their indices are needed.
    Sweeping = "sweeping",
    /// There is no cache device, or it was given up.
    NoDevice = "no_device",
    /// A device that was given up is waited for.
    Draining = "draining",
    /// A replacement waits for generations.
    Replacing = "replacing",
    /// The replacement is being opened.
    Reopening = "reopening",
    /// A clean stop waits for what is under way.
    CloseQuiet = "close_quiet",
    /// Probation is being written out.
    CloseProbation = "close_probation",
    /// The log is waited for.
    CloseLog = "close_log",
    /// The last checkpoint is being written.
    CloseCheckpoint = "close_checkpoint",
    /// The superblocks are being marked as clean.
    CloseMarks = "close_marks",
}

/// A set of phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases(pub u64);

const _: () = assert!(Phase::ALL.len() <= 64);

impl Phases {
    /// Whether the phase is among them.
    pub const fn has(self, phase: Phase) -> bool {
        self.0 & 1 << phase as u8 != 0
    }

    fn set(&mut self, phase: Phase, on: bool) {
        self.0 |= u64::from(on) << phase as u8;
    }

    /// The phases of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but those of another set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Phase> {
        Phase::ALL.iter().copied().filter(move |phase| self.has(*phase))
    }
}

impl<P: Payload> Engine<P> {
    /// What the engine is doing between two batches.
    pub fn phases(&self) -> Phases {
        let mut on = Phases::default();
        self.session_phase(&mut on);
        self.store_phases(&mut on);
        if let Some(loader) = &self.loader {
            on.set(loader.phase(), true);
        }
        let checkpoint = self.checkpoint.as_ref().map(|writer| match writer.phase() {
            CheckpointPhase::Chunks => Phase::CheckpointChunks,
            CheckpointPhase::Pages => Phase::CheckpointPages,
            CheckpointPhase::Flush => Phase::CheckpointFlush,
            CheckpointPhase::Head => Phase::CheckpointHead,
        });
        if let Some(phase) = checkpoint {
            on.set(phase, true);
        }
        on.set(Phase::Gate, !self.at_gate.is_empty());
        on.set(Phase::Paused, !self.paused.is_empty());
        on.set(Phase::Doubtful, self.doubtful);
        on.set(Phase::LogFlush, self.log_flush.1);
        on.set(Phase::Recording, !self.at_journal.is_empty());
        on.set(Phase::Reserving, self.identities.is_reserving());
        on.set(Phase::Sweeping, self.identities.is_sweeping());
        on.set(Phase::Draining, !self.abandoning.is_empty());
        on.set(Phase::Replacing, self.replacing.is_some());
        on.set(Phase::Reopening, self.reopening);
        for volume in self.volumes.iter().flatten() {
            on = on.or(volume_phases(volume));
        }
        on
    }

    fn session_phase(&self, on: &mut Phases) {
        let phase = match &self.lifecycle {
            Lifecycle::Opening(_, stage) => match stage {
                Opening::Reads(_) => Phase::OpenReads,
                Opening::Cold(..)
                | Opening::Blank(..)
                | Opening::BlankHeads(..)
                | Opening::Empty(..) => Phase::OpenBlank,
                Opening::Mark(..) => Phase::OpenMarks,
                Opening::BumpGenerations(_) => Phase::Replacing,
            },
            Lifecycle::PassThrough(_) => Phase::NoDevice,
            Lifecycle::Closing(_, step) => match step {
                Closing::Quiet => Phase::CloseQuiet,
                Closing::Probation(_) => Phase::CloseProbation,
                Closing::Log => Phase::CloseLog,
                Closing::Checkpoint => Phase::CloseCheckpoint,
                Closing::Marking(_) => Phase::CloseMarks,
            },
            Lifecycle::Fresh | Lifecycle::Serving | Lifecycle::Ended => return,
        };
        on.set(phase, true);
    }

    fn store_phases(&self, on: &mut Phases) {
        if self.store.dead {
            return;
        }
        let (writes, rebases, last) = self.store.journal.under_way();
        on.set(Phase::JournalWrite, writes);
        on.set(Phase::Rebase, rebases && !last);
        on.set(Phase::RebaseLast, rebases && last);
        on.set(Phase::ChunkWrite, !self.store.is_written());
        let durable = |ticket| self.store.journal.is_durable(ticket);
        let (opening, open, closing) = self.store.regions.phases(durable);
        on.set(Phase::RegionOpening, opening);
        on.set(Phase::RegionOpen, open);
        on.set(Phase::RegionClosing, closing);
        let (announced, victim, reads, parked) = self.store.cleaning();
        on.set(Phase::CleanAnnounced, announced);
        on.set(Phase::CleanScan, victim && !reads);
        on.set(Phase::CleanReads, reads);
        on.set(Phase::CleanParked, parked);
    }
}

fn volume_phases(volume: &Volume) -> Phases {
    let mut on = Phases::default();
    match volume.state {
        VolumeState::Detaching(_) => on.set(Phase::DetachWaits, true),
        VolumeState::Flushing(_) => on.set(Phase::DetachFlush, true),
        VolumeState::Detached | VolumeState::Sealing(..) => on.set(Phase::Detached, true),
        VolumeState::Attached | VolumeState::Sealed => {}
    }
    on.set(Phase::Prove, volume.beat.in_flight);
    on.set(Phase::BumpGeneration, volume.bumping_generation);
    on
}
