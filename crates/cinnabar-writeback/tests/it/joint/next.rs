//! What happens next: time that passes, I/O that ends, threads that take turns.

use super::machine::{On, Started, ThreadEvent};
use super::settings::Bug;
use super::volume::Volume;
use super::world::{Asker, LogAsker, Next, World};
use crate::world::Checked;
use cinnabar_driver::{Phase, VolumeLife};
use cinnabar_engine::{IoDone, IoError, RequestId};
use cinnabar_writeback::Event;
use rand::RngExt;

impl World {
    pub(super) fn step(&mut self) -> Checked {
        if self.host.is_killed() {
            self.counts.note("kills at a store");
            return self.crash();
        }
        self.now = self.now.plus_ns(self.rng.random_range(1..20_000));
        self.look_at_time()?;
        if self.host.is_killed() {
            return Ok(());
        }
        self.host.draw_kill(&self.settings.base);
        let place = self.volumes[self.misses.random_range(0..self.volumes.len())].mode.place();
        if let Some(place) = place.filter(|_| self.settings.base.pace_ns > 0)
            && let Some(misses) = crate::guest::draw_misses(&mut self.misses)
        {
            self.log_events.push_back(Event::Misses(place, misses));
        }
        let settings = self.settings;
        let base = settings.base;
        if self.rng.random_bool(if self.log.is_lost() { 0.05 } else { base.crash }) {
            return self.crash();
        }
        if self.rng.random_bool(settings.stop) {
            return self.stop();
        }
        let key = self.rng.random_range(0..self.volumes.len());
        if self.rng.random_bool(base.restart) {
            return self.restart(key);
        }
        if self.rng.random_bool(settings.late) {
            self.time_is_over(key)?;
            return self.pump();
        }
        if self.present && self.rng.random_bool(settings.cache_rot) {
            self.rot_cache()?;
        }
        if self.rng.random_bool(base.away) {
            self.volumes[key].away = self.rng.random_range(10..400);
        }
        if self.rng.random_bool(settings.change) {
            self.volumes[key].wanted = !self.volumes[key].wanted;
            self.change_mode(key)?;
            return self.pump();
        }
        let [ssd, disk, guest] = base.weights;
        if self.rng.random_range(0.0..ssd + disk + guest) < guest / 2.0 {
            return self.ask();
        }
        self.happen_now().map(|_| ())
    }

