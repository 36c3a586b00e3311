//! Losing the cache device and getting another one.
//!
//! Guests go on: reads pass through, writes too, each volume's first one after a word outside of the
//! device that its copies are not to be believed.

use super::Engine;
use super::identity::Identities;
use super::lifecycle::Lifecycle;
use super::open::Opening;
use crate::config::Config;
use crate::health::PassThroughReason;
use crate::metadata::superblock::{Geometry, Superblock};
use crate::mutant::Mutant;
use crate::outbox::Pending;
use crate::seam::{Answer, Failure, IoError, Payload, RequestId};
use crate::store::{Holding, Store};
use crate::volume::{Volume, VolumeState};

impl<P: Payload> Engine<P> {
    /// An engine without a cache device: volumes pass through until
    /// [`Command::Replace`](crate::Command::Replace) brings one.
    pub fn without_device(config: Config) -> Self {
        let superblock = Superblock::format([0; 16], Geometry::for_capacity(1, 1));
        let mut engine = Self::new(config, superblock);
        engine.store.dead = true;
        engine.lifecycle = Lifecycle::PassThrough(PassThroughReason::NoDevice);
        engine
    }

    /// The device can't be relied on any more. What is under way on it ends by itself.
    pub(super) fn lose_device(&mut self, reason: PassThroughReason) {
        if self.store.dead {
            return;
        }
        self.device_losses += 1;
        self.store.dead = true;
        self.store.drop_all_partials();
        self.store.regions.clear();
        self.checkpoint = None;
        self.log_flush.1 = false;
        self.doubtful = false;
        self.report = crate::health::LoadReport::default();
        self.end_resize(Failure::Io(IoError::Io));
        if self.loader.take().is_some() {
            if !self.config.mutants.is(Mutant::LostLoadKept) {
                self.store.drop_loaded();
            }
            for id in std::mem::take(&mut self.awaiting_load) {
                self.outbox.reply(id, Ok(Answer::Loaded(self.report)));
            }
        }
        match std::mem::replace(&mut self.lifecycle, Lifecycle::PassThrough(reason)) {
            // A clean stop ends without a device; the next start finds it as after a crash.
            Lifecycle::Closing(id, _) => {
                self.lifecycle = Lifecycle::Ended;
                self.abandoning.push((id, Err(Failure::Io(IoError::Io))));
            }
            Lifecycle::Ended => self.lifecycle = Lifecycle::Ended,
            _ => {}
        }
        for (volume, holding) in self.volumes.iter_mut().zip(&mut self.store.holdings) {
            if volume.take_if(|volume| volume.state == VolumeState::Sealed).is_some() {
                // Else its index would never be free again.
                holding.alive = false;
            }
            if let Some(volume) = volume {
                volume.device_lost = true;
            }
        }
        self.identities = Identities::default();
        self.continue_attaches();
        self.answer_recorded();
        self.reroute_gate();
        assert!(
            self.at_gate.is_empty() && self.at_journal.is_empty(),
            "no request waits for its journal"
        );
        assert!(self.loader.is_none() && self.awaiting_load.is_empty(), "or for its index");
    }

