//! The heartbeat: while a volume is being written, its backend is flushed and its proof recorded
//! once a period; while chunks are being written, the cache device is flushed.
//!
//! Called at the end of each batch. Without the first a written copy is not believed after a crash;
//! without the second it may not be there.

use super::Engine;
use crate::metadata::journal::Record;
use crate::mix;
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{IoError, IoOp, Payload, Target};
use crate::units::{Instant, VolumeId};
use crate::volume::{Covers, ProofToken, Volume, VolumeState};

impl<P: Payload> Engine<P> {
    /// What a flush of this volume's backend covers if it begins now.
    pub(super) fn covers(&self, index: u16) -> Covers {
        let volume = self.volumes[usize::from(index)].as_ref().expect("a volume in use");
        Covers { writes: volume.writes, sequence: self.store.log.sequence, device: self.devices }
    }

    /// A flush of this volume's backend has ended. Gives what that means to those who waited: one
    /// that failed sticks, for a backend may report a lost write once, and not to each who asks.
    pub(super) fn flush_ended(
        &mut self,
        index: u16,
        covers: Covers,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        let forgetful = self.config.mutants.is(Mutant::FailedSyncForgotten);
        let volume = self.volumes[usize::from(index)].as_mut().expect("a volume in use");
        assert!(covers.writes <= volume.writes, "a flush covers writes that there were");
        assert!(covers.device <= self.devices, "on a device that there was");
        if let Err(error) = result
            && loses_writes(error)
            && !forgetful
        {
            volume.sync_failed.get_or_insert(error);
        }
        if let Some(error) = volume.sync_failed {
            return Err(error);
        }
        result?;
        if volume.discarded && !self.config.mutants.is(Mutant::DiscardedCovered) {
            return Ok(());
        }
        // What a server has lost is reported before its flush ends, but may wait for requests under
        // way.
        let waits = volume.invalidations > 0 && !self.config.mutants.is(Mutant::InvalidatedCovered);
        if waits || volume.announced > 0 {
            return Ok(());
        }
        volume.writes_flushed = volume.writes_flushed.max(covers.writes);
        let holding = &mut self.store.holdings[usize::from(index)];
        if covers.device == self.devices {
            holding.flushed = holding.flushed.max(covers.sequence);
        }
        holding.unflushed = volume.writes != volume.writes_flushed;
        if !holding.unflushed {
            holding.flushed = self.store.log.sequence;
        }
        assert!(holding.flushed <= self.store.log.sequence, "a flush covers what there was");
        assert!(volume.writes_flushed <= volume.writes, "and no write that is to come");
        Ok(())
    }

    /// An invalidation has begun, of which this shard may be asked its part later.
    pub(super) fn invalidating(&mut self, index: u16) {
        if let Some(Some(volume)) = self.volumes.get_mut(usize::from(index)) {
            volume.announced += 1;
        }
    }

    /// It has ended in every shard.
    pub(super) fn invalidated(&mut self, index: u16) {
        if let Some(Some(volume)) = self.volumes.get_mut(usize::from(index)) {
            assert!(volume.announced > 0, "what has ended was announced");
            volume.announced -= 1;
            self.cover_again(index);
        }
    }

    /// An invalidation is done, or was given up.
    pub(super) fn invalidation_ends(&mut self, index: u16) {
        let volume = self.volume(index);
        assert!(volume.invalidations > 0, "an invalidation under way counts");
        volume.invalidations -= 1;
        self.cover_again(index);
    }

    /// Flushes may cover this volume's writes again, and those that ended meanwhile have not.
    fn cover_again(&mut self, index: u16) {
        let volume = self.volume(index);
        let unflushed = volume.writes != volume.writes_flushed;
        if unflushed && !volume.beat.due && volume.sync_failed.is_none() {
            self.beat_due(index);
        }
    }

    /// A backend write, trim or zero is about to be issued, or has ended, well or not: what it did
    /// is not durable.
    pub(super) fn note_written(&mut self, index: u16, ended: bool) {
        let volume = self.volumes[usize::from(index)].as_mut().expect("a volume in use");
        if ended {
            volume.writes += 1;
            self.store.holdings[usize::from(index)].unflushed = true;
        }
        // A proof would prove nothing any more.
        if !volume.beat.due && volume.sync_failed.is_none() {
            self.beat_due(index);
        }
    }

