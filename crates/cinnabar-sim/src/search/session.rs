//! Sessions: start, attach, detach, clean stop, crash.

use super::moves::{Crash, Device};
use super::requests::{Left, State};
use super::world::{HOLD_DEVICE, World, new_life};
use crate::machine::{Factory, Machine};
use crate::medium::proof::judge_one;
use crate::rng::Rng;
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::{EndStep, VolumeLife};
use cinnabar_engine::health::Start;
use cinnabar_engine::plan::{Mode, Plan, VolumePlan};
use cinnabar_engine::units::{SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Answer, Command, Event, Failure, IoOp, RequestId};

/// A command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Open,
    AwaitLoad,
    Attach(usize),
    Detach(usize),
    Seal(usize, bool),
    Forget(usize),
    Abandon,
    Replace,
    Close,
}

impl World {
    pub(super) fn command(&mut self, control: Control, command: Command) {
        let id = RequestId(self.number());
        self.note(|_| format!("  command {}: {control:?}", id.0));
        self.controls.insert(id, control);
        self.batch.push(Event::Control(id, command));
    }

    /// Begins a session.
    pub(super) fn start(&mut self, device: Device) -> Result<(), Violation> {
        self.insert(device);
        self.stopping = None;
        self.replaced = false;
        self.closed = false;
        self.device_failed = false;
        let machine = if self.present {
            let pages = self.media.cache.superblocks();
            match self.factory.start(&self.setup.cache, &pages) {
                Ok(machine) => Some(machine),
                Err(_) if self.media.cache.damaged => None,
                Err(error) => {
                    let what = format!("the superblock is not one any more: {error}");
                    return Err(Violation::new(Kind::Warmth, what));
                }
            }
        } else {
            None
        };
        self.machine = machine;
        self.life = new_life(self.setup.cache.config.mutants);
        if self.machine.is_none() {
            self.without_device();
        } else {
            self.life.begin();
        }
        self.command(Control::Open, Command::Open);
        Ok(())
    }

    fn without_device(&mut self) {
        if self.present {
            self.park();
        }
        self.machine =
            Factory::<Stamped>::start_without_device(&mut self.factory, &self.setup.cache);
    }

