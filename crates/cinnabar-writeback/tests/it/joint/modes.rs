//! Volumes that join the log and leave it while their guests go on, and the stop: what the daemon does
//! around `WriteMode`.

use super::settings::Bug;
use super::world::{Asker, LogAsker, World};
use crate::host::Hosted;
use crate::world::Checked;
use cinnabar_driver::write_mode::{Route, Step};
use cinnabar_engine::{Failure, IoError, Op, RequestId};
use cinnabar_writeback::{Command, Event};
use rand::RngExt;

/// Until the log is asked again to let go of a volume of which something is under way, in ns.
const AGAIN_AFTER_NS: u64 = 100_000;
/// What a volume that leaves may have dirty when its writes are held.
const LITTLE_BYTES: u64 = 4 * 4096;
/// Most drains of one, each of which leaves less.
const DRAINS_MAX: u32 = 200;

impl World {
    /// A volume goes the way that the operator wants, unless it is on its way already.
    pub(super) fn change_mode(&mut self, key: usize) -> Checked {
        let volume = &mut self.volumes[key];
        if volume.mode.changes() || !volume.serves || self.stopping {
            return Ok(());
        }
        let step = match (volume.mode.route(), volume.wanted) {
            (Route::Engine, true) => {
                self.counts.note("joins");
                Some(volume.mode.join(true))
            }
            (Route::Log(_), false) => {
                self.counts.note("leaves");
                volume.drains = 0;
                let step = volume.mode.leave(true, false);
                if let Some(place) = volume.mode.place() {
                    let command = Command::Slow { place, slow: true };
                    self.log_events.push_back(Event::Control(RequestId(u64::MAX), command));
                }
                step
            }
            _ => None,
        };
        step.map_or(Ok(()), |step| self.do_step(key, step))
    }

    /// Does the next step.
    pub(super) fn do_step(&mut self, key: usize, step: Step) -> Checked {
        self.trace("step", &(key, &step));
        match step {
            Step::Claim => {
                self.background.push((key, true));
                Ok(())
            }
            Step::Attach => {
                let (incarnation, volume) = (self.rng.random(), &self.volumes[key]);
                let (name, size_bytes) = (volume.name.clone(), volume.sectors * 512);
                let join = Command::Attach { name, size_bytes, incarnation, group: String::new() };
                self.ask_log(LogAsker::Attach(key), join);
                Ok(())
            }
            Step::Serve if self.volumes[key].id().is_some() => {
                let step = self.volumes[key].mode.serves();
                self.do_step(key, step.expect("the log waits for this"))
            }
            Step::Serve => self.attach_to_engines(key),
            Step::Hold => self.settle_mode(key),
            Step::Flush if self.has(Bug::JoinedUnflushed) => {
                let step = self.volumes[key].mode.flushed(Ok(()));
                self.do_step(key, step)
            }
            Step::Flush => {
                let late = self.volumes[key].id().map(|id| self.machine.late_requests(id));
                let failed = match late {
                    // It is being attached again.
                    None => Some(Failure::NoVolume),
                    Some(0) => None,
                    Some(_) if self.has(Bug::JoinedBesideLate) => None,
                    // A write that a guest gave up may land after the flush.
                    Some(_) => Some(Failure::Io(IoError::TimedOut)),
                };
                if let Some(failed) = failed {
                    let step = self.volumes[key].mode.flushed(Err(failed));
                    return self.do_step(key, step);
                }
                let id = self.new_id();
                self.ask_engines(Asker::Mode(key), key, id, Op::Flush)
            }
            Step::Joined(_) => {
                self.volumes[key].joined = true;
                self.attach_to_engines(key)?;
                self.admit_held(key)?;
                self.change_if_serving(key)
            }
            Step::Ask(command) => {
                let command = match command {
                    Command::Remove { place, .. } if self.has(Bug::LeftUndrained) => {
                        Command::Remove { place, discard: true }
                    }
                    command => command,
                };
                self.ask_log(LogAsker::Step(key), command);
                Ok(())
            }
            Step::AskLater(command) => {
                self.later.push((self.now.plus_ns(AGAIN_AFTER_NS), key, command));
                Ok(())
            }
            Step::Unclaim => {
                self.background.push((key, false));
                Ok(())
            }
            Step::Left(failed) => self.left(key, failed.is_none()),
            Step::Stays(_) if self.log.is_lost() => {
                // If it was to join, guests go past the log; else their requests fail.
                self.volumes[key].wanted = self.volumes[key].mode.place().is_some();
                self.admit_held(key)
            }
            Step::Stays(failed) => Err(format!("it stays: {failed}")),
        }
    }

