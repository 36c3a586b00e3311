//! Everything that disturbs guests at work: plans, rot, stalls, devices that die or are replaced,
//! volumes that another writer writes.

use crate::driver::agenda::Item;
use crate::driver::guests::State;
use crate::driver::world::World;
use crate::kinds::Fault;
use crate::machine::Factory;
use crate::medium::Death;
use crate::stamp::Stamped;
use cinnabar_engine::Event;
use cinnabar_engine::plan::{Mode, Plan, VolumePlan};
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};

impl<F: Factory<Stamped>> World<'_, F> {
    /// Once in a while, something happens beside the guests' requests.
    pub(super) fn disturb(&mut self, volume: usize) {
        let features = self.features();
        if features.plans && self.rng.chance(0.01) {
            self.new_plan();
        }
        if features.rot && self.rng.chance(0.02) && self.media.cache.rot(&mut self.rng) {
            self.log.note(self.now, None, || "a cached block rots".to_owned());
            self.count.rotted += 1;
            self.count.faults.add(Fault::DataRot);
        }
        if features.metadata_rot && self.rng.chance(0.002) {
            self.rot_metadata();
        }
        if features.stalls && self.rng.chance(0.003) {
            self.stall(volume);
        }
        if features.deaths && self.present && self.rng.chance(0.002) {
            self.kill_device();
        }
        if features.server_restarts && self.rng.chance(0.006) {
            self.restart_server(volume);
        }
        if features.clock_steps && self.rng.chance(0.003) {
            self.set_clock_back();
        }
        if features.replacements && self.rng.chance(0.003) {
            self.change_device(false);
        }
        if features.resizes && self.resizes.chance(0.01) {
            self.resize_cache();
        }
        let attached = self.volumes[volume].state() == State::Attached;
        if features.invalidations && attached && self.rng.chance(0.01) {
            self.write_beneath(volume);
        }
        if features.detaches && attached && self.rng.chance(0.004) {
            self.detach_for_a_while(volume);
        }
    }

    /// A volume goes away, and comes back later.
    pub(super) fn detach_for_a_while(&mut self, volume: usize) {
        self.count.detaches += 1;
        self.count.faults.add(Fault::Detached);
        self.detach(volume);
    }

    /// A medium answers nothing for a while.
    fn stall(&mut self, volume: usize) {
        let longest = self.rng.pick(&[100_000_000, 2_000_000_000, 15_000_000_000]);
        let until = self.now.plus_ns(self.rng.below(longest));
        let cache = self.rng.chance(0.4);
        self.count.faults.add(if cache { Fault::CacheStall } else { Fault::BackendStall });
        let stalled =
            if cache { &mut self.cache_stalled } else { &mut self.volumes[volume].stalled };
        *stalled = until;
        self.log.milestone(self.now, || {
            let which = if cache { "the cache".to_owned() } else { format!("backend {volume}") };
            format!("STALL of {which} until {until:?}")
        });
    }

    /// The clock of a backend's host is set back.
    pub(super) fn set_clock_back(&mut self) {
        let backend = self.rng.below(self.volumes.len() as u64) as usize;
        let ns = self.rng.pick(&[1, 1_000_000, 500_000_000, 2_000_000_000]);
        self.media.backends[backend].step_back(ns);
        self.count.faults.add(Fault::ClockStep);
        self.log.milestone(self.now, || format!("CLOCK of backend {backend} is set back {ns} ns"));
    }

    fn kill_device(&mut self) {
        if self.media.cache.is_dead() {
            return;
        }
        let death = self.rng.pick(&[Death::Fails, Death::Hangs]);
        self.log.milestone(self.now, || format!("THE CACHE DEVICE DIES: {death:?}"));
        self.count.faults.add(match death {
            Death::Fails => Fault::DeviceDeath,
            Death::Hangs => Fault::DeviceHang,
        });
        self.media.cache.die(death);
    }

    /// Another writer writes an attached volume, and the operator says so a little later. Not where
    /// guests are writing, nor where the engine writes blocks back that it has read: who is first
    /// there, it can't be known.
    pub(super) fn write_beneath(&mut self, volume: usize) {
        let profile = &self.profile.volumes[volume];
        let sectors = profile.sectors;
        let first = self.rng.below(sectors);
        let count = self.rng.within(1..1 + (sectors - first).min(256));
        if profile.align_bytes > 512 || self.is_being_written(volume, &(first..first + count)) {
            return;
        }
        let foreign = self.foreign_write(volume, first, count);
        self.oracle.excuse(volume, first, &foreign.before);
        self.soon(20_000_000, Item::Invalidate(volume, first, count));
    }

    pub(super) fn invalidate(&mut self, volume: usize, first: u64, count: u64) {
        if self.volumes[volume].state() != State::Attached {
            return;
        }
        self.count.faults.add(Fault::Invalidated);
        let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
        self.submit_invalidate(volume, span);
    }

    pub(super) fn new_plan(&mut self) {
        // One that lets nothing in, then one that does.
        let admits = self.features().throttles.then_some(self.count.plans % 2 == 1);
        let mut plan = Plan { admits, ..Plan::default() };
        for volume in 0..self.volumes.len() {
            let State::Attached = self.volumes[volume].state() else { continue };
            if self.rng.chance(0.3) {
                continue;
            }
            let mode = match self.rng.below(8) {
                0 => Some(Mode::PassThrough),
                1 => Some(Mode::WriteAround),
                2 | 3 => None,
                _ => Some(Mode::WriteThrough),
            };
            self.volumes[volume].mode = mode.unwrap_or(self.volumes[volume].mode);
            let (min, max) = self.shares();
            let change_shares = self.rng.chance(0.5);
            plan.volumes.push(VolumePlan {
                volume: self.volumes[volume].id().expect("an attached volume has an index"),
                mode,
                share_min_blocks: change_shares.then_some(min),
                share_max_blocks: change_shares.then_some(max),
                // Each fourth plan has one volume filled slowly, the next one takes that back.
                fill_limit_bytes: match self.count.plans % 4 {
                    2 => Some(256 << 10),
                    3 => Some(0),
                    _ => None,
                },
                // Between the two, or none.
                share_target_blocks: (max % 3 != 0).then_some(match min {
                    0 => VolumePlan::NO_TARGET,
                    min => min.midpoint(max.min(min * 3)),
                }),
            });
        }
        self.log.note(self.now, None, || format!("adopt {plan:?}"));
        self.batch.push(Event::Adopt(plan));
        self.count.plans += 1;
        self.count.faults.add(Fault::PlanChange);
        if admits == Some(false) {
            self.count.faults.add(Fault::Throttled);
        }
    }

    /// Shares that make sense, and sometimes less of it.
    pub(super) fn shares(&mut self) -> (u64, u64) {
        let capacity = self.profile.setup.capacity_blocks;
        let min = self.rng.pick(&[0, 0, capacity / 10, capacity / 4, capacity]);
        let max = self.rng.pick(&[capacity, u64::MAX, capacity / 2, capacity / 4]);
        (min, max)
    }
}
