//! Cache devices that come, go, rot and fail.

use super::moves::Device;
use super::requests::{Left, State};
use super::session::Control;
use super::world::World;
use crate::machine::Machine;
use crate::medium::{CacheDevice, Death};
use crate::rng::Rng;
use cinnabar_driver::device_life::ReplacementId;
use cinnabar_driver::{DevicePhase, DeviceStep};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::{Command, Failure};

/// What a replacement waits for beside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceWait {
    /// The new device is being opened and formatted.
    Opening(ReplacementId),
    /// The host records that the volumes are the new device's.
    Record,
}

/// A cache device that is not in use, and how it was left with each volume.
pub(super) struct Shelved {
    cache: CacheDevice,
    left: Vec<Left>,
}

impl Shelved {}

impl World {
    /// Puts the device of the next session in place.
    pub(super) fn insert(&mut self, device: Device) {
        if let Some(parked) = self.parked.take() {
            self.swap(parked);
        }
        self.present = true;
        if device == Device::Away {
            self.park();
        } else if self.media.cache.is_dead() {
            self.put_new_device();
        } else if device == Device::Other {
            let other = self.shelf.take();
            let old = match other {
                Some(other) => self.swap(other),
                None => self.put_new_device(),
            };
            self.shelf = Some(old);
        }
    }

    /// There is no cache device from now on; the one there was is back in the next session.
    pub(super) fn park(&mut self) {
        self.present = false;
        let left = vec![Left::Never; self.volumes.len()];
        self.parked = Some(self.swap(Shelved { cache: CacheDevice::none(), left }));
    }

    fn put_new_device(&mut self) -> Shelved {
        let cache = self.new_device();
        self.swap(Shelved { cache, left: vec![Left::Never; self.volumes.len()] })
    }

    fn new_device(&mut self) -> CacheDevice {
        self.devices += 1;
        let format = self.setup.format(self.devices);
        let mut cache = CacheDevice::new(&format);
        cache.serial = self.devices;
        cache
    }

    fn swap(&mut self, other: Shelved) -> Shelved {
        let left = self.volumes.iter_mut().zip(other.left);
        let left = left.map(|(volume, left)| std::mem::replace(&mut volume.left, left));
        Shelved {
            left: left.collect(),
            cache: std::mem::replace(&mut self.media.cache, other.cache),
        }
    }

    /// The operator has another device put in its place, once in a session.
    pub(super) fn replace(&mut self) {
        let busy = self.controls.values().any(|control| *control != Control::AwaitLoad);
        if busy || self.replaced || self.stopping.is_some() || !self.serves() {
            return;
        }
        if let Ok(id) = self.life.replace(self.now) {
            self.replaced = true;
            self.waits = Some(DeviceWait::Opening(id));
        }
    }

    /// What a replacement waits for beside the engine happens; false: nothing.
    pub(super) fn advance_device(&mut self) -> bool {
        match self.waits.take() {
            Some(DeviceWait::Opening(id)) => {
                let new = Box::new(self.new_device());
                if let Ok(step) = self.life.prepared(id, new) {
                    self.device_step(step);
                }
            }
            Some(DeviceWait::Record) => {
                self.record_entrusted();
                let step = self.life.entrusted();
                self.device_step(step);
            }
            None => return false,
        }
        true
    }

    /// Does what comes next with the device, until an answer is awaited.
    pub(super) fn device_step(&mut self, mut step: DeviceStep<Box<CacheDevice>>) {
        loop {
            step = match step {
                DeviceStep::Wait | DeviceStep::Ended(_) => return,
                DeviceStep::GiveUp => return self.command(Control::Abandon, Command::Abandon),
                DeviceStep::LetGo => {
                    self.note(|_| "  the cache device is let go of".to_owned());
                    self.park();
                    self.life.let_go()
                }
                DeviceStep::Entrust => {
                    self.waits = Some(DeviceWait::Record);
                    return;
                }
                DeviceStep::Install(new) => return self.install(*new),
            };
        }
    }

    /// The host has recorded that the volumes are the new device's.
    fn record_entrusted(&mut self) {
        let Some(serial) = self.life.new_device().map(|new| new.serial) else { return };
        self.note(|_| "  the volumes are the new device's".to_owned());
        for (volume, backend) in self.volumes.iter().zip(&mut self.media.backends) {
            if volume.life.is_some() {
                backend.entrust(serial);
            }
        }
    }

    /// The engine dies: the host has the record or has not.
    pub(super) fn tear_record(&mut self, recorded: bool) {
        if recorded && self.waits == Some(DeviceWait::Record) {
            self.record_entrusted();
        }
    }

    /// The engine begins with a new device.
    fn install(&mut self, new: CacheDevice) {
        self.present = true;
        self.swap(Shelved { cache: new, left: vec![Left::Never; self.volumes.len()] });
        if let Some(old) = self.parked.take().filter(|old| !old.cache.is_dead()) {
            self.shelf = Some(old);
        }
        for volume in &mut self.volumes {
            if volume.state != State::Away {
                volume.left = Left::Lost;
            }
        }
        let regions = self.media.cache.superblocks();
        let superblock = Superblock::decode(&regions[0]).expect("just formatted");
        self.command(Control::Replace, Command::Replace(Box::new(superblock)));
    }

    /// The engine has begun with its device, or could not.
    pub(super) fn device_begun(&mut self, result: Result<(), Failure>) {
        if self.life.phase() != DevicePhase::Absent {
            let step = self.life.begun(result);
            self.device_step(step);
        }
    }

    /// A device that the engine has lost is given up; false: there is none.
    pub(super) fn watch_device(&mut self) -> bool {
        let health = self.machine.as_ref().map(Machine::health);
        let lost = self.life.can_be_lost() && matches!(health, Some(Health::PassThrough(_)));
        if lost {
            let step = self.life.lost();
            self.device_step(step);
        }
        lost
    }

    /// A device that is not in use may have blocks of this volume.
    pub(super) fn is_known_elsewhere(&self, volume: usize) -> bool {
        let devices = [&self.shelf, &self.parked].into_iter().flatten();
        devices.into_iter().any(|device| device.left[volume] != Left::Never)
    }

    /// Cached data rot, or metadata.
    pub(super) fn rot(&mut self, what: u8) {
        let mut rng = Rng::new(u64::from(what));
        if what & 1 == 0 {
            self.media.cache.rot(&mut rng);
        } else if let Some(block) = self.media.cache.rot_metadata(&mut rng) {
            self.note(|_| format!("  block {block} of the cache device rots"));
        }
    }

    pub(super) fn device_fails(&mut self) {
        if self.present && !self.media.cache.is_dead() {
            self.media.cache.die(Death::Fails);
        }
    }

    pub(super) fn cache_has_failed(&self) -> bool {
        !self.present || self.media.cache.damaged
    }
}
