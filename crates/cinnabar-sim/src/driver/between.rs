//! What happens between two sessions of the cache: time passes, others write, devices come and go.

use crate::driver::account::{Account, Foreign, Left};
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::{CacheSetup, Factory, Machine};
use crate::medium::CacheDevice;
use crate::stamp::{Stamp, Stamped};
use crate::workload::Device;
use cinnabar_engine::metadata::MetaPage;

/// Longest write of another writer, in sectors.
const FOREIGN_SECTORS_MAX: u64 = 2048;

/// A cache device that is not in use, with its account of every volume.
pub(super) struct Shelved {
    cache: CacheDevice,
    accounts: Vec<Account>,
}

impl Shelved {
    pub(super) fn is_dead(&self) -> bool {
        self.cache.is_dead()
    }

    pub(super) fn serial(&self) -> u8 {
        self.cache.serial
    }

    pub(super) fn account(&self, volume: usize) -> &Account {
        &self.accounts[volume]
    }

    /// The host takes a volume for another device's.
    pub(super) fn disown(&mut self, volume: usize) {
        self.accounts[volume].own = false;
    }
}

impl<F: Factory<Stamped>> World<'_, F> {
    pub(super) fn between_sessions(&mut self) {
        self.pass_time();
        for volume in 0..self.volumes.len() {
            if self.features().recreations && self.rng.chance(0.1) {
                self.recreate(volume);
            }
            if self.rng.chance(0.3) {
                self.write_behind(volume);
            }
            if self.features().growth && self.waits.chance(0.1) {
                self.enlarge(volume);
            }
        }
        self.pass_time();
        if self.features().rot {
            for _ in 0..self.rng.below(10) {
                let rots = self.media.cache.rot(&mut self.rng);
                self.count.rotted += u64::from(rots);
                self.count.faults.add_many(Fault::DataRot, u64::from(rots));
            }
        }
        if self.features().metadata_rot && self.rng.chance(0.5) {
            self.rot_metadata();
        }
    }

    pub(super) fn rot_metadata(&mut self) {
        for _ in 0..self.rng.pick(&[1, 1, 5]) {
            let Some(block) = self.media.cache.rot_metadata(&mut self.rng) else { continue };
            self.log.milestone(self.now, || format!("METADATA ROT in block {block}"));
            self.count.faults.add(Fault::MetadataRot);
        }
    }

    /// Nothing, less than the window after a crash, or more.
    fn pass_time(&mut self) {
        if self.features().clock_steps && self.rng.chance(0.3) {
            self.set_clock_back();
        }
        let longest = self.rng.pick(&[1, 1_000_000_000, 2_000_000_000, 20_000_000_000]);
        let at = self.now.plus_ns(self.rng.below(longest));
        self.advance(at);
    }

    /// Another writer writes to a volume that no engine has, unless the operator has excluded it.
    pub(super) fn write_behind(&mut self, volume: usize) {
        // The operator's word is over where a volume was forgotten, if no other device has it.
        let alone = self.shelf.is_none() && self.parked.is_none();
        let free = alone && self.accounts[volume].forgotten;
        let exclusive = self.profile.volumes[volume].exclusive && !free;
        if self.features().foreign_writes && !exclusive {
            self.write_behind_at_will(volume);
        }
    }

    pub(super) fn write_behind_at_will(&mut self, volume: usize) {
        let sectors = self.profile.volumes[volume].sectors;
        for _ in 0..self.rng.within(1..4) {
            let first = self.rng.below(sectors);
            let count = self.rng.within(1..1 + (sectors - first).min(FOREIGN_SECTORS_MAX));
            let foreign = self.foreign_write(volume, first, count);
            self.accounts[volume].foreign.push(foreign);
        }
    }

    /// Another writer writes these sectors, durably. Devices that are put away will have to notice.
    pub(super) fn foreign_write(&mut self, volume: usize, first: u64, count: u64) -> Foreign {
        self.volumes[volume].version += 1;
        let version = self.volumes[volume].version;
        let values: Vec<Stamp> =
            (first..first + count).map(|sector| Stamp::new(volume, sector, version)).collect();
        let backend = &mut self.media.backends[volume];
        let before = backend.sectors_of(first..first + count).to_vec();
        let foreign = Foreign { first, before, at_ns: backend.clock_ns() };
        backend.write_behind(first, &values);
        let place = Some((volume, first..first + count));
        self.log.note(self.now, place, || format!("SOMEBODY ELSE writes version {version}"));
        self.oracle.written_behind(volume, first, values);
        self.count.foreign_writes += 1;
        for shelved in [&mut self.shelf, &mut self.parked].into_iter().flatten() {
            shelved.accounts[volume].foreign.push(foreign.clone());
        }
        foreign
    }

    /// The volume is deleted, and another one is created under its name. Not if the operator vouches
    /// for it: that would be a lie.
    pub(super) fn recreate(&mut self, volume: usize) {
        if self.profile.volumes[volume].exclusive {
            return;
        }
        self.volumes[volume].version += 1;
        let version = self.volumes[volume].version;
        self.media.backends[volume].recreate(version);
        self.oracle.recreated(volume, version);
        self.accounts[volume].foreign.clear();
        self.volumes[volume].ledger.restart();
        let place = Some((volume, 0..self.profile.volumes[volume].sectors));
        self.log.note(self.now, place, || format!("RECREATED with version {version}"));
        self.count.faults.add(Fault::Recreated);
    }

    /// Puts the right cache device in place for the next session. Returns what it begins with; `None`:
    /// there is none.
    pub(super) fn insert_device(&mut self, device: Device) -> Option<Vec<[MetaPage; 2]>> {
        if let Some(parked) = self.parked.take() {
            self.swap_device(parked);
        }
        let dead = self.media.cache.is_dead();
        if device == Device::Away || dead && self.rng.chance(0.5) {
            self.park_device();
            return None;
        }
        self.present = true;
        if dead {
            self.format_device();
        } else if device == Device::Other {
            match self.shelf.take() {
                Some(back) => {
                    self.log.milestone(self.now, || "ANOTHER CACHE DEVICE, used before".to_owned());
                    self.count.faults.add(Fault::DeviceBack);
                    self.shelf = Some(self.swap_device(back));
                }
                None => self.shelf = Some(self.format_device()),
            }
        }
        Some(self.media.cache.superblocks())
    }

    /// There is no cache device from now on; the one there was may be back in the next session.
    pub(super) fn park_device(&mut self) {
        self.log.milestone(self.now, || "NO CACHE DEVICE".to_owned());
        self.count.faults.add(Fault::DeviceAway);
        self.take_device_out();
    }

    fn take_device_out(&mut self) {
        assert!(self.parked.is_none(), "one device is missing at a time");
        self.present = false;
        self.parked = Some(self.swap_device_for(CacheDevice::none()));
    }

    /// The machine does not use its device any more. It comes back, unless another one takes its
    /// place.
    pub(super) fn let_go_of_device(&mut self) {
        let leave = self.media.backends.iter().map(|backend| backend.generation);
        let volumes = self.accounts.iter_mut().zip(&self.volumes);
        for ((account, volume), generation) in volumes.zip(leave) {
            account.generation = generation;
            // From now on the host may record that it is another one's.
            account.own &= volume.state() == State::Away;
        }
        self.take_device_out();
    }

    /// A device takes the place of the one that is missing. That one, if it is not dead, may be put back
    /// in another session.
    pub(super) fn install_device(&mut self, new: CacheDevice) {
        self.present = true;
        self.swap_device_for(new);
        if let Some(old) = self.parked.take().filter(|old| !old.is_dead()) {
            self.shelf = Some(old);
        }
        for (account, volume) in self.accounts.iter_mut().zip(&self.volumes) {
            if volume.state() != State::Away {
                account.left = Left::Lost;
            }
        }
    }

    /// The host has a volume down as the device's that is in use.
    pub(super) fn own(&mut self, volume: usize) {
        self.accounts[volume].own = true;
        for shelved in [&mut self.shelf, &mut self.parked].into_iter().flatten() {
            shelved.disown(volume);
        }
    }

    /// Puts a new cache device in the place of the one there is, which is returned.
    pub(super) fn format_device(&mut self) -> Shelved {
        let new = self.make_device();
        self.swap_device_for(new)
    }

    /// A new cache device.
    pub(super) fn make_device(&mut self) -> CacheDevice {
        self.log.milestone(self.now, || "A NEW CACHE DEVICE".to_owned());
        self.count.faults.add(Fault::DeviceSwapped);
        self.devices += 1;
        // A running machine has as many shards as it began with; the device has to fit.
        let shards = self.machine.as_ref().map_or(self.profile.setup.shards, Machine::shards);
        let setup = CacheSetup { shards, ..self.profile.setup };
        let format = self.factory.format(&setup, self.devices);
        // Now and then a used one, with all that an older session left on it.
        let mut cache = if self.steering.rng.chance(0.5) {
            CacheDevice::formatted_over(&format, &self.media.cache)
        } else {
            CacheDevice::new(&format)
        };
        cache.serial = self.devices;
        cache
    }

    fn swap_device_for(&mut self, cache: CacheDevice) -> Shelved {
        let accounts = self.accounts.iter().map(|_| Account::new()).collect();
        self.swap_device(Shelved { cache, accounts })
    }

    fn swap_device(&mut self, other: Shelved) -> Shelved {
        self.leave_device();
        self.crash_note = None;
        self.count.log_wraps_percent += self.log_wraps_percent();
        Shelved {
            cache: std::mem::replace(&mut self.media.cache, other.cache),
            accounts: std::mem::replace(&mut self.accounts, other.accounts),
        }
    }
}
