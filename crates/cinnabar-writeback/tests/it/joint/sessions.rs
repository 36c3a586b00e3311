//! Sessions: the cache device, the start, and the end by a crash.

use super::backend::judge;
use super::machine::Machine;
use super::settings::{Bug, JointSettings};
use super::world::{Asker, SEGMENTS, World};
use crate::memory::Mem;
use crate::settings::Counts;
use crate::ssd::Ssd;
use crate::world::Checked;
use cinnabar_driver::write_mode::WriteMode;
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{Command, Op};
use cinnabar_writeback::recover::Media;
use rand::RngExt;
use std::collections::BTreeSet;

impl World {
    /// Another cache device, an empty one.
    pub(super) fn format_cache(&mut self) {
        self.cache = Ssd::default();
        self.cache_serial += 1;
        self.cache_dead = false;
        let JointSettings { shards, span_log2, .. } = self.settings;
        let geometry =
            Geometry::for_capacity(4 * 255, 1).with_journal(24).divided(shards, span_log2);
        for superblock in Superblock::format_all([0xC1 ^ self.cache_serial; 16], geometry) {
            let (offset, page) = superblock.encode();
            let at = superblock.region_start() + offset;
            self.cache.write_page(at, &page).expect("it is never killed");
        }
        self.cache.flush().expect("it is never killed");
    }

    pub(super) fn superblocks(&self) -> Checked<Vec<Superblock>> {
        let mut all: Vec<Superblock> = Vec::new();
        for _ in 0..self.settings.shards {
            let at =
                all.first().map_or(0, |first| first.for_shard(all.len() as u32).region_start());
            let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
            self.cache.read_pages(at, &mut pages).expect("it is readable");
            let superblock = Superblock::decode(&pages)
                .map_err(|error| format!("no superblock any more: {error}"))?;
            all.push(superblock);
        }
        Ok(all)
    }

    /// Begins a session: the engines are opened, and then the volumes attached.
    pub(super) fn start(&mut self) -> Checked {
        let was = std::mem::replace(&mut self.calm, true);
        let superblocks = if self.present { self.superblocks()? } else { Vec::new() };
        let threads = self.settings.threads.min(superblocks.len().max(1));
        let mut config = self.settings.engine;
        if self.has(Bug::CacheUnverified) {
            config.mutants = Mutants::only(Mutant::ChecksumNotVerified);
        }
        self.machine = Machine::new(config, superblocks, threads);
        self.machine.keeps_lost = self.has(Bug::LostRangesKept);
        self.opened = None;
        self.command(Asker::Open, Command::Open)?;
        while self.opened.is_none() {
            if !self.happen()? {
                return Err("the engines are never open".to_owned());
            }
        }
        if self.opened == Some(false) {
            return Err("the engines could not be opened".to_owned());
        }
        self.command(Asker::AwaitLoad, Command::AwaitLoad)?;
        for key in 0..self.volumes.len() {
            self.attach(key)?;
        }
        self.calm = was;
        self.pump()
    }

    /// Attaches a volume: by way of the log, if it is to be there or has writes there.
    pub(super) fn attach(&mut self, key: usize) -> Checked {
        let name = self.volumes[key].name.clone();
        let holds = self.place_of(&name);
        if holds && !self.volumes[key].claim {
            return Err(format!("{name}: the log has a place for it, and there is no claim"));
        }
        if !self.volumes[key].wanted && !holds {
            return self.attach_to_engines(key);
        }
        if self.has(Bug::EngineBeforeLog) {
            self.attach_to_engines(key)?;
        }
        let step = self.volumes[key].mode.join(false);
        self.do_step(key, step)
    }

    pub(super) fn place_of(&self, name: &str) -> bool {
        self.log.places().any(|place| self.log.status(place).is_some_and(|s| s.name == name))
    }

    pub(super) fn attach_to_engines(&mut self, key: usize) -> Checked {
        let device = self.present.then_some(self.cache_serial);
        let volume = &mut self.volumes[key];
        if volume.life.as_ref().is_some_and(|life| life.phase() != Phase::Gone) {
            return Ok(());
        }
        volume.attachments += 1;
        volume.backend.sticks = false;
        let recorded = self.machine.recorded(&volume.name);
        let spec = VolumeSpec {
            generation: volume.backend.generation_with(device),
            proof: Some(volume.backend.proof(self.now.0, key)),
            exclusive: key.is_multiple_of(2),
            ..VolumeSpec::new(volume.name.clone(), volume.sectors * 512)
        };
        let mutants = Mutants::default();
        let life = VolumeLife::new(volume.name.clone(), volume.attachments, mutants);
        let command = life.attach(spec, &recorded, judge);
        volume.life = Some(life);
        self.command(Asker::Attach(key), command)
    }

