//! Cache devices that come, go, rot and fail.

use super::moves::Device;
use super::requests::{Left, State};
use super::session::Control;
use super::world::World;
use cinnabar_engine::Command;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_sim::dice::Dice;
use cinnabar_sim::medium::{CacheDevice, Death};

/// A cache device that is not in use, and how it was left with each volume.
pub(super) struct Shelved {
    cache: CacheDevice,
    left: Vec<Left>,
}

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
            self.new_device();
        } else if device == Device::Other {
            let other = self.shelf.take();
            let old = match other {
                Some(other) => self.swap(other),
                None => self.new_device(),
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

    fn new_device(&mut self) -> Shelved {
        self.devices += 1;
        let format = self.setup.format(self.devices);
        let mut cache = CacheDevice::new(&format);
        cache.serial = self.devices;
        self.swap(Shelved { cache, left: vec![Left::Never; self.volumes.len()] })
    }

    fn swap(&mut self, other: Shelved) -> Shelved {
        let left = self.volumes.iter_mut().zip(other.left);
        let left = left.map(|(volume, left)| std::mem::replace(&mut volume.left, left));
        Shelved {
            left: left.collect(),
            cache: std::mem::replace(&mut self.media.cache, other.cache),
        }
    }

    /// The operator gives the device up, once in a session.
    pub(super) fn abandon(&mut self) {
        let busy = self.controls.values().any(|control| *control != Control::AwaitLoad);
        if busy || self.replaced || self.stopping.is_some() || !self.serves() {
            return;
        }
        self.replaced = true;
        self.command(Control::Abandon, Command::Abandon);
    }

    /// The engine does not use it any more: it gets a new one.
    pub(super) fn abandoned(&mut self) {
        self.present = true;
        let old = self.new_device();
        let away = self.parked.take();
        if let Some(old) = away.or(Some(old)).filter(|old| !old.cache.is_dead()) {
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

    /// Volumes that are attached are recorded on the new device from now on.
    pub(super) fn replacement_done(&mut self) {
        let serial = self.media.cache.serial;
        for (volume, backend) in self.volumes.iter().zip(&mut self.media.backends) {
            if let State::Attached(_) = volume.state {
                backend.entrust(serial);
            }
        }
    }

    /// A device that is not in use may have blocks of this volume.
    pub(super) fn is_known_elsewhere(&self, volume: usize) -> bool {
        let devices = [&self.shelf, &self.parked].into_iter().flatten();
        devices.into_iter().any(|device| device.left[volume] != Left::Never)
    }

    /// Cached data rot, or metadata.
    pub(super) fn rot(&mut self, what: u8) {
        let mut dice = Dice::new(u64::from(what));
        if what & 1 == 0 {
            self.media.cache.rot(&mut dice);
        } else if let Some(block) = self.media.cache.rot_metadata(&mut dice) {
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
