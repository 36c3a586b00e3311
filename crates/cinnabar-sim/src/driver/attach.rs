//! Volumes that come and go: attach with a proof, detach, seal, and what may be believed of them.

use crate::driver::account::Left;
use crate::driver::agenda::Item;
use crate::driver::commands::Control;
use crate::driver::guests::{Served, State};
use crate::driver::io::Flight;
use crate::driver::world::World;
use crate::kinds::{Fault, Path};
use crate::machine::{Factory, Machine};
use crate::medium::proof::{Proof, WINDOW_NS, judge_one};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::{EndStep, VolumeLife};
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::{Belief, DropReason, ProofToken, Recorded, VolumeSpec, Warmth};
use cinnabar_engine::{Answer, Command, Failure};

/// What an engine was told when a volume was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attaching {
    belief: Belief,
    generation: u64,
    /// The recorded proof was one of a crash: it leaves a window.
    written: bool,
    /// It must not be: a seal had been answered.
    sealed: bool,
    /// The device was being given up: it need not hear of this attach.
    abandoning: bool,
    /// The device was being replaced.
    replacing: bool,
    /// The device may have known of it before.
    known: bool,
    /// The host takes it for another device's, which it is not.
    disowned: bool,
    /// The device there was, by its serial number.
    device: Option<u8>,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The backend's proof as it stands now.
    pub(super) fn proof(&self, volume: usize) -> Option<ProofToken> {
        self.can_prove(volume).then(|| self.media.backends[volume].proof())
    }

    /// Can this volume's backend prove anything, as it is now attached?
    pub(super) fn can_prove(&self, volume: usize) -> bool {
        self.profile.volumes[volume].proof && !self.volumes[volume].forgetful
    }

    pub(super) fn attach(&mut self, volume: usize) {
        self.know_size(volume);
        let profile = self.profile.volumes[volume].clone();
        let (share_min_blocks, share_max_blocks) = self.shares();
        // Now and then a backend that could prove it once can't do so any more.
        self.volumes[volume].forgetful = self.rng.chance(0.05);
        if profile.proof && self.volumes[volume].forgetful {
            self.count.faults.add(Fault::ProofLost);
        }
        let attachment = self.media.backends[volume].begin_attachment();
        self.volumes[volume].sticks = false;
        let proof = self.proof(volume);
        let name = format!("vol{volume}");
        let machine = self.machine.as_ref().expect("volumes are attached to a machine");
        let recorded = machine.recorded(&name);
        if let Health::Loading { .. } = machine.health() {
            self.count.paths.add(Path::AttachedWhileLoading);
        }
        let device = self.present.then_some(self.media.cache.serial);
        let before = self.media.backends[volume].generation;
        let generation = self.media.backends[volume].generation_with(device);
        let disowned = self.accounts[volume].own && device.is_some() && generation != before;
        if device.is_some() {
            self.own(volume);
        }
        let spec = VolumeSpec {
            name: name.clone(),
            size_bytes: profile.sectors * SECTOR_BYTES,
            align_bytes: profile.align_bytes,
            read_only: profile.read_only,
            mode: self.volumes[volume].mode,
            share_min_blocks,
            share_max_blocks,
            fill_limit_bytes: 0,
            bypass_sequential_bytes: profile.bypass_sequential_bytes,
            bypass_large_bytes: profile.bypass_large_bytes,
            belief: Belief::Unknown,
            generation,
            proof,
            exclusive: profile.exclusive,
        };
        let mutants = self.options.mutants;
        let life = VolumeLife::new(name, attachment, mutants);
        let command = life.attach(spec, &recorded, |one, now| judge_one(one, now, mutants));
        let Command::Attach(spec) = &command else { unreachable!("it attaches") };
        let attaching = Attaching {
            belief: spec.belief,
            generation,
            written: recorded.iter().any(|recorded| recorded.written),
            sealed: std::mem::take(&mut self.accounts[volume].sealed_before_crash),
            abandoning: self.is_waiting_for(|control| *control == Control::Abandon),
            replacing: self.is_waiting_for(|control| *control == Control::Replace),
            known: self.accounts[volume].may_know,
            disowned,
            device,
        };
        self.accounts[volume].may_know = true;
        self.accounts[volume].forgotten = false;
        if attaching.belief == Belief::Unchanged {
            self.excuse_window(volume, &recorded);
        }
        self.volumes[volume].life = Some(life);
        self.command(Control::Attach(volume, attaching), command);
    }

    /// The volume counts as unchanged although another writer wrote it: that is excused within the
    /// stated window after a crash, and there only.
    fn excuse_window(&mut self, volume: usize, recorded: &[Recorded]) {
        let open = |recorded: &&Recorded| recorded.written;
        let proofs = recorded.iter().filter(open).filter_map(|one| one.proof.as_ref());
        let Some(now) = proofs.map(|proof| Proof::decode(proof).now).max() else { return };
        let back = self.media.backends[volume].stepped_back_ns();
        for foreign in &self.accounts[volume].foreign {
            // A clock that was set back shows an earlier time, and passes the window twice.
            if (now - back..=now + WINDOW_NS + back).contains(&foreign.at_ns) {
                self.oracle.excuse(volume, foreign.first, &foreign.before);
                self.count.faults.add(Fault::ForeignInside);
            }
        }
    }

    /// A volume is attached.
    pub(super) fn attached(
        &mut self,
        volume: usize,
        attaching: &Attaching,
        id: VolumeId,
        warmth: Warmth,
    ) -> Result<(), Violation> {
        self.count_foreign(volume, attaching);
        if attaching.sealed && attaching.written && !self.cache_has_failed() {
            let what = format!("volume {volume} was sealed, and a crash has forgotten it");
            return Err(Violation::new(Kind::NotDurable, what));
        }
        self.check_warmth(volume, attaching, warmth)?;
        let answer = Ok(Answer::<Stamped>::Attached { volume: id, warmth });
        self.life(volume).attached(&answer).expect("it is attached");
        let machine = self.machine.as_ref().expect("a machine is alive");
        self.volumes[volume].names = machine.names(id);
        self.volumes[volume].sync_failed = false;
        self.volumes[volume].time_up = None;
        self.accounts[volume].left = Left::Lost;
        self.accounts[volume].attached = attaching.generation;
        let shards = self.machine.as_ref().map_or(1, Machine::shards);
        self.accounts[volume].mixed = attaching.abandoning || attaching.replacing && shards > 1;
        self.accounts[volume].foreign.clear();
        let attaches = self.volumes[volume].served.attaches + 1;
        self.volumes[volume].served = Served { attaches, ..Served::default() };
        self.media.attach(id, volume);
        self.replay(volume);
        self.arm(volume);
        Ok(())
    }

    fn count_foreign(&mut self, volume: usize, attaching: &Attaching) {
        let kind = match (attaching.belief, self.accounts[volume].left) {
            (Belief::Unknown, Left::Lost) if attaching.written && self.can_prove(volume) => {
                Fault::ForeignOutside
            }
            (Belief::Changed, Left::Sealed { .. }) => Fault::ForeignAfterStop,
            _ => return,
        };
        self.count.faults.add_many(kind, self.accounts[volume].foreign.len() as u64);
    }

    fn check_warmth(
        &mut self,
        volume: usize,
        attaching: &Attaching,
        warmth: Warmth,
    ) -> Result<(), Violation> {
        let Attaching { belief, generation, device, .. } = *attaching;
        let exclusive = self.profile.volumes[volume].exclusive;
        // Some shards may have answered before the device was let go of, with what it had.
        let let_go = self.parked.as_ref().filter(|parked| device == Some(parked.serial()));
        let account = let_go.map_or(&self.accounts[volume], |parked| parked.account(volume));
        let crashed = account.left == Left::Lost;
        let warm = account.may_be_warm(belief, exclusive, generation)
            && !(crashed && self.options.cold_after_crash);
        let due = match account.left {
            Left::Sealed { proven: true, blocks } => blocks.filter(|_| warm && !account.mixed),
            _ => None,
        };
        // A full cache may have gone on evicting as soon as it was open.
        let machine = self.machine.as_ref().expect("a machine is alive");
        let evicted = machine.cache_counters().evicted_blocks;
        // One shard's part may be lost, and the others' there.
        let damaged = self.cache_has_failed();
        let short = |blocks, due| blocks > due || !damaged && blocks + evicted < due;
        // The one with the least to lose is forgotten where indices are short, in some shards or all.
        let forgotten = self.has_few_indices();
        let is_known = |reason| {
            account.justifies(reason, belief, exclusive, generation)
                || reason == DropReason::BackendChanged && self.volumes[volume].resized
                || self.options.cold_after_crash && crashed
                || self.cache_has_failed()
        };
        // A device that comes back has what the host knows to be its own.
        let disowned = |reason| reason == DropReason::WrittenWithoutCache && attaching.disowned;
        let justified = |reason| is_known(reason) && !disowned(reason);
        let sound = match warmth {
            Warmth::New => forgotten || due.is_none_or(|due| due == 0) || self.cache_has_failed(),
            // Of a volume that it never had it can know by an attach that was not answered.
            Warmth::Loading => warm || account.left == Left::Never && attaching.known,
            Warmth::Warm { blocks: 0 } => true,
            Warmth::Warm { blocks } => {
                warm && (forgotten || !due.is_some_and(|due| short(blocks, due)))
            }
            Warmth::Dropped { reason, .. } if disowned(reason) => false,
            // Nothing is lost: only the words differ.
            Warmth::Dropped { blocks: 0, .. } if due.is_none_or(|due| due == 0) => true,
            Warmth::Partly { dropped: 0, .. } => warm,
            Warmth::Partly { reason, .. } => warm && justified(reason),
            Warmth::Dropped { reason, .. } => justified(reason),
        };
        if !sound {
            let what = format!(
                "volume {volume} came back as {warmth:?}: {attaching:?}, exclusive {exclusive}, \
                 left {:?} with generation {}, {due:?} blocks due",
                account.left, account.generation
            );
            return Err(Violation::new(Kind::Warmth, what));
        }
        self.note_warmth(volume, warmth, crashed);
        Ok(())
    }

    /// May an attach have another volume forgotten, in a shard or in all?
    pub(super) fn has_few_indices(&self) -> bool {
        self.profile.setup.config.bounds.volumes <= self.volumes.len() + 2
    }

    fn note_warmth(&mut self, volume: usize, warmth: Warmth, crashed: bool) {
        match warmth {
            Warmth::Warm { blocks } => self.count.warm_blocks += blocks,
            Warmth::Dropped { blocks, .. } => self.count.dropped_blocks += blocks,
            Warmth::Partly { blocks, dropped, .. } => {
                self.count.warm_blocks += blocks;
                self.count.dropped_blocks += dropped;
            }
            Warmth::New | Warmth::Loading => {}
        }
        let path = match warmth {
            Warmth::New => None,
            Warmth::Warm { .. } | Warmth::Partly { .. } | Warmth::Loading if crashed => {
                Some(Path::BelievedAfterCrash)
            }
            Warmth::Warm { .. } | Warmth::Partly { .. } | Warmth::Loading => {
                Some(Path::BelievedAfterStop)
            }
            Warmth::Dropped { reason, .. } => Some(match reason {
                DropReason::BackendChanged => Path::DroppedChanged,
                DropReason::NoProof => Path::DroppedNoProof,
                DropReason::WrittenWithoutCache => Path::DroppedGeneration,
            }),
        };
        if let Some(path) = path {
            self.count.paths.add(path);
        }
        let gone = matches!(warmth, Warmth::New | Warmth::Dropped { .. });
        // Where whole blocks are read, changed and written back, the backend may hold what was
        // excused, too.
        let written_back = self.profile.volumes[volume].align_bytes > 512;
        if gone && !written_back && self.parked.is_none() && self.shelf.is_none() {
            // Nothing is left that could be excused.
            self.oracle.end_excuses(volume, 0..self.profile.volumes[volume].sectors, u64::MAX);
        }
        self.volumes[volume].believed = !gone;
    }

    pub(super) fn detach(&mut self, volume: usize) {
        let first = self.life(volume).leave().expect("an attached volume serves");
        self.leave_doors(volume);
        self.command(Control::Detach(volume), first);
    }

    fn life(&mut self, volume: usize) -> &mut VolumeLife {
        self.volumes[volume].life.as_mut().expect("a volume that is not away has a life")
    }

    /// The machine has answered a command of a volume's end; `left` is how it was left if that was
    /// the last one.
    pub(super) fn end_answered(
        &mut self,
        volume: usize,
        left: Left,
        result: Result<(), Failure>,
    ) -> Result<(), Violation> {
        let id = self.volumes[volume].id().expect("a volume that leaves has an index");
        match self.life(volume).answered(result) {
            EndStep::Ask(command) => unreachable!("its servers restart before: {command:?}"),
            EndStep::TakeProof => self.take_proof(volume),
            EndStep::Gone(_) => {
                self.media.detach(id);
                self.accounts[volume].left = left;
                self.check_kept(volume)?;
                self.let_go(volume)
            }
        }
    }

    /// A volume that was detached could lose nothing any more; it is sealed with its proof.
    fn take_proof(&mut self, volume: usize) -> Result<(), Violation> {
        if let Some(sector) = self.media.backends[volume].first_not_durable() {
            let what = "detached, but not flushed to the end";
            return Err(Violation::at(Kind::NotDurable, volume, sector, what));
        }
        self.check_nothing_kept(volume)?;
        let proves = self.can_prove(volume);
        let backend = &mut self.media.backends[volume];
        let proof = if proves { backend.take_proof() } else { None };
        let proven = proof.is_some();
        let seal = self.life(volume).proved(proof);
        self.command(Control::Seal(volume, proven), seal);
        Ok(())
    }

    /// The engine has let go of a volume: its backend is let go of, and may have another owner, once
    /// no I/O of ours is under way there.
    pub(super) fn let_go(&mut self, volume: usize) -> Result<(), Violation> {
        if !self.volumes[volume].life.as_ref().is_some_and(VolumeLife::is_over) {
            return Ok(());
        }
        let busy = |flight: &Flight| flight.transfer.backend() == Some(volume);
        if let Some(flight) = self.flights.values().find(|flight| busy(flight)) {
            let what = format!("volume {volume} was let go of beside its {:?}", flight.request());
            return Err(Violation::new(Kind::BadIo, what));
        }
        if self.qos_queues.has_of(volume) {
            let what = format!("volume {volume} was let go of while its I/O waits at the door");
            return Err(Violation::new(Kind::BadIo, what));
        }
        self.gone(volume);
        Ok(())
    }

    /// A volume can't be attached while the device is being replaced: once more, a little later.
    pub(super) fn attach_again(&mut self, volume: usize) {
        self.life(volume).refused();
        self.volumes[volume].life = None;
        self.soon(50_000_000, Item::Return(volume));
    }

    fn gone(&mut self, volume: usize) {
        self.losses_over(volume);
        self.accounts[volume].generation = self.media.backends[volume].generation;
        self.volumes[volume].life = None;
        self.soon(50_000_000, Item::Return(volume));
    }

    /// A volume that went while others worked on comes back, unless everything stops anyway.
    pub(super) fn come_back(&mut self, volume: usize) {
        if self.quota == 0 || self.volumes[volume].state() != State::Away {
            return;
        }
        if self.features().forgets && self.rng.chance(0.3) {
            return self.forget(volume);
        }
        if self.features().recreations && self.rng.chance(0.2) {
            self.recreate(volume);
        }
        if self.rng.chance(0.4) {
            self.write_behind(volume);
        }
        self.attach(volume);
    }

    /// The operator has a volume's blocks forgotten.
    pub(super) fn forget(&mut self, volume: usize) {
        self.volumes[volume].forgetting = true;
        self.command(Control::Forget(volume), Command::Forget(format!("vol{volume}")));
    }

    /// After a clean stop: how many blocks of each volume are there, and must be in the next session.
    pub(super) fn remember_blocks(&mut self) {
        let machine = self.machine.as_ref().expect("a machine is alive");
        for (volume, account) in self.volumes.iter().zip(&mut self.accounts) {
            let counters = machine.counters_of(&volume.names);
            if let (Left::Sealed { blocks, .. }, Some(counters)) = (&mut account.left, counters) {
                *blocks = Some(counters.cached_blocks).filter(|_| self.present);
            }
        }
    }
}