    /// The daemon is killed or the host loses power; servers may restart meanwhile.
    pub(super) fn crash(&mut self) -> Checked {
        let power = !self.host.is_killed() && self.rng.random_bool(0.5);
        self.counts.note(if power { "power cuts" } else { "kills" });
        self.trace("crash", &power);
        self.lose_host(power);
        let mut may_lose = Vec::new();
        for volume in &mut self.volumes {
            volume.backend.abandon(&mut self.rng);
            volume.check_backend()?;
            let restarts = self.rng.random_bool(0.2);
            if restarts {
                volume.backend.restart(&BTreeSet::new(), &mut self.rng);
                volume.check_backend()?;
            }
            let was_in_log = volume.joined;
            may_lose.push((if was_in_log { power } else { restarts }, was_in_log));
        }
        self.end_session()?;
        self.reopen_log()?;
        self.begin_session()?;
        let was = std::mem::replace(&mut self.calm, true);
        for (key, (may_lose, was_in_log)) in may_lose.into_iter().enumerate() {
            self.look_at_all(key, may_lose, was_in_log)?;
        }
        self.calm = was;
        Ok(())
    }

    /// The host loses power, or the daemon is killed: what the devices and the write memory keep.
    pub(super) fn lose_host(&mut self, power: bool) {
        if power {
            self.cache.power_cut(&mut self.rng);
            self.log_ssd.power_cut(&mut self.rng);
        } else {
            self.cache.kill(&mut self.rng);
            self.log_ssd.kill(&mut self.rng);
        }
        self.host.revive();
        let forgets = self.host.crash(&self.settings.base, power, &mut Counts::default());
        assert!(!forgets, "the memory of a host that lives is there");
    }

    pub(super) fn reopen_log(&mut self) -> Checked {
        let bytes = cinnabar_writeback::format::bytes_of(SEGMENTS);
        let opened = self.host.open(&self.log_ssd, bytes, self.settings.base.config(), false);
        self.log = opened.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Nothing is left of a session but what is on the devices.
    pub(super) fn end_session(&mut self) -> Checked {
        self.askers.clear();
        self.log_askers.clear();
        self.log_events.clear();
        self.later.clear();
        (self.log_wake, self.look_at, self.stopping) = (None, None, false);
        self.log_silent = false;
        self.check_reused(0)?;
        self.lent.clear();
        self.given_up.clear();
        for (key, claims) in std::mem::take(&mut self.background) {
            // It was done, or not.
            if self.rng.random_bool(0.5) {
                self.volumes[key].claim = claims;
            }
        }
        for volume in &mut self.volumes {
            volume.asked.clear();
            volume.held.clear();
            volume.early.clear();
            volume.restarts.clear();
            volume.lost.clear();
            (volume.mode, volume.life) = (WriteMode::default(), None);
            (volume.again, volume.serves, volume.undecided) = (false, false, true);
            volume.joined = false;
            if volume.backend.under_way() > 0 {
                return Err(format!("{}: I/O is under way after the end", volume.name));
            }
        }
        Ok(())
    }

    /// The next session, with the cache device that there was, another one, or none.
    pub(super) fn begin_session(&mut self) -> Checked {
        if self.cache_dead {
            match self.rng.random_range(0..3) {
                0 => self.format_cache(),
                1 => (self.present, self.cache_dead) = (false, false),
                _ => self.cache_dead = false,
            }
        } else if !self.present && self.rng.random_bool(0.5) {
            self.present = true;
        }
        // Claims of places that are gone are found to be old.
        for key in 0..self.volumes.len() {
            let holds = self.place_of(&self.volumes[key].name);
            self.volumes[key].claim &= holds;
        }
        self.start()
    }

    /// What the guest finds is what was, from now on. `in_log`: it was there before, so all that is left
    /// is durable.
    pub(super) fn look_at_all(&mut self, key: usize, may_lose: bool, in_log: bool) -> Checked {
        let span = self.volumes[key].whole();
        self.submit(key, Op::Read { span, data: Mem::sectors(0) }, 0, false)?;
        let id = *self.volumes[key].asked.last_key_value().expect("just asked").0;
        let Op::Read { data, .. } = self.volumes[key].asked[&id].op.clone() else { unreachable!() };
        self.pump()?;
        self.settle()?;
        let volume = &mut self.volumes[key];
        for sector in crate::disk::sectors(span) {
            let value = data.value(sector).ok_or_else(|| format!("sector {sector} is torn"))?;
            let newest = volume.oracle.newest(sector);
            if !volume.oracle.check_after_crash(sector, value, may_lose) {
                let name = &volume.name;
                return Err(format!(
                    "{name}: after a crash (may lose: {may_lose}) sector {sector} holds {value}; \
                     newest {newest}"
                ));
            }
            if self.traces {
                eprintln!("{key} sector {sector}: {value}");
            }
            volume.oracle.decide(sector, value);
        }
        volume.undecided = false;
        if in_log {
            volume.oracle.crash_barrier();
        }
        volume.check_backend()
    }
}