    /// What follows from what has been answered; false: nothing.
    pub(super) fn go_on(&mut self) -> Result<bool, Violation> {
        if self.watch_device() || self.hold & HOLD_DEVICE == 0 && self.advance_device() {
            return Ok(true);
        }
        if self.device_failed && self.held.is_empty() {
            // It could not be opened or closed: without it, then.
            let closing = self.stopping.take();
            self.controls.clear();
            self.media.cache.damaged = true;
            if let Some(device) = closing {
                self.end_session();
                self.start(device)?;
                return Ok(true);
            }
            self.device_failed = false;
            self.wake = None;
            self.without_device();
            self.command(Control::Open, Command::Open);
            return Ok(true);
        }
        if let Some(device) = self.stopping {
            let away = self.volumes.iter().all(|volume| volume.state == State::Away);
            if self.closed && self.held.is_empty() {
                self.machine().check_invariants();
                self.end_session();
                self.start(device)?;
                return Ok(true);
            }
            if !self.closed && away && self.controls.is_empty() {
                self.command(Control::Close, Command::Close);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The engine is gone, well or not.
    fn end_session(&mut self) {
        self.machine = None;
        self.wake = None;
        self.batch.clear();
        self.batching = 0;
        self.controls.clear();
        self.waits = None;
        for volume in &mut self.volumes {
            (volume.state, volume.life) = (State::Away, None);
            volume.overdue = 0;
            volume.stays_away = false;
        }
    }

    pub(super) fn attach(&mut self, volume: usize) {
        let setup = self.volumes[volume].setup;
        let attachment = self.media.backends[volume].begin_attachment();
        let proof = setup.proof.then(|| self.media.backends[volume].proof());
        let name = format!("vol{volume}");
        let recorded = self.machine().recorded(&name);
        let device = self.present.then_some(self.media.cache.serial);
        let spec = VolumeSpec {
            size_bytes: setup.sectors * SECTOR_BYTES,
            align_bytes: setup.align_bytes,
            mode: setup.mode,
            generation: self.media.backends[volume].generation_with(device),
            proof,
            exclusive: setup.exclusive,
            ..VolumeSpec::new(name.clone(), 0)
        };
        let mutants = self.setup.cache.config.mutants;
        let life = VolumeLife::new(name, attachment, mutants);
        let command = life.attach(spec, &recorded, |one, now| judge_one(one, now, mutants));
        self.volumes[volume].life = Some(life);
        self.volumes[volume].state = State::Attaching;
        self.volumes[volume].stays_away = false;
        self.volumes[volume].sync_failed = false;
        self.command(Control::Attach(volume), command);
    }

    pub(super) fn toggle(&mut self, volume: u8) {
        let volume = usize::from(volume) % self.volumes.len();
        if self.stopping.is_some() || !self.serves() {
            return;
        }
        match self.volumes[volume].state {
            State::Attached(id) => self.detach(volume, id),
            State::Away => self.attach(volume),
            _ => {}
        }
    }

    /// The engine is open.
    pub(super) fn serves(&self) -> bool {
        let opening = self.controls.values().any(|control| *control == Control::Open);
        self.machine.is_some() && !opening && !self.device_failed
    }

    fn detach(&mut self, volume: usize, id: VolumeId) {
        self.volumes[volume].state = State::Leaving(id);
        self.volumes[volume].stays_away = true;
        let first = self.life(volume).leave().expect("an attached volume serves");
        self.command(Control::Detach(volume), first);
    }

    fn life(&mut self, volume: usize) -> &mut VolumeLife {
        self.volumes[volume].life.as_mut().expect("a volume that is not away has a life")
    }

    pub(super) fn forget(&mut self, volume: u8) {
        let volume = usize::from(volume) % self.volumes.len();
        let idle = self.stopping.is_none() && self.serves();
        if idle && self.volumes[volume].state == State::Away {
            self.volumes[volume].state = State::Forgetting;
            self.command(Control::Forget(volume), Command::Forget(format!("vol{volume}")));
        }
    }

    pub(super) fn plan(&mut self, volume: u8, what: u8) {
        let volume = usize::from(volume) % self.volumes.len();
        let State::Attached(id) = self.volumes[volume].state else { return };
        let modes = [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough];
        let mode = modes.get(usize::from(what & 3)).copied();
        let capacity = self.setup.cache.capacity_blocks;
        let shares = [0, capacity / 4, capacity / 2, capacity];
        let plan = VolumePlan {
            volume: id,
            mode,
            share_min_blocks: (what & 4 != 0).then(|| shares[usize::from(what >> 3 & 3)]),
            share_max_blocks: (what & 0x20 != 0).then(|| shares[usize::from(what >> 6 & 3)]),
            share_target_blocks: (what & 0x24 == 0x24).then(|| match what >> 3 & 3 {
                0 => VolumePlan::NO_TARGET,
                part => shares[usize::from(part)],
            }),
            // No limit, or one to three blocks a second.
            fill_limit_bytes: (what & 0x44 == 0x40).then(|| u64::from(what >> 3 & 3) << 12),
        };
        let admits = (what & 0xC == 8).then_some(what & 0x10 != 0);
        self.batch.push(Event::Adopt(Plan { volumes: vec![plan], admits }));
    }

    /// Begins a clean stop.
    pub(super) fn stop(&mut self, device: Device) {
        if self.stopping.is_some() || !self.serves() {
            return;
        }
        self.stopping = Some(device);
        self.tear_record(true);
        self.waits = None;
        self.life.close();
        for volume in 0..self.volumes.len() {
            if let State::Attached(id) = self.volumes[volume].state {
                self.detach(volume, id);
            }
        }
    }

    /// The engine dies, and the next session begins.
    pub(super) fn crash(&mut self, crash: Crash, device: Device) -> Result<(), Violation> {
        let mut rng = Rng::new(u64::from(crash.fate));
        for volume in &mut self.volumes {
            volume.overdue = 0;
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.give_up(&pending);
        }
        for (_, ticket) in std::mem::take(&mut self.doubtful) {
            self.oracle.write_ended(&ticket, crate::oracle::Outcome::Perhaps);
        }
        self.tear_record(crash.fate == 1 || crash.fate > 1 && rng.chance(0.5));
        self.land(crash.fate, &mut rng);
        let tick = self.oracle.tick();
        self.media.crash(tick);
        if crash.host {
            self.media.cache.power_cut(&mut rng);
        }
        for backend in 0..self.media.backends.len() {
            let mut reverted = Vec::new();
            if crash.backends {
                reverted = self.media.backends[backend].power_cut(&mut rng);
            }
            let medium = &self.media.backends[backend];
            let contents = medium.sectors_of(0..medium.sectors());
            self.oracle.settled(backend, contents, &reverted)?;
        }
        for volume in &mut self.volumes {
            if volume.left == Left::Sealed && volume.state != State::Away {
                volume.left = Left::Lost;
            }
        }
        self.end_session();
        self.start(device)
    }

    /// What was under way happens or does not.
    fn land(&mut self, fate: u8, rng: &mut Rng) {
        for mut held in std::mem::take(&mut self.held) {
            let units = held.transfer.units();
            let dead = held.transfer.backend().is_none() && self.media.cache.is_dead();
            let some = rng.below(units as u64 + 1) as usize;
            let done = match fate {
                _ if dead => 0,
                0 => 0,
                1 => units,
                _ => rng.pick(&[0, units, some]),
            };
            if let (IoOp::BumpGeneration { held: generation }, Some(backend)) =
                (&held.transfer.request.op, held.transfer.backend())
                && (fate == 1 || fate > 1 && rng.chance(0.5))
            {
                self.media.backends[backend].bump_generation(*generation);
            }
            self.media.effect(&mut held.transfer, 0..done);
            if done < units {
                self.media.miss(&held.transfer, done..units);
            }
        }
    }

    pub(super) fn command_replied(
        &mut self,
        control: Control,
        result: Result<Answer<Stamped>, Failure>,
    ) -> Result<(), Violation> {
        match (control, result) {
            (Control::Open, Ok(Answer::Done)) => {
                self.device_begun(Ok(()));
                self.command(Control::AwaitLoad, Command::AwaitLoad);
                for volume in 0..self.volumes.len() {
                    if self.stopping.is_none() && self.volumes[volume].state == State::Away {
                        self.attach(volume);
                    }
                }
            }
            (Control::Close, Ok(Answer::Done)) => self.closed = true,
            (Control::AwaitLoad, Ok(Answer::Loaded(report))) => {
                if report.start == Start::Damaged && !self.cache_has_failed() {
                    let what = format!("all was dropped for damage not done: {report:?}");
                    return Err(Violation::new(Kind::Warmth, what));
                }
            }
            (Control::Open, Err(failure @ Failure::Io(_))) if self.cache_has_failed() => {
                self.device_failed = true;
                self.device_begun(Err(failure));
            }
            (Control::Close, Err(Failure::Io(_))) if self.cache_has_failed() => {
                self.device_failed = true;
            }
            (Control::AwaitLoad, Err(Failure::Io(_))) if self.cache_has_failed() => {}
            (Control::Attach(volume), ref answer @ Ok(Answer::Attached { volume: id, .. })) => {
                self.life(volume).attached(answer).expect("it is attached");
                self.attached(volume, id);
            }
            (Control::Attach(volume), Err(Failure::Invalid))
                if self.controls.values().any(|control| *control == Control::Replace) =>
            {
                (self.volumes[volume].state, self.volumes[volume].life) = (State::Away, None);
            }
            (Control::Detach(volume), Ok(Answer::Done)) => {
                self.end_answered(volume, Left::Lost, Ok(()))?;
            }
            (Control::Detach(volume), Err(failure @ Failure::Io(_)))
                if self.volumes[volume].errors > 0 =>
            {
                self.end_answered(volume, Left::Lost, Err(failure))?;
            }
            (Control::Seal(volume, _), Ok(Answer::Done)) => {
                self.end_answered(volume, Left::Sealed, Ok(()))?;
            }
            (Control::Seal(volume, _), Err(failure @ Failure::Io(_)))
                if self.cache_has_failed() || self.volumes[volume].errors > 0 =>
            {
                self.end_answered(volume, Left::Lost, Err(failure))?;
            }
            (Control::Forget(volume), Ok(Answer::Done)) => {
                self.volumes[volume].state = State::Away;
                self.volumes[volume].left = Left::Never;
            }
            (Control::Forget(volume), Err(Failure::NoVolume | Failure::Io(_))) => {
                self.volumes[volume].state = State::Away;
            }
            (Control::Abandon | Control::Replace, ref answer)
                if self.device_answered(control, answer.as_ref().map(drop).map_err(|f| *f)) => {}
            (control, result) => {
                let what = format!("{control:?} was answered with {result:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    /// The engine has given up its device or begun with another one; false: it may not answer so.
    fn device_answered(&mut self, control: Control, result: Result<(), Failure>) -> bool {
        let errors = self.cache_has_failed() || self.volumes.iter().any(|v| v.errors > 0);
        match (control, result) {
            (Control::Abandon, Ok(())) => {
                let step = self.life.given_up(Ok(()));
                self.device_step(step);
            }
            (Control::Replace, Ok(())) => self.device_begun(Ok(())),
            (Control::Replace, Err(Failure::Io(_))) if errors => self.device_begun(result),
            _ => return false,
        }
        true
    }

    fn attached(&mut self, volume: usize, id: VolumeId) {
        self.volumes[volume].state = State::Attached(id);
        self.volumes[volume].left = Left::Lost;
        self.media.attach(id, volume);
        if self.stopping.is_some() {
            self.detach(volume, id);
        }
    }

    /// The machine has answered a command of a volume's end.
    fn end_answered(
        &mut self,
        volume: usize,
        left: Left,
        result: Result<(), Failure>,
    ) -> Result<(), Violation> {
        match self.life(volume).answered(result) {
            EndStep::Ask(command) => unreachable!("no server restarts here: {command:?}"),
            EndStep::TakeProof => self.take_proof(volume),
            EndStep::Gone(_) => {
                if let State::Leaving(id) = self.volumes[volume].state {
                    self.media.detach(id);
                }
                let volume = &mut self.volumes[volume];
                (volume.state, volume.life, volume.left) = (State::Away, None, left);
                Ok(())
            }
        }
    }

    /// A volume that was detached can lose nothing any more; it is sealed with its proof.
    fn take_proof(&mut self, volume: usize) -> Result<(), Violation> {
        if let Some(sector) = self.media.backends[volume].first_not_durable() {
            let what = "detached, but not flushed to the end";
            return Err(Violation::at(Kind::NotDurable, volume, sector, what));
        }
        let proves = self.volumes[volume].setup.proof;
        let backend = &mut self.media.backends[volume];
        let proof = if proves { backend.take_proof() } else { None };
        let proven = proof.is_some();
        let seal = self.life(volume).proved(proof);
        self.command(Control::Seal(volume, proven), seal);
        Ok(())
    }
}
