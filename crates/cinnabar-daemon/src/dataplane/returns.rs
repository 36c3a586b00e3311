//! Volumes that others may have written while they were not served here: a snapshot is left at a clean end, and
//! at the return only what has changed since is dropped (docs/design/returning.md).
//!
//! ```text
//! end:    flushed ─► snapshot ─► proof that names it ─► seal
//! return: ordinary proof fails ─► compare ─► attach, without a proof ─► drop what has changed ─► serve
//!         dropped durably ─► remove the snapshot ─► record a proof
//! ```

use super::background::Task;
use super::control::PendingCommand;
use super::plane::DataPlane;
use super::requests::GuestRequest;
use super::volume::Volume;
use super::writes::Subject;
use cinnabar_backend::disk::Disk;
use cinnabar_backend::returning::{ReturnError, SnapNames};
use cinnabar_backend::{Proof, rbd::LockState};
use cinnabar_config::messages::{AnswerTo, CommandError, VolumeMode};
use cinnabar_driver::returning::{covering, left_by_all};
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::volume::{Belief, ProofToken};
use cinnabar_engine::{Command, Failure};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest time in which a snapshot is taken at the end of a volume.
const SNAP_WAIT_MAX: Duration = Duration::from_secs(10);

/// A volume that is being compared with its snapshot, before it is attached.
pub(super) struct Comparing {
    snap: u64,
    /// Of the operator who adds it.
    answer: Option<AnswerTo<()>>,
    given_up: Arc<AtomicBool>,
}

/// What became of a comparison: what has changed.
pub(super) type Compared = Result<Vec<ByteSpan>, ReturnError>;

/// What became of removing snapshots: how many there were, and the proof behind that.
#[derive(Debug, Default)]
pub(super) struct Swept {
    removed: usize,
    proof: Option<ProofToken>,
}

impl DataPlane {
    /// Attaches a volume to the engines; one whose ordinary proof fails is compared first, if it left a
    /// snapshot.
    pub(super) fn attach_to_engines(&mut self, key: usize, answer: Option<AnswerTo<()>>) {
        let left = self.left_by(key);
        self.volumes[key].left_snap = left;
        let Some(snap) = left.filter(|_| self.is_to_be_compared(key)) else {
            return self.attach_with(key, answer, None);
        };
        let given_up = Arc::new(AtomicBool::new(self.stop.is_some()));
        let disk = Arc::clone(&self.volumes[key].io.disk);
        let subject = self.subject(key);
        tracing::info!(
            volume = self.volumes[key].config.name,
            "its change proof fails: it is compared with the snapshot that was left"
        );
        self.background.start(Task::Compare {
            subject,
            disk,
            snap,
            given_up: Arc::clone(&given_up),
        });
        self.volumes[key].comparing = Some(Comparing { snap, answer, given_up });
    }

    /// The snapshot for which all that the device holds of a volume stands.
    fn left_by(&self, key: usize) -> Option<u64> {
        let Volume { life, io, .. } = &self.volumes[key];
        left_by_all(&self.data_thread.recorded(life.name()), |proof| io.disk.left_snap(proof))
    }

    /// Whether the ordinary proof can't tell, and the operator wants more than that.
    fn is_to_be_compared(&self, key: usize) -> bool {
        let volume = &self.volumes[key];
        let attachment = volume.io.attachment;
        let now = volume.proof.clone().map(|proof| proof.of_attachment(attachment));
        let judge = |record: &_| volume.io.disk.judge(record, now.as_ref());
        let unknown = || {
            let recorded = self.data_thread.recorded(volume.life.name());
            Belief::of_all(&recorded, judge) == Belief::Unknown
        };
        self.leaves_snap(key) && !volume.is_renewed() && unknown()
    }

    /// Whether all that was written of a volume is on its image, and a snapshot of that is wanted.
    fn leaves_snap(&self, key: usize) -> bool {
        let Volume { config, moves, writes, .. } = &self.volumes[key];
        let in_log = config.mode == VolumeMode::WriteBack || writes.place().is_some();
        config.return_snapshot && !config.exclusive && moves.is_none() && !in_log
    }

    /// By what names a volume that ends now is to leave a snapshot, and until when.
    pub(super) fn snap_to_leave(&self, key: usize) -> Option<(SnapNames, std::time::Instant)> {
        let (device, _) = self.cache.identity()?;
        let volume = &self.volumes[key];
        if !self.leaves_snap(key) || volume.is_renewed() || self.is_swapped(key) {
            return None;
        }
        // The rest of a stop is for proofs and the checkpoint.
        let left = self.stop.as_ref().map_or(SNAP_WAIT_MAX, |stop| {
            stop.left(self.data_thread.clock.now()).div_f64(2.0).min(SNAP_WAIT_MAX)
        });
        Some((SnapNames::new(device), std::time::Instant::now() + left))
    }

    /// A stop begins: comparisons end early, and what they would have found is found at the next start.
    pub(super) fn give_up_comparing(&self) {
        for (_, volume) in &self.volumes {
            if let Some(comparing) = &volume.comparing {
                comparing.given_up.store(true, Relaxed);
            }
        }
    }