    /// A volume has left the log, or could not join it.
    fn left(&mut self, key: usize, joined: bool) -> Checked {
        let volume = &mut self.volumes[key];
        volume.joined = false;
        if !joined {
            self.counts.note("not joined");
            volume.wanted = false;
        } else if !volume.undecided {
            volume.check_drained()?;
        }
        if !volume.serves {
            self.attach_to_engines(key)?;
        }
        self.admit_held(key)?;
        self.change_if_serving(key)
    }

    fn change_if_serving(&mut self, key: usize) -> Checked {
        if self.volumes[key].serves { self.change_mode(key) } else { Ok(()) }
    }

    /// A drain has ended: whether little was written meanwhile.
    pub(super) fn little_is_left(&mut self, key: usize) -> Result<bool, String> {
        let place = self.volumes[key].mode.place();
        let status = place.and_then(|place| self.log.status(place));
        let volume = &mut self.volumes[key];
        volume.drains += 1;
        if volume.drains > DRAINS_MAX {
            return Err("a volume never leaves".to_owned());
        }
        let little = status.is_none_or(|status| status.dirty_bytes <= LITTLE_BYTES);
        if !little {
            self.counts.note("drains again");
        }
        Ok(little)
    }

    /// Goes on with a volume whose requests wait, if none of them is under way.
    pub(super) fn settle_mode(&mut self, key: usize) -> Checked {
        let volume = &self.volumes[key];
        let joins = volume.mode.awaits_idle() && !volume.mode.leaves();
        let unheld = joins && self.has(Bug::JoinedUnheld);
        let changes =
            volume.asked.values().filter(|asked| !matches!(asked.op, Op::Read { .. })).count();
        let held = volume.held.iter().filter(|(_, op)| !matches!(op, Op::Read { .. })).count();
        if volume.mode.awaits_idle() && (changes == held || unheld) {
            let mut step = self.volumes[key].mode.idle();
            if self.has(Bug::LeftUndrained) && self.volumes[key].mode.leaves() {
                step = self.volumes[key].mode.answered(Ok(()), true);
            }
            return self.do_step(key, step);
        }
        Ok(())
    }

    /// Everything is stopped, as an operator does it, and started again.
    pub(super) fn stop(&mut self) -> Checked {
        if self.log.is_lost() {
            return Ok(());
        }
        self.host.revive();
        // Guests have gone.
        let was = std::mem::replace(&mut self.calm, true);
        self.settle()?;
        self.stopping = true;
        self.counts.note("stops");
        self.log_closed = false;
        self.ask_log(LogAsker::Close, Command::Close);
        self.pump()?;
        while !self.log_closed {
            if !self.happen()? {
                return Err("the log is never closed".to_owned());
            }
        }
        for key in 0..self.volumes.len() {
            let life = self.volumes[key].life.as_mut().expect("it serves");
            let command = life.leave().expect("it serves");
            self.command(Asker::End(key), command)?;
        }
        let gone = |world: &Self| {
            world
                .volumes
                .iter()
                .all(|v| v.phase() == cinnabar_driver::Phase::Gone && v.backend.under_way() == 0)
        };
        while !gone(self) {
            if !self.happen()? {
                return Err("a volume is never detached".to_owned());
            }
        }
        self.closed = None;
        self.command(Asker::Close, cinnabar_engine::Command::Close)?;
        while self.closed.is_none() {
            if !self.happen()? {
                return Err("the cache is never closed".to_owned());
            }
        }
        self.machine.check_invariants();
        self.restart_session()?;
        self.calm = was;
        Ok(())
    }

    fn restart_session(&mut self) -> Checked {
        let power = self.rng.random_bool(0.5);
        if self.rng.random_bool(0.5) {
            Hosted::release(&self.log_ssd);
        }
        self.lose_host(power);
        self.end_session()?;
        self.reopen_log()?;
        self.begin_session()?;
        for key in 0..self.volumes.len() {
            self.look_at_all(key, false, false)?;
        }
        Ok(())
    }
}