    /// A volume's proof is to be asked for, a period after the last one.
    pub(super) fn beat_due(&mut self, index: u16) {
        let volume = self.volumes[usize::from(index)].as_mut().expect("a volume in use");
        volume.beat.due = true;
        let at = volume.beat.next.unwrap_or(self.now);
        self.beat_at = Some(self.beat_at.map_or(at, |beat| beat.min(at)));
    }

    /// What is due by now; asks to be woken for what is due later.
    pub(super) fn beat(&mut self) {
        if !self.config.crash_safe || self.store.dead || !self.lifecycle.is_serving() {
            return;
        }
        if self.store.unflushed_log && self.beat_at.is_none() {
            self.beat_at = Some(self.log_flush.0.plus_ns(self.config.heartbeat_ns));
        }
        let Some(at) = self.beat_at else { return };
        if at > self.now {
            return self.wake_at(at);
        }
        let mut next = None;
        for index in 0..self.volumes.len() {
            let due = self.volumes[index].as_ref().and_then(due);
            match due {
                Some(at) if at <= self.now => self.ask_for_proof(index as u16),
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        let (last, in_flight) = self.log_flush;
        if self.store.unflushed_log && !in_flight {
            let at = last.plus_ns(self.config.heartbeat_ns);
            if at <= self.now {
                self.flush_cache();
            } else {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
            }
        }
        self.beat_at = next;
        if let Some(next) = next {
            self.wake_at(next);
        }
    }

    fn ask_for_proof(&mut self, index: u16) {
        let covers = self.covers(index);
        let next = self.next_beat(index);
        let volume = self.volume(index);
        assert!(!volume.beat.in_flight, "one proof at a time");
        assert_eq!(volume.state, VolumeState::Attached, "of a volume that is served");
        volume.beat.next = Some(next);
        volume.beat.in_flight = true;
        volume.beat.due = false;
        volume.counters.backend_flushes += 1;
        let pending = Pending::Prove { volume: index, covers };
        self.outbox.io(Target::Backend(VolumeId(index)), IoOp::Prove, pending);
    }

    /// When a volume that is asked for its proof now is asked again at the earliest: a period later or, where
    /// volumes are to be asked apart, at the next of its own moments, so that a pause does not bring
    /// them into step for good.
    pub(super) fn next_beat(&self, index: u16) -> Instant {
        let period = self.config.heartbeat_ns;
        if !self.config.heartbeats_apart || period == 0 {
            return self.now.plus_ns(period);
        }
        let volume = self.volumes[usize::from(index)].as_ref().expect("a volume in use");
        let hash = volume.spec.name.bytes().fold(0, |hash, byte| mix(u64::from(byte), hash));
        let since = (self.now.0 % period + period - hash % period) % period;
        self.now.plus_ns(period - since)
    }

    /// A volume's proof has come, or the backend could not give it.
    pub(super) fn proved(
        &mut self,
        index: u16,
        covers: Covers,
        result: Result<(), IoError>,
        proof: Option<ProofToken>,
    ) {
        let result = self.flush_ended(index, covers, result);
        let volume = self.volume(index);
        assert!(volume.beat.in_flight, "a proof that comes was asked for");
        volume.beat.in_flight = false;
        if result.is_err() {
            volume.counters.backend_errors += 1;
            volume.beat.due = volume.sync_failed.is_none();
        }
        let proven = result.is_ok() && proof.is_some();
        if proven {
            volume.spec.proof = proof;
        }
        let again = due(volume);
        if let Some(at) = again {
            self.beat_at = Some(self.beat_at.map_or(at, |beat| beat.min(at)));
        }
        if !self.store.dead && result.is_ok() {
            let incarnation = self.volume(index).incarnation;
            let sequence = self.store.holdings[usize::from(index)].flushed;
            let session = self.store.session;
            self.store.journal.append(Record::Flushed { incarnation, session, sequence });
            if proven {
                self.record_volume(index);
            }
        }
        self.detach_if_quiet(index);
    }

    /// The cache device has been flushed, or could not be.
    pub(super) fn cache_flushed(&mut self, result: Result<(), IoError>) {
        self.log_flush.1 = false;
        if result.is_err() {
            self.store.count_device_error();
            self.store.unflushed_log = true;
        }
    }
}

/// Whether a flush that failed so may have lost what was written before it. One that took too long
/// goes on, and one that the backend has none of is no promise.
const fn loses_writes(error: IoError) -> bool {
    !matches!(error, IoError::TimedOut | IoError::Unsupported)
}

/// When a volume is to be asked for its proof, if it is.
fn due(volume: &Volume) -> Option<Instant> {
    let serving = matches!(volume.state, VolumeState::Attached);
    let asks = serving && volume.beat.due && !volume.beat.in_flight;
    asks.then(|| volume.beat.next.unwrap_or(Instant(0)))
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, superblock, volume};
    use crate::config::Config;
    use crate::seam::Command;
    use crate::units::{BLOCK_BYTES, VolumeId};
    use crate::volume::ProofToken;

    /// Chunks are numbered by their device, and a new device's numbers may be much lower.
    #[test]
    fn a_flush_that_began_on_another_device_covers_no_chunk_of_this_one() {
        // The second session's numbers are beyond all that the first can have used.
        let mut rig = Rig::open(1020).crash();
        rig.ask(vec![Command::Attach(volume("v"))]);
        rig.holds_proofs = true;
        rig.wait(2_000_000_000);
        rig.ask(vec![Command::Abandon]);
        let replaced = rig.ask(vec![Command::Replace(Box::new(superblock(1020)))])[0];
        assert!(rig.answer(replaced).is_ok());
        rig.release();
        let (holding, log) = (&rig.engine.store.holdings[0], &rig.engine.store.log);
        assert!(holding.unflushed, "the volume is still being written");
        assert!(holding.flushed <= log.sequence, "{} of {}", holding.flushed, log.sequence);
    }

    /// How many of 256 volumes are proved at once at most, while they are written.
    fn proved_at_once(heartbeats_apart: bool) -> u64 {
        const STEPS: u64 = 32;
        let config = Config { heartbeats_apart, ..Config::default() };
        let mut rig = Rig::open_with(config, 1020);
        rig.ask((0..256).map(|at| Command::Attach(volume(&format!("vm-{at}")))).collect());
        let proofs = |rig: &Rig| {
            let counters = (0..256).filter_map(|at| rig.engine.volume_counters(VolumeId(at)));
            counters.map(|counters| counters.backend_flushes).sum::<u64>()
        };
        let mut most = 0;
        for step in 0..4 * STEPS {
            // Each proof is followed by a write.
            (0..256).for_each(|at| rig.engine.note_written(at, true));
            let before = proofs(&rig);
            // The process is stopped for a while, after which all are due.
            let pause = if step == 2 * STEPS { 5 } else { 0 };
            rig.wait(config.heartbeat_ns / STEPS + pause * config.heartbeat_ns);
            if pause == 0 {
                most = most.max(proofs(&rig) - before);
            }
        }
        assert!(proofs(&rig) >= 3 * 256, "all are proved each period");
        most
    }

    #[test]
    fn volumes_that_are_attached_at_once_are_not_proved_at_once() {
        assert!(proved_at_once(true) <= 32, "a 32nd of the period has about a 32nd of them");
        assert_eq!(proved_at_once(false), 256, "as it would be");
    }

    /// That proof is of the old size: after a crash the volume would look like another one.
    #[test]
    fn a_proof_that_was_under_way_while_a_volume_grew_is_followed_by_another() {
        let mut rig = Rig::open(1020);
        rig.ask(vec![Command::Attach(volume("v"))]);
        (rig.holds_proofs, rig.proof) = (true, Some(ProofToken([1; 64])));
        rig.wait(2_000_000_000);
        let grow = Command::Grow(VolumeId(0), 128 * BLOCK_BYTES, Some(ProofToken([2; 64])));
        let grown = rig.ask(vec![grow])[0];
        assert!(rig.answer(grown).is_ok());
        rig.release();
        rig.proof = Some(ProofToken([3; 64]));
        rig.wait(2_000_000_000);
        let recorded = rig.crash().engine.recorded("v").expect("it is known");
        assert_eq!(recorded.proof, Some(ProofToken([3; 64])));
    }
}
