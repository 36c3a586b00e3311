//! The cache device of a session, step by step ([`DeviceLife`]): lost,
//! abandoned, replaced.
//!
//! Between any two steps of a replacement guests go on, the device in use may be lost, and the daemon
//! may die or stop. A new device may be silent: it is given up then, and comes too late, if at all.

use crate::driver::agenda::Item;
use crate::driver::commands::Control;
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::{Factory, Machine};
use crate::medium::CacheDevice;
use crate::stamp::Stamped;
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::{DeviceLife, DevicePhase, DeviceStep, VolumeLife};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::{Command, Failure};
use std::collections::BTreeMap;
use std::time::Duration;

/// A new device that answers is formatted within this time, in ns.
const PREPARE_NS_MAX: u64 = 100_000_000;
/// One that has made no step for so long is silent.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How often it is looked whether it is, in ns.
const LOOK_EVERY_NS: u64 = 250_000_000;
/// One that is silent answers within this time, to nobody, in ns.
const LATE_NS_MAX: u64 = 30_000_000_000;
/// The host records within this time that volumes are a new device's, in ns.
const RECORD_NS_MAX: u64 = 50_000_000;

/// The life of a session's device.
pub(super) type Life = DeviceLife<Box<CacheDevice>>;

/// What a driver knows of replacements beside the order of their steps.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// New devices that are being opened.
    opening: BTreeMap<u64, ReplacementId>,
    /// Volumes that were there when the old device was gone.
    entrusting: Option<Vec<Entrusting>>,
}

/// A volume that is to be the new device's.
#[derive(Clone, Copy, Debug)]
struct Entrusting {
    volume: usize,
    attachment: u64,
    attached: bool,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// A session's device, which is not open yet.
    pub(super) fn new_life(&self) -> Life {
        DeviceLife::new(SILENCE_MAX, self.options.mutants)
    }

    /// The operator has another device put in the place of the one in use, or goes on without one:
    /// once in a session. `prepared`: the new one is formatted already.
    pub(super) fn change_device(&mut self, prepared: bool) {
        let idle = |control: &Control| matches!(control, Control::AwaitLoad | Control::Resize(..));
        if self.is_waiting_for(|control| !idle(control)) || self.replaced {
            return;
        }
        if !prepared && self.waits.chance(0.15) {
            if let Ok(step) = self.device.abandon() {
                self.replaced = true;
                self.device_step(step);
            }
            return;
        }
        let Ok(id) = self.device.replace(self.now) else { return };
        self.replaced = true;
        self.log.milestone(self.now, || "A REPLACEMENT begins".to_owned());
        let number = self.number();
        self.exchange.opening.insert(number, id);
        if prepared {
            return self.new_device_opened(number);
        }
        let silent = self.waits.chance(0.2);
        let within_ns = if silent { LATE_NS_MAX } else { PREPARE_NS_MAX };
        let least_ns = if silent { SILENCE_MAX.as_nanos() as u64 * 2 } else { 0 };
        let at = self.now.plus_ns(least_ns + self.waits.below(within_ns));
        self.agenda.enter(at, Item::NewDevice(number));
        self.agenda.enter(self.now.plus_ns(LOOK_EVERY_NS), Item::LookAtNewDevice(number));
    }

    /// Has a new device made a step? It makes one, at its end.
    pub(super) fn look_at_new_device(&mut self, number: u64) {
        let id = self.exchange.opening.get(&number);
        if !id.is_some_and(|id| self.device.is_preparing(*id)) {
            return;
        }
        if self.device.is_silent(self.now, 0) {
            self.log.milestone(self.now, || "THE NEW DEVICE is silent, and given up".to_owned());
            self.count.faults.add(Fault::NewDeviceSilent);
            // Nothing has changed, and another one may be tried.
            self.replaced = false;
            return;
        }
        self.agenda.enter(self.now.plus_ns(LOOK_EVERY_NS), Item::LookAtNewDevice(number));
    }

    /// A new device is open and formatted.
    pub(super) fn new_device_opened(&mut self, number: u64) {
        let Some(id) = self.exchange.opening.remove(&number) else { return };
        let new = Box::new(self.make_device());
        match self.device.prepared(id, new) {
            Ok(step) => self.device_step(step),
            Err(_late) => {
                self.log.milestone(self.now, || "a new device answers too late".to_owned());
            }
        }
    }

