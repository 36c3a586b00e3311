//! What the first thread has of the engines: commands and requests, and what their answers mean.

use super::settings::Bug;
use super::world::{Asker, World};
use crate::memory::Mem;
use crate::world::Checked;
use cinnabar_driver::lost_ranges::AGAIN_AFTER_NS;
use cinnabar_driver::write_mode::Route;
use cinnabar_driver::{EndStep, Phase};
use cinnabar_engine::{Command, Op, Reply, Request, RequestId};
use cinnabar_writeback::Event;

impl World {
    pub(super) fn command(&mut self, asker: Asker, command: Command) -> Checked {
        let id = self.new_id();
        self.trace("command", &(id, &asker));
        self.askers.insert(id.0, asker);
        match self.machine.command(id, command) {
            Some(reply) => self.reply(reply),
            None => Ok(()),
        }
    }

    /// Has the engines do something with a volume that serves.
    pub(super) fn ask_engines(
        &mut self,
        asker: Asker,
        key: usize,
        id: RequestId,
        op: Op<Mem>,
    ) -> Checked {
        let volume = self.volumes[key].id().expect("a volume that serves is attached");
        self.askers.insert(id.0, asker);
        match self.machine.submit(Request { id, volume, op }) {
            Some(reply) => self.reply(reply),
            None => Ok(()),
        }
    }

    /// The engines have answered.
    pub(super) fn reply(&mut self, reply: Reply<Mem>) -> Checked {
        let Reply { id, result } = reply;
        let asker = self.askers.remove(&id.0).ok_or("an answer to nothing")?;
        self.trace("reply", &(id, &asker, result.as_ref().map(|_| ())));
        match asker {
            Asker::Guest(key) => {
                self.replied(key, id, result)?;
                self.settle_mode(key)
            }
            Asker::Log(key, of) => {
                self.log_request_done(key, of, result);
                Ok(())
            }
            Asker::Mode(key) => {
                let step = self.volumes[key].mode.flushed(result.map(drop));
                self.renew(key);
                self.do_step(key, step)
            }
            Asker::Doubt(key, span) => {
                if result.is_ok() {
                    self.dropped(key, span, id);
                } else if let Some(life) = &mut self.volumes[key].life {
                    life.put_back(span);
                    self.look_at = Some(self.now.plus_ns(AGAIN_AFTER_NS));
                    self.discard_lost(key)?;
                }
                Ok(())
            }
            Asker::Open => {
                self.opened = Some(result.is_ok());
                Ok(())
            }
            Asker::Close => {
                self.closed = Some(result.is_ok());
                Ok(())
            }
            Asker::AwaitLoad | Asker::Discard => Ok(()),
            Asker::Attach(key) => {
                let life = self.volumes[key].life.as_mut().expect("it is being attached");
                life.attached(&result).map_err(|failure| format!("not attached: {failure}"))?;
                self.attached(key)
            }
            Asker::End(key) => {
                let life = self.volumes[key].life.as_mut().expect("it leaves");
                match life.answered(result.map(drop)) {
                    EndStep::Ask(command) => self.command(Asker::End(key), command),
                    EndStep::TakeProof => {
                        let proof = Some(self.volumes[key].backend.proof(self.now.0, key));
                        let life = self.volumes[key].life.as_mut().expect("it leaves");
                        let command = life.proved(proof);
                        self.command(Asker::End(key), command)
                    }
                    EndStep::Gone(_) => Ok(()),
                }
            }
        }
    }

    /// The engines have a volume: what waited for that goes on.
    pub(super) fn attached(&mut self, key: usize) -> Checked {
        let mut early = std::mem::take(&mut self.volumes[key].early);
        if self.has(Bug::EarlyReordered) {
            early.make_contiguous().reverse();
        }
        for (id, op) in early {
            self.request_of_log(key, id, op)?;
        }
        self.volumes[key].serves = true;
        self.drop_lost(key)?;
        if let Some(step) = self.volumes[key].mode.serves() {
            return self.do_step(key, step);
        }
        self.admit_held(key)?;
        self.change_mode(key)
    }

    /// Gives what waits its way, if there is one now.
    pub(super) fn admit_held(&mut self, key: usize) -> Checked {
        for (id, op) in std::mem::take(&mut self.volumes[key].held) {
            self.admit(key, id, op)?;
        }
        Ok(())
    }

    /// A guest's request.
    pub(super) fn admit(&mut self, key: usize, id: RequestId, op: Op<Mem>) -> Checked {
        let volume = &mut self.volumes[key];
        let bug = self.settings.bug.filter(|_| volume.phase() == Phase::Serving);
        let past = bug == Some(Bug::EngineBeforeLog) && !volume.joined && !volume.serves
            || bug == Some(Bug::LeftUnheld) && volume.mode.leaves();
        let passes = self.settings.bug == Some(Bug::LossPassesThrough) && self.log.is_lost();
        let reads = matches!(op, Op::Read { .. });
        let route = if reads { volume.mode.read_route() } else { volume.mode.route() };
        match route {
            Route::Log(_) if passes && volume.phase() == Phase::Serving => {
                return self.ask_engines(Asker::Guest(key), key, id, op);
            }
            Route::Wait if !past => volume.held.push_back((id, op)),
            Route::Log(place) => {
                // The log copies what it takes.
                if let Op::Write { data, .. } = &op {
                    self.lent.insert(id.0, data.clone());
                }
                self.log_events.push_back(Event::Submit(id, place, op));
            }
            _ if volume.phase() == Phase::Serving => {
                return self.ask_engines(Asker::Guest(key), key, id, op);
            }
            _ => volume.held.push_back((id, op)),
        }
        Ok(())
    }
}