    pub(super) fn abandon(&mut self, id: RequestId) {
        if !matches!(self.lifecycle, Lifecycle::Serving | Lifecycle::PassThrough(_)) {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        self.lose_device(PassThroughReason::Abandoned);
        self.abandoning.push((id, Ok(Answer::Done)));
        self.answer_abandoned();
    }

    /// Answers once nothing is under way on the device.
    pub(super) fn answer_abandoned(&mut self) {
        if self.abandoning.is_empty() || self.cache_io_under_way() {
            return;
        }
        for (id, result) in std::mem::take(&mut self.abandoning) {
            self.outbox.reply(id, result);
        }
    }

    /// Whether I/O on the cache device is under way that was not given up.
    pub(super) fn cache_io_under_way(&self) -> bool {
        self.outbox.pending.iter().any(|(_, pending)| match pending {
            Pending::CacheRead { .. }
            | Pending::Edge { slot: Some(_), .. }
            | Pending::Chunk { .. }
            | Pending::Reinsert { .. }
            | Pending::Checkpoint
            | Pending::Load { .. }
            | Pending::Header { .. }
            | Pending::Journal
            | Pending::Open(_)
            | Pending::Control
            | Pending::Reserve { .. }
            | Pending::Resize(_)
            | Pending::CacheFlush => true,
            Pending::BackendRead { .. }
            | Pending::Edge { slot: None, .. }
            | Pending::Backend { .. }
            | Pending::Detach { .. }
            | Pending::Prove { .. }
            | Pending::BumpGeneration { .. }
            | Pending::GivenUp { .. } => false,
        })
    }

    /// Goes on with another, empty device. Every attached volume gets a new generation first: the
    /// old device may come back one day.
    pub(super) fn replace(&mut self, id: RequestId, superblock: Superblock) {
        let idle = matches!(self.lifecycle, Lifecycle::PassThrough(_));
        if !idle || self.cache_io_under_way() || self.replacing.is_some() {
            return self.outbox.reply(id, Err(Failure::Invalid));
        }
        self.replacing = Some((id, Box::new(superblock)));
        self.replace_if_generations_bumped();
    }

    /// A volume's new generation is known, or could not be had.
    pub(super) fn generation_known(&mut self, result: Result<(), IoError>) {
        if let (Err(error), Some((id, _))) = (result, self.replacing.as_ref()) {
            self.outbox.reply(*id, Err(Failure::Io(error)));
            self.replacing = None;
        }
        if let (Err(error), Lifecycle::Opening(id, Opening::BumpGenerations(_))) =
            (result, &self.lifecycle)
        {
            return self.opening_failed(*id, error);
        }
        self.resume_replacement();
    }

    /// A generation has come or a volume has gone: a replacement may be able to go on.
    pub(super) fn resume_replacement(&mut self) {
        self.replace_if_generations_bumped();
        if let Lifecycle::Opening(id, Opening::BumpGenerations(start)) = self.lifecycle {
            self.begin_serving(id, None, start);
        }
    }

    /// Asks for the new generations that are missing; says whether none is.
    pub(super) fn all_generations_bumped(&mut self) -> bool {
        let mut ready = true;
        for index in 0..self.volumes.len() {
            let Some(volume) = &self.volumes[index] else { continue };
            // One that ends without a device is gone in a moment, and forgotten. One that is flushed
            // or waits for its proof may be so for good: its backend is asked.
            let leaves = matches!(volume.state, VolumeState::Sealing(..));
            ready &= volume.generation_bumped && !volume.bumping_generation && !leaves;
            if !volume.generation_bumped && !leaves {
                self.bump_generation(index as u16);
            }
        }
        ready
    }

    /// Goes on when every volume has its new generation.
    fn replace_if_generations_bumped(&mut self) {
        if self.replacing.is_none() || !self.all_generations_bumped() {
            return;
        }
        let (id, superblock) = self.replacing.take().expect("just seen");
        assert!(self.store.dead, "a device that serves is not replaced");
        assert!(
            self.volumes.iter().flatten().all(|v| v.generation_bumped),
            "the old one is not believed"
        );
        self.reopening = true;
        self.devices += 1;
        self.superblock = *superblock;
        self.checkpoint_sequence = 0;
        self.store.free_tables();
        let admits = self.store.admits;
        self.store = Store::new(&self.config, &self.superblock);
        // Until the next plan says otherwise.
        self.store.admits = admits;
        self.store.dead = true;
        self.store.holdings.resize(self.volumes.len(), Holding::default());
        for volume in self.volumes.iter_mut().flatten() {
            volume.group = None;
        }
        // Nothing of the old device keeps an index any more, and what was being swept is gone.
        self.continue_attaches();
        self.begin_open(id);
    }

    /// A device is in use from now on: volumes that are there, if only to leave, start again on it.
    pub(super) fn resume_volumes(&mut self) {
        assert!(!self.store.dead, "a device is there");
        let there = |v: &Volume| v.state != VolumeState::Sealed;
        for index in 0..self.volumes.len() {
            if !self.volumes[index].as_ref().is_some_and(there) {
                continue;
            }
            let incarnation =
                self.take_incarnation().expect("as many are reserved as there can be volumes");
            let old = self.store.holdings[index];
            assert_eq!(old.cached_blocks, 0, "nothing of it is on this device");
            let apart = self.config.heartbeats_apart.then(|| self.next_beat(index as u16));
            let volume = self.volume(index as u16);
            volume.incarnation = incarnation;
            volume.generation_bumped = false;
            volume.device_lost = false;
            volume.written = !volume.spec.read_only;
            volume.beat.due = volume.written;
            volume.beat.next = volume.beat.next.max(apart);
            let unflushed = volume.written;
            volume.writes += u64::from(unflushed);
            self.store.holdings[index] = Holding {
                incarnation,
                alive: true,
                unflushed,
                fill_cap: old.fill_cap,
                ..Holding::default()
            };
            self.join_group(index as u16);
            self.record_volume(index as u16);
            self.beat_at = Some(self.now);
        }
    }
}