    pub(super) fn look_at_time(&mut self) -> Checked {
        if self.log_wake.is_some_and(|at| at <= self.now) {
            self.log_wake = None;
            self.log_events.push_back(Event::Wake);
        }
        if self.look_at.is_some_and(|at| at <= self.now) {
            self.look_at = None;
            for key in 0..self.volumes.len() {
                if self.volumes[key].id().is_some() {
                    self.drop_lost(key)?;
                }
            }
        }
        let now = self.now;
        let due: Vec<_> = self.later.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, key, command) in due {
            self.ask_log(LogAsker::Step(key), command);
        }
        for key in 0..self.volumes.len() {
            self.attach_again(key)?;
        }
        self.pump()
    }

    pub(super) fn ask_log(&mut self, asker: LogAsker, command: cinnabar_writeback::Command) {
        let id = self.new_id();
        self.log_askers.insert(id.0, asker);
        self.log_events.push_back(Event::Control(id, command));
    }

    /// A volume whose back end has failed a flush is attached again, step by step.
    pub(super) fn attach_again(&mut self, key: usize) -> Checked {
        let volume = &mut self.volumes[key];
        if !volume.again || self.stopping {
            return Ok(());
        }
        match volume.phase() {
            Phase::Serving if volume.again_at > self.now => Ok(()),
            Phase::Serving => {
                self.counts.note("attached again");
                let command = volume.life.as_mut().and_then(VolumeLife::leave);
                self.command(Asker::End(key), command.expect("it serves"))?;
                self.discard_lost(key)
            }
            Phase::Gone if volume.backend.under_way() == 0 => {
                volume.again = false;
                // Before anything that it asks for now is answered.
                if !self.has(Bug::RenewedUntold) && !self.has(Bug::FailedFlushRepeated) {
                    self.tell_log(key, true);
                }
                self.attach_to_engines(key)
            }
            Phase::Attaching | Phase::Leaving | Phase::Gone => Ok(()),
        }
    }

    /// A back end that has failed a flush fails all others until the engines have attached the volume
    /// again: they will, after a pause.
    pub(super) fn renew(&mut self, key: usize) {
        let volume = &mut self.volumes[key];
        if volume.backend.sticks && !std::mem::replace(&mut volume.again, true) {
            let pause = self.rng.random_range(0..self.settings.pause_ns);
            volume.again_at = self.now.plus_ns(pause);
        }
    }

    /// Something happens that can happen now; false: nothing.
    pub(super) fn happen_now(&mut self) -> Checked<bool> {
        let mut all: Vec<Next> = Vec::new();
        let [ssd, disk, _] =
            self.settings.base.weights.map(|weight| if weight > 1.0 { 4 } else { 1 });
        if self.cache.under_way() > 0 {
            all.extend(std::iter::repeat_n(Next::Cache, ssd));
        }
        if self.log_ssd.under_way() > 0 {
            all.extend(std::iter::repeat_n(Next::Log, ssd));
        }
        let calm = self.calm;
        for (key, volume) in self.volumes.iter_mut().enumerate() {
            volume.away = if calm { 0 } else { volume.away.saturating_sub(1) };
            if volume.away == 0 && volume.backend.under_way() > 0 {
                all.extend(std::iter::repeat_n(Next::Backend(key), disk));
            }
        }
        for thread in 0..self.machine.threads() {
            if self.machine.has_work(thread, self.now) {
                all.extend([Next::Turn(thread); 4]);
            }
        }
        if !self.machine.inbox.is_empty() {
            all.extend(std::iter::repeat_n(Next::Inbox, self.settings.inbox));
        }
        if !self.background.is_empty() {
            all.push(Next::Background);
        }
        if all.is_empty() {
            return Ok(false);
        }
        match all[self.rng.random_range(0..all.len())] {
            Next::Cache => self.end_cache(),
            Next::Log => self.end_log(),
            Next::Backend(key) => self.end_backend(key)?,
            Next::Turn(thread) => {
                // Now and then a port tells of a restart without anything behind it.
                let key = self.rng.random_range(0..self.volumes.len());
                if self.rng.random_bool(0.1) {
                    self.tell_restarts(key, thread);
                }
                let take = self.rng.random_range(1..8);
                let how = (take, self.rng.random_bool(0.3));
                let (started, own) = self.machine.turn(thread, self.now, how);
                self.begin(started);
                if thread == 0 {
                    self.hear_restarts();
                }
                for heard in own {
                    self.hear(heard)?;
                }
            }
            Next::Inbox => {
                for _ in 0..self.rng.random_range(1..8) {
                    let Some(heard) = self.machine.inbox.pop_front() else { break };
                    self.hear(heard)?;
                }
            }
            Next::Background => self.end_background()?,
        }
        self.pump()?;
        Ok(true)
    }

    /// A claim is made, or taken away.
    fn end_background(&mut self) -> Checked {
        let which = self.rng.random_range(0..self.background.len());
        let (key, claims) = self.background.remove(which);
        self.volumes[key].claim = claims;
        let mode = &mut self.volumes[key].mode;
        let step = if claims { mode.claimed(Ok(())) } else { mode.unclaimed() };
        self.do_step(key, step)
    }

    /// The same, or the time passes until there is something.
    pub(super) fn happen(&mut self) -> Checked<bool> {
        if self.happen_now()? {
            return Ok(true);
        }
        let later = self.later.iter().map(|(at, ..)| *at);
        let renewed = self.volumes.iter().filter(|v| v.again && v.phase() == Phase::Serving);
        let later = later.chain(renewed.map(|volume| volume.again_at));
        let own = [self.log_wake, self.look_at, self.machine.wake()];
        let Some(next) = own.into_iter().flatten().chain(later).min() else { return Ok(false) };
        self.now = self.now.max(next);
        self.look_at_time()?;
        Ok(true)
    }

    /// Everything that was asked for is answered, and no volume is on its way.
    pub(super) fn settle(&mut self) -> Checked {
        self.tell_all_restarts();
        for _ in 0..400_000 {
            let busy = |volume: &Volume| {
                !volume.asked.is_empty()
                    || volume.mode.changes()
                    || volume.again
                    || volume.phase() != Phase::Serving
            };
            let works = |thread| self.machine.has_work(thread, self.now);
            let quiet = self.machine.inbox.is_empty() && !(0..self.machine.threads()).any(works);
            if !self.volumes.iter().any(busy) && self.askers.is_empty() && quiet {
                return Ok(());
            }
            self.look_at_time()?;
            if !self.happen()? {
                break;
            }
        }
        let asked: usize = self.volumes.iter().map(|volume| volume.asked.len()).sum();
        let modes: Vec<_> =
            self.volumes.iter().map(|volume| (&volume.mode, volume.phase())).collect();
        Err(format!("{asked} requests are forgotten; {modes:?}, {:?}", self.askers))
    }

    pub(super) fn begin(&mut self, started: Started) {
        for (id, on, op) in started {
            self.trace("io", &(id, on, &op));
            match on {
                On::Cache => self.cache.submit(id, op),
                On::Backend(key) => self.volumes[key].backend.submit(id, op),
            }
        }
    }

    pub(super) fn hear(&mut self, heard: ThreadEvent) -> Checked {
        match heard {
            ThreadEvent::Restarted(restarted) => self.restarted(&restarted),
            ThreadEvent::Said(shard, reply) => {
                let askers = &self.askers;
                let key = |id: RequestId| match askers.get(&id.0) {
                    Some(Asker::Attach(key)) => *key,
                    other => panic!("it was attached for nothing: {other:?}"),
                };
                match self.machine.answered(shard, reply, key) {
                    Some(reply) => self.reply(reply),
                    None => Ok(()),
                }
            }
        }
    }

    /// An I/O of the log's device ends, well or not. One that falls silent answers nothing any more.
    fn end_log(&mut self) {
        let which = self.rng.random_range(0..self.log_ssd.under_way());
        let fails = !self.calm && self.rng.random_bool(self.settings.base.ssd_fails);
        if fails && !self.log_silent && self.rng.random_bool(0.5) {
            self.log_silent = true;
            self.counts.note("silent log devices");
        }
        let done = if self.log_silent {
            IoDone::new(self.log_ssd.give_up(which, &mut self.rng), Err(IoError::TimedOut))
        } else if let Some((id, _)) =
            fails.then(|| self.log_ssd.fail(which, &mut self.rng)).flatten()
        {
            self.counts.note("failures of the log's device");
            IoDone::new(id, Err(IoError::Io))
        } else {
            self.log_ssd.end(which)
        };
        self.log_events.push_back(Event::LogDone(done));
    }

    pub(super) fn end_cache(&mut self) {
        let which = self.rng.random_range(0..self.cache.under_way());
        let fails = !self.calm && self.rng.random_bool(self.settings.cache_fails);
        if fails && !self.cache_dead {
            self.cache_dead = true;
            self.counts.note("cache devices lost");
        }
        let done = if self.cache_dead {
            IoDone::new(self.cache.give_up(which, &mut self.rng), Err(IoError::Io))
        } else {
            self.cache.end(which)
        };
        self.trace("cache", &(done.id, done.result));
        self.machine.io_done(done);
    }

    pub(super) fn end_backend(&mut self, key: usize) -> Checked {
        let settings = self.settings;
        let calm = self.calm;
        let volume = &mut self.volumes[key];
        let which = self.rng.random_range(0..volume.backend.under_way());
        let share = if volume.backend.is_flush(which) {
            settings.flush_fails
        } else {
            settings.backend_fails
        };
        let fails = !calm && volume.backend.may_fail(which) && self.rng.random_bool(share);
        let done = if fails || volume.backend.must_fail(which) {
            self.counts.note("back-end failures");
            let loses = volume.joined;
            volume.backend.fail(which, loses, &mut self.rng)
        } else {
            volume.backend.end(which, self.now.0, key)
        };
        volume.check_backend()?;
        self.trace("backend", &(key, done.id, done.result));
        self.tell_restarts(key, self.machine.thread_of(done.id));
        self.machine.io_done(done);
        Ok(())
    }
}