    /// Does what comes next, until an answer is awaited.
    fn device_step(&mut self, mut step: DeviceStep<Box<CacheDevice>>) {
        loop {
            self.log.milestone(self.now, || format!("next with the cache device: {}", name(&step)));
            step = match step {
                DeviceStep::Wait | DeviceStep::Ended(_) => return,
                DeviceStep::GiveUp => {
                    self.command(Control::Abandon, Command::Abandon);
                    return self.endanger_step();
                }
                DeviceStep::LetGo => {
                    self.let_go_of_device();
                    self.device.let_go()
                }
                DeviceStep::Entrust => {
                    self.note_entrusting();
                    if self.waits.chance(0.5) {
                        let at = self.now.plus_ns(self.waits.below(RECORD_NS_MAX));
                        self.agenda.enter(at, Item::Entrusted);
                        return self.endanger_step();
                    }
                    self.record_entrusted();
                    self.device.entrusted()
                }
                DeviceStep::Install(new) => {
                    self.note_entrusting();
                    self.install_device(*new);
                    let regions = self.media.cache.superblocks();
                    let superblock = Superblock::decode(&regions[0]).expect("just formatted");
                    self.command(Control::Replace, Command::Replace(Box::new(superblock)));
                    return self.endanger_step();
                }
            };
        }
    }

    /// A session that is to crash may do so before the next step.
    fn endanger_step(&mut self) {
        if self.may_crash && self.fuse.is_none() && self.waits.chance(0.2) {
            self.fuse = Some(self.waits.below(6));
        }
    }

    /// Which volumes are there, as they are attached now.
    fn note_entrusting(&mut self) {
        let of = |(volume, life): (usize, &VolumeLife), attached| Entrusting {
            volume,
            attachment: life.attachment(),
            attached,
        };
        let there = (0..).zip(&self.volumes).filter_map(|(at, volume)| {
            let attached = volume.state() == State::Attached;
            Some(of((at, volume.life.as_ref()?), attached))
        });
        let there = there.collect();
        self.exchange.entrusting.get_or_insert(there);
    }

    /// The host has recorded that the volumes are the new device's.
    fn record_entrusted(&mut self) {
        let Some(serial) = self.device.new_device().map(|new| new.serial) else { return };
        for entrusting in self.exchange.entrusting.iter().flatten() {
            self.media.backends[entrusting.volume].entrust(serial);
            for shelved in [&mut self.shelf, &mut self.parked].into_iter().flatten() {
                shelved.disown(entrusting.volume);
            }
        }
    }

    /// The same, some time after that was asked for.
    pub(super) fn entrusted(&mut self) {
        self.record_entrusted();
        // A stop has ended the replacement, or the record came in time.
        if self.device.new_device().is_some() {
            let step = self.device.entrusted();
            self.device_step(step);
        }
    }

    /// The daemon dies: the host has the record or has not.
    pub(super) fn tear_record(&mut self) {
        if self.exchange.entrusting.is_some() && self.waits.chance(0.5) {
            self.record_entrusted();
        }
    }

    /// The machine was asked to open its device, or to begin with another one.
    pub(super) fn device_begun(&mut self, result: Result<(), Failure>) {
        if self.device.phase() == DevicePhase::Absent {
            return;
        }
        if result.is_ok()
            && let Some(entrusting) = self.exchange.entrusting.take()
        {
            self.replaced(&entrusting);
        }
        self.exchange.entrusting = None;
        let step = self.device.begun(result);
        self.device_step(step);
    }

    /// Volumes that are attached are recorded on the new device from now on.
    fn replaced(&mut self, entrusting: &[Entrusting]) {
        self.count.faults.add(Fault::DeviceReplaced);
        let volumes = self.volumes.iter().zip(&mut self.accounts).zip(&self.media.backends);
        for (at, ((volume, account), backend)) in volumes.enumerate() {
            if volume.state() != State::Attached {
                continue;
            }
            account.attached = backend.generation;
            let attachment = volume.life.as_ref().map(VolumeLife::attachment);
            account.own = entrusting
                .iter()
                .any(|one| one.attached && one.volume == at && Some(one.attachment) == attachment);
        }
    }

    /// The machine has given up its device, or has refused to.
    pub(super) fn device_given_up(&mut self, result: Result<(), Failure>) {
        if result.is_ok() && self.device.phase() == DevicePhase::Closing {
            // It goes with the session, and what is recorded from now on is not on it.
            self.let_go_of_device();
        }
        let step = self.device.given_up(result);
        self.device_step(step);
    }

    /// The device is not to be used any more.
    pub(super) fn lose_device(&mut self) {
        let step = self.device.lost();
        self.device_step(step);
    }

    /// A loss is noticed, sooner or later.
    pub(super) fn watch_device(&mut self) {
        let Some(machine) = &self.machine else { return };
        if self.device.can_be_lost()
            && matches!(machine.health(), Health::PassThrough(_))
            && self.waits.chance(0.05)
        {
            self.lose_device();
        }
    }
}

const fn name(step: &DeviceStep<Box<CacheDevice>>) -> &'static str {
    match step {
        DeviceStep::Wait => "wait",
        DeviceStep::GiveUp => "it is given up",
        DeviceStep::LetGo => "it is let go of",
        DeviceStep::Entrust => "volumes are entrusted to another one",
        DeviceStep::Install(_) => "another one is installed",
        DeviceStep::Ended(Ok(())) => "that was all",
        DeviceStep::Ended(Err(_)) => "it has failed",
    }
}