    /// It is known what of a volume has changed, or not.
    pub(super) fn compared(&mut self, now: Instant, subject: Subject, result: Compared) {
        let Some(key) = self.key_of(subject) else { return };
        let Some(Comparing { snap, answer, .. }) = self.volumes[key].comparing.take() else {
            return;
        };
        if self.stop.is_some() {
            // Nothing was attached: the snapshot and the record stay as they are.
            return self.refuse_attach(now, key, answer, CommandError::gone());
        }
        let held = self.volumes[key].io.disk.lock_state() == LockState::Held;
        // Another device may have taken the place of the one that was asked.
        let same = self.left_by(key) == Some(snap);
        let Volume { config, .. } = &self.volumes[key];
        let volume = &config.name;
        match result {
            Ok(changed) if held && same => {
                let bytes = changed.iter().map(|range| range.len).sum::<u64>();
                tracing::info!(
                    volume,
                    bytes,
                    ranges = changed.len(),
                    "others have written it: what they may have changed is dropped, the rest is kept"
                );
                self.attach_with(key, answer, Some(changed));
            }
            result => {
                let reason = result.err().unwrap_or(ReturnError::Lock);
                tracing::warn!(
                    volume, %reason,
                    "it is not known what others have written: all that is cached of it is dropped"
                );
                self.attach_with(key, answer, None);
            }
        }
    }

    /// Something of what others have written is dropped, or a volume begins to serve: goes on once all is.
    pub(super) fn drops_for_return(&mut self, key: usize) {
        let drops = |request: &GuestRequest| request.drops_doubtful(key);
        let under_way = self.requests.iter().filter(|(_, request)| drops(request)).count();
        let Some(volume) = self.volumes.get_mut(key) else { return };
        if volume.life.has_returned(under_way) {
            tracing::info!(volume = volume.config.name, "all that others have changed is dropped");
            self.sweep_snaps(key);
        }
    }

    /// Removes what earlier ends have left of a volume that serves, if there may be something.
    pub(super) fn sweep_snaps(&mut self, key: usize) {
        let volume = &self.volumes[key];
        let Some((device, _)) = self.cache.identity() else { return };
        let wanted = volume.config.return_snapshot || volume.left_snap.is_some();
        if !wanted || self.stands_by(key) || volume.life.is_returning() {
            return;
        }
        let (number, disk) = (volume.left_snap, Arc::downgrade(&volume.io.disk));
        let (subject, names) = (self.subject(key), SnapNames::new(device));
        self.background.start(Task::Sweep { subject, disk, names, number });
    }

    /// Earlier snapshots are gone. Their removal has changed the image's header, so a proof is recorded.
    pub(super) fn swept(&mut self, subject: Subject, swept: Swept) {
        let Some(key) = self.key_of(subject) else { return };
        let volume = &self.volumes[key];
        let Some(id) = volume.life.serving() else { return };
        if swept.removed > 0 {
            tracing::info!(volume = volume.config.name, removed = swept.removed, "swept snapshots");
        }
        let size_bytes = volume.io.disk.size_bytes();
        let Some(proof) = volume.life.proof_to_record(swept.proof) else { return };
        if !volume.grow_due {
            let proof = Some(proof.of_attachment(volume.io.attachment));
            self.command(PendingCommand::Reproved(key), &Command::Grow(id, size_bytes, proof));
        }
    }

    /// The engines have recorded that proof, or could not: then a crash leaves the volume cold, no more.
    pub(super) fn reproved(&self, key: usize, result: Result<(), Failure>) {
        if let (Err(reason), Some(volume)) = (result, self.volumes.get(key)) {
            tracing::debug!(volume = volume.config.name, %reason, "a proof was not recorded");
        }
    }
}

/// Compares a disk with its snapshot, for [`Task::Compare`]. Gives ranges of whole blocks.
#[expect(clippy::needless_pass_by_value, reason = "the disk is let go of here")]
pub(super) fn compare(disk: Arc<Disk>, snap: u64, given_up: &AtomicBool) -> Compared {
    let changed = disk.changed_since(snap, given_up)?;
    Ok(covering(&changed, disk.size_bytes()))
}

/// Removes snapshots, for [`Task::Sweep`].
pub(super) fn sweep(disk: &Weak<Disk>, names: &SnapNames, number: Option<u64>) -> Swept {
    let Some(disk) = disk.upgrade() else { return Swept::default() };
    let path = disk.path().display();
    let removed = disk.sweep_snaps(names, number).unwrap_or_else(|reason| {
        tracing::warn!(%path, %reason, "a snapshot that was left is not removed");
        0
    });
    let proof = disk.read_proof().unwrap_or_else(|reason| {
        tracing::warn!(%path, %reason, "no proof of who wrote the volume");
        None
    });
    Swept { removed, proof }
}

impl super::stop::Stop {
    /// Time that is left of it.
    pub(super) fn left(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.deadline().0.saturating_sub(now.0))
    }
}
