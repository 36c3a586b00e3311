//! Commands to the machine, plans, and everything else that disturbs guests at work.
//!
//! Called by the world.

use crate::driver::agenda::Item;
use crate::driver::guests::{Left, Served, State};
use crate::driver::world::World;
use crate::machine::{Factory, Machine};
use crate::stamp::{Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::plan::{Mode, Plan, VolumePlan};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::volume::{Belief, Epoch, VolumeSpec, Warmth};
use cinnabar_engine::{Answer, Command, Event, Failure, RequestId};

/// A command under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Open,
    Attach(usize, Option<Epoch>),
    Detach(usize),
    Seal(usize, Option<Epoch>),
    Close,
}

impl<F: Factory<Stamped>> World<'_, F> {
    pub(super) fn command(&mut self, control: Control, command: Command) {
        let id = RequestId(self.number());
        self.log.note(self.now, None, || format!("command {id:?}: {command:?}"));
        self.controls.insert(id, control);
        self.batch.push(Event::Control(id, command));
    }

    pub(super) fn command_replied(
        &mut self,
        control: Control,
        result: Result<Answer<Stamped>, Failure>,
    ) -> Result<(), Violation> {
        self.log.note(self.now, None, || format!("{control:?} was answered: {result:?}"));
        match (control, result) {
            (Control::Open | Control::Close, Ok(Answer::Done)) => {}
            (Control::Attach(volume, epoch), Ok(Answer::Attached { volume: id, warmth })) => {
                self.check_warmth(volume, epoch.as_ref(), warmth)?;
                self.volumes[volume].id = Some(id);
                self.volumes[volume].state = State::Attached;
                self.volumes[volume].left = Left::Lost;
                let attaches = self.volumes[volume].served.attaches + 1;
                self.volumes[volume].served = Served { attaches, ..Served::default() };
                self.media.attach(id, volume);
                self.arm(volume);
            }
            (Control::Detach(volume), Ok(Answer::Done)) => {
                self.check_flushed(volume)?;
                let proof = self.proof(volume);
                self.seal(volume, proof);
            }
            // The backend could not be flushed: nothing can be proven of it, its blocks are dropped.
            (Control::Detach(volume), Err(Failure::Io(_))) if self.volumes[volume].errors > 0 => {
                let id = self.volumes[volume].id.expect("a detaching volume has an index");
                self.media.detach(id);
                self.gone(volume, Left::Lost);
            }
            (Control::Seal(volume, proof), Ok(Answer::Done)) => {
                self.gone(volume, Left::Sealed { proof, blocks: None });
            }
            (control, result) => {
                let what = format!("{control:?} was answered with {result:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    /// A volume that was detached could lose nothing any more.
    fn check_flushed(&self, volume: usize) -> Result<(), Violation> {
        let Some(sector) = self.media.backends[volume].first_not_durable() else { return Ok(()) };
        let what = "detached, but not flushed to the end";
        Err(Violation::at(Kind::NotDurable, volume, sector, what))
    }

    /// The backend's proof as it stands now.
    fn proof(&self, volume: usize) -> Option<Epoch> {
        self.profile.volumes[volume].proof.then(|| self.media.backends[volume].epoch())
    }

    /// What the backend makes of what the cache device has recorded.
    fn belief(&self, volume: usize, now: Option<&Epoch>) -> Belief {
        let machine = self.machine.as_ref().expect("volumes are attached to a machine");
        let then = machine.recorded(&format!("vol{volume}")).and_then(|recorded| recorded.epoch);
        Belief::of_equality(then.as_ref(), now)
    }

    pub(super) fn attach(&mut self, volume: usize) {
        let profile = self.profile.volumes[volume].clone();
        let (share_min_blocks, share_max_blocks) = self.shares();
        // Now and then a backend that could prove it once can't do so any more.
        let forgetful = self.dice.chance(0.05);
        let epoch = self.proof(volume).filter(|_| !forgetful);
        let spec = VolumeSpec {
            name: format!("vol{volume}"),
            size_bytes: profile.sectors * SECTOR_BYTES,
            align_bytes: profile.align_bytes,
            read_only: profile.read_only,
            mode: self.volumes[volume].mode,
            share_min_blocks,
            share_max_blocks,
            bypass_sequential_bytes: profile.bypass_sequential_bytes,
            bypass_large_bytes: profile.bypass_large_bytes,
            belief: self.belief(volume, epoch.as_ref()),
            generation: 0,
            epoch: epoch.clone(),
            exclusive: profile.exclusive,
        };
        self.volumes[volume].state = State::Attaching;
        self.command(Control::Attach(volume, epoch), Command::Attach(spec));
    }

    /// Shares that make sense, and sometimes less of it.
    fn shares(&mut self) -> (u64, u64) {
        let capacity = self.profile.setup.capacity_blocks;
        let min = self.dice.pick(&[0, 0, capacity / 10, capacity / 4, capacity]);
        let max = self.dice.pick(&[capacity, u64::MAX, capacity / 2, capacity / 4]);
        (min, max)
    }

    pub(super) fn detach(&mut self, volume: usize) {
        let id = self.volumes[volume].id.expect("an attached volume has an index");
        self.volumes[volume].state = State::Detaching;
        self.command(Control::Detach(volume), Command::Detach(id));
    }

    fn seal(&mut self, volume: usize, proof: Option<Epoch>) {
        let id = self.volumes[volume].id.expect("a detaching volume has an index");
        self.media.detach(id);
        self.volumes[volume].state = State::Sealing;
        let command = Command::Seal(id, proof.clone());
        self.command(Control::Seal(volume, proof), command);
    }

    fn gone(&mut self, volume: usize, left: Left) {
        self.volumes[volume].left = left;
        self.volumes[volume].state = State::Away;
        self.soon(50_000_000, Item::Return(volume));
    }

    /// A volume that went while others worked on comes back, unless everything stops anyway.
    pub(super) fn come_back(&mut self, volume: usize) {
        if self.quota == 0 || self.volumes[volume].state != State::Away {
            return;
        }
        if self.dice.chance(0.4) {
            self.write_behind(volume);
        }
        self.attach(volume);
    }

    /// Somebody else writes to a volume that no engine has.
    pub(super) fn write_behind(&mut self, volume: usize) {
        let profile = &self.profile.volumes[volume];
        if !self.features().foreign_writes || profile.exclusive {
            return;
        }
        let sectors = profile.sectors;
        for _ in 0..self.dice.within(1..4) {
            let first = self.dice.below(sectors);
            let count = self.dice.within(1..1 + (sectors - first).min(2048));
            self.volumes[volume].version += 1;
            let version = self.volumes[volume].version;
            let values: Vec<Stamp> =
                (first..first + count).map(|sector| Stamp::new(volume, sector, version)).collect();
            self.media.backends[volume].write_behind(first, &values);
            let place = Some((volume, first..first + count));
            self.log.note(self.now, place, || format!("somebody else writes version {version}"));
            self.oracle.written_behind(volume, first, values);
            self.count.foreign_writes += 1;
        }
        // Its blocks are no longer expected to survive.
        if let Left::Sealed { blocks, .. } = &mut self.volumes[volume].left {
            *blocks = None;
        }
    }

    /// Once in a while, something happens beside the guests' requests.
    pub(super) fn disturb(&mut self, volume: usize) {
        let features = self.features();
        if features.plans && self.dice.chance(0.01) {
            self.new_plan();
        }
        if features.rot && self.dice.chance(0.02) && self.media.cache.rot(&mut self.dice) {
            self.log.note(self.now, None, || "a cached block rots".to_owned());
            self.count.rotted += 1;
        }
        let attached = self.volumes[volume].state == State::Attached;
        if features.detaches && attached && self.dice.chance(0.004) {
            self.count.detaches += 1;
            self.detach(volume);
        }
    }

    fn new_plan(&mut self) {
        let mut plan = Plan::default();
        for volume in 0..self.volumes.len() {
            let State::Attached = self.volumes[volume].state else { continue };
            if self.dice.chance(0.3) {
                continue;
            }
            let mode = match self.dice.below(8) {
                0 => Some(Mode::PassThrough),
                1 => Some(Mode::WriteAround),
                2 | 3 => None,
                _ => Some(Mode::WriteThrough),
            };
            self.volumes[volume].mode = mode.unwrap_or(self.volumes[volume].mode);
            let (min, max) = self.shares();
            let change_shares = self.dice.chance(0.5);
            plan.volumes.push(VolumePlan {
                volume: self.volumes[volume].id.expect("an attached volume has an index"),
                mode,
                share_min_blocks: change_shares.then_some(min),
                share_max_blocks: change_shares.then_some(max),
            });
        }
        self.log.note(self.now, None, || format!("adopt {plan:?}"));
        self.batch.push(Event::Adopt(plan));
        self.count.plans += 1;
    }

    fn check_warmth(
        &mut self,
        volume: usize,
        epoch: Option<&Epoch>,
        warmth: Warmth,
    ) -> Result<(), Violation> {
        let exclusive = self.profile.volumes[volume].exclusive;
        let left = &self.volumes[volume].left;
        let (may_be_warm, blocks_due) = match left {
            Left::Never => (false, None),
            Left::Lost => (!self.options.cold_after_crash, None),
            Left::Sealed { proof, blocks } => {
                let proven = proof.is_some() && proof.as_ref() == epoch;
                (proven || exclusive, blocks.filter(|_| proven))
            }
        };
        match warmth {
            Warmth::Warm { blocks } => self.count.warm_blocks += blocks,
            Warmth::Dropped { blocks, .. } => self.count.dropped_blocks += blocks,
            Warmth::New | Warmth::Loading => {}
        }
        let warm_blocks = if let Warmth::Warm { blocks } = warmth { blocks } else { 0 };
        // A full cache may have gone on evicting as soon as it was open.
        let machine = self.machine.as_ref().expect("a machine is alive");
        let evicted = machine.cache_counters().evicted_blocks;
        let short = |due| warm_blocks > due || warm_blocks + evicted < due;
        if warm_blocks > 0 && !may_be_warm || blocks_due.is_some_and(short) {
            let what = format!("volume {volume} was left as {left:?}, came back as {warmth:?}");
            return Err(Violation::new(Kind::Warmth, what));
        }
        Ok(())
    }

    /// After a clean stop: how many blocks of each volume are there, and must be in the next life.
    pub(super) fn remember_blocks(&mut self) {
        let machine = self.machine.as_ref().expect("a machine is alive");
        for volume in &mut self.volumes {
            let counters = volume.id.and_then(|id| machine.volume_counters(id));
            if let (Left::Sealed { blocks, .. }, Some(counters)) = (&mut volume.left, counters) {
                *blocks = Some(counters.cached_blocks);
            }
        }
    }
}
