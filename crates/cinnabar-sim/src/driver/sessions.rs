//! The sessions of a cache: start, guests at work, clean stop or crash.

use crate::driver::audit::Before;
use crate::driver::commands::Control;
use crate::driver::device::Exchange;
use crate::driver::guests::State;
use crate::driver::io::Flight;
use crate::driver::meet::Meeting;
use crate::driver::world::{Halt, World};
use crate::kinds::{Fault, Path};
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use crate::workload::{Device, Ending, Session};
use cinnabar_driver::PendingProofs;
use cinnabar_engine::Command;
use cinnabar_engine::health::Health;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};

/// Length of the reads that look at everything, in sectors.
const SWEEP_SECTORS: u64 = 512;

/// How far a session has come, as far as its crash matters to what may be believed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Opening,
    Running,
    Closing,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The whole run.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let sessions = self.profile.sessions.clone();
        let share = self.options.requests / sessions.len() as u64;
        for (number, session) in sessions.iter().enumerate() {
            let last = number + 1 == sessions.len();
            // Crashes leave requests unasked: the last session makes up for them.
            let left = self.options.requests.saturating_sub(self.count.requests);
            let quota = if last { left.max(share) } else { share };
            self.count.sessions += 1;
            let mut stage = Stage::Opening;
            let result = self.start(*session, &mut stage);
            match result
                .and_then(|before| self.live(&before, session.ending, quota, last, &mut stage))
            {
                Ok(()) => self.count.stops += 1,
                Err(Halt::Broken(violation)) => return Err(violation),
                Err(Halt::Crash) => self.crash(stage)?,
            }
            if last {
                self.check_ledgers()?;
            }
            self.between_sessions();
        }
        Ok(())
    }

    fn start(&mut self, session: Session, stage: &mut Stage) -> Result<Before, Halt> {
        let Session { device, ending, threads } = session;
        self.log.milestone(self.now, || format!("START, to end with {ending:?}"));
        self.fuse = (ending == Ending::CrashInStart).then(|| self.rng.below(20));
        self.faults_on = self.features().start_faults;
        self.loaded = None;
        self.replaced = false;
        self.profile.setup.threads = threads;
        if self.steering.begin_session(ending, self.options.regions) {
            self.begin_duos();
        }
        let before = self.begin(device)?;
        self.start_threads(threads);
        self.silence_at_boot();
        self.command(Control::Open, Command::Open);
        self.schedule_late();
        self.pump(|world| !world.is_waiting_for(|control| *control == Control::Open))?;
        if std::mem::take(&mut self.device_failed) {
            self.go_on_without()?;
        }
        self.command(Control::AwaitLoad, Command::AwaitLoad);
        *stage = Stage::Running;
        if ending == Ending::CrashInLoading {
            self.fuse = Some(self.rng.below(60));
        }
        if self.rng.chance(0.2) {
            self.await_load()?;
        }
        for volume in 0..self.volumes.len() {
            self.volumes[volume].served.attaches = 0;
            self.attach(volume);
        }
        self.pump(|world| world.volumes.iter().all(|volume| volume.state() == State::Attached))?;
        Ok(before)
    }

    /// Makes the machine of a session.
    fn begin(&mut self, device: Device) -> Result<Before, Halt> {
        let setup = self.profile.setup;
        let mut pages = self.insert_device(device);
        let mut before = self.before();
        if let Some(superblocks) = &pages {
            match self.factory.start(&setup, superblocks) {
                Ok(machine) => self.machine = Some(machine),
                Err(error) if !self.media.cache.damaged => {
                    let what = format!("the superblock is not one any more: {error}");
                    return Err(Violation::new(Kind::Warmth, what).into());
                }
                // The operator sees an error, and formats the device.
                Err(_) => {
                    self.count.faults.add(Fault::LostSuperblock);
                    self.format_device();
                    before = self.before();
                    pages = Some(self.media.cache.superblocks());
                    let superblocks = pages.as_ref().expect("just read");
                    self.machine = self.factory.start(&setup, superblocks).ok();
                }
            }
        }
        if pages.is_none() {
            self.machine = self.factory.start_without_device(&setup);
            self.count.paths.add(Path::PassThroughNoDevice);
        }
        assert!(self.machine.is_some(), "a factory that can do without a device, or has a new one");
        self.device = self.new_life();
        if pages.is_some() {
            self.device.begin();
        }
        Ok(before)
    }

    /// The device could not be opened: the daemon serves without it.
    fn go_on_without(&mut self) -> Result<(), Halt> {
        self.pump(|world| {
            world.controls.is_empty() && world.flights.values().all(|flight| flight.held)
        })?;
        self.drop_held();
        self.park_device();
        self.machine = self.factory.start_without_device(&self.profile.setup);
        assert!(self.machine.is_some(), "a factory that can do without a device");
        self.count.paths.add(Path::PassThroughNoDevice);
        self.start_threads(1);
        self.command(Control::Open, Command::Open);
        self.pump(|world| !world.is_waiting_for(|control| *control == Control::Open))
    }

    pub(super) fn await_load(&mut self) -> Result<(), Halt> {
        self.pump(|world| !world.is_waiting_for(|control| *control == Control::AwaitLoad))
    }

    fn live(
        &mut self,
        before: &Before,
        ending: Ending,
        quota: u64,
        sweep: bool,
        stage: &mut Stage,
    ) -> Result<(), Halt> {
        let looks = std::mem::take(&mut self.steering.looks);
        if self.rng.chance(0.4) || looks {
            // What came back is looked at before anything can overwrite it.
            if self.rng.chance(0.7) {
                self.await_load()?;
            }
            self.sweep()?;
        }
        if self.crash_note.is_some() && self.trouble.chance(0.5) {
            self.await_load()?;
        }
        self.check_crash_warm()?;
        self.quota = quota;
        self.faults_on = true;
        // The first drill has the cache to itself.
        self.drill()?;
        if self.features().resizes && self.resizes.chance(0.4) {
            // The size that its configuration says.
            self.resize_cache();
        }
        for volume in 0..self.volumes.len() {
            self.arm(volume);
        }
        self.may_crash = ending == Ending::Crash;
        if ending == Ending::Crash {
            let left = self.rng.below(quota + 1);
            self.pump_awake(|world| world.quota <= left)?;
            self.drill()?;
            let fuse = self.rng.below(100);
            self.fuse = Some(self.fuse.map_or(fuse, |sooner| sooner.min(fuse)));
        } else {
            self.drill()?;
        }
        let calm = self.rng.chance(0.7);
        self.pump_awake(|world| world.quota == 0 && (!calm || world.pending.is_empty()))?;
        if matches!(ending, Ending::Crash | Ending::CrashInStart | Ending::CrashInLoading) {
            return Err(Halt::Crash);
        }
        self.end_silences(sweep)?;
        self.faults_on = false;
        self.pump(|world| {
            let settled = |state| matches!(state, State::Attached | State::Away);
            world.volumes.iter().all(|volume| settled(volume.state()))
                && !world.is_waiting_for(|control| {
                    matches!(control, Control::Abandon | Control::Replace)
                })
        })?;
        if sweep || self.rng.chance(0.5) {
            self.sweep()?;
        }
        if ending == Ending::CrashInStop {
            self.fuse = Some(self.rng.below(30));
        }
        self.stop(before, stage)?;
        if ending == Ending::CrashInStop { Err(Halt::Crash) } else { Ok(()) }
    }

    /// Reads every sector of every volume that is attached, for the oracle to judge.
    fn sweep(&mut self) -> Result<(), Halt> {
        self.pump(|world| world.pending.is_empty() && !world.is_lagging())?;
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].state() != State::Attached {
                continue;
            }
            let sectors = self.profile.volumes[volume].sectors;
            for first in (0..sectors).step_by(SWEEP_SECTORS as usize) {
                let count = SWEEP_SECTORS.min(sectors - first);
                let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
                if self.pending.len() >= self.room() {
                    self.pump(|world| world.pending.is_empty())?;
                }
                self.look(volume, span);
            }
            self.pump(|world| world.pending.is_empty())?;
        }
        Ok(())
    }

    fn stop(&mut self, before: &Before, stage: &mut Stage) -> Result<(), Halt> {
        if self.pending.is_empty() {
            self.check_counters()?;
        }
        self.tear_record();
        self.device.close();
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].state() == State::Attached {
                self.detach(volume);
            }
        }
        self.pump(|world| {
            let changes =
                |control: &Control| matches!(control, Control::Abandon | Control::Replace);
            let away = world.volumes.iter().all(|volume| volume.state() == State::Away);
            away && !world.is_waiting_for(changes)
        })?;
        if !self.pending.is_empty() {
            let what = "a detach was answered before the volume's requests";
            return Err(Violation::new(Kind::NoReply, what).into());
        }
        *stage = Stage::Closing;
        self.command(Control::Close, Command::Close);
        self.pump(|world| world.controls.is_empty())?;
        self.fuse = None;
        self.drain_lost_device()?;
        if !self.flights.is_empty() {
            let what = format!("I/O is under way after the close: {:?}", self.flights);
            return Err(Violation::new(Kind::BadIo, what).into());
        }
        self.check_cache_counters(before)?;
        self.machine.as_ref().expect("a machine is alive").check_invariants();
        self.remember_blocks();
        if std::mem::take(&mut self.device_failed) {
            // The device was not closed: the next session finds a crash.
            self.media.cache.damaged = true;
        }
        self.crash_note = None;
        self.tally();
        self.forget_engine();
        Ok(())
    }

    /// What a device that was given up is still busy with ends by itself.
    fn drain_lost_device(&mut self) -> Result<(), Halt> {
        // Another one may have taken its place since.
        let left = self.flights.values().any(|flight| flight.left);
        if !self.present || self.media.cache.damaged || left {
            self.pump(|world| {
                let own = |flight: &Flight| flight.transfer.backend().is_some() || flight.held;
                world.flights.values().all(own)
            })?;
            self.drop_held();
        }
        Ok(())
    }

    pub(super) fn forget_engine(&mut self) {
        self.machine = None;
        self.threads.stop();
        self.steering.end_session();
        self.meeting = Meeting::default();
        self.agenda.clear();
        self.controls.clear();
        self.proofs = PendingProofs::new(self.options.mutants);
        self.proofs_waiting.clear();
        self.qos_queues.forget();
        self.sent.clear();
        self.batch.clear();
        self.wake = None;
        self.fuse = None;
        self.may_crash = false;
        self.quota = 0;
        self.faults_on = false;
        self.device_failed = false;
        self.cache_silent = false;
        self.device = self.new_life();
        self.exchange = Exchange::default();
        self.volumes.iter_mut().for_each(super::guests::Volume::reset);
    }

    /// Is the machine still loading its index?
    pub(super) fn is_loading(&self) -> bool {
        let machine = self.machine.as_ref().expect("a machine is alive");
        matches!(machine.health(), Health::Loading { .. })
    }
}
