//! The write log's actions: what it asks of the engines, and whom it answers.

use super::settings::Bug;
use super::world::{Asker, LogAsker, World};
use crate::memory::Mem;
use crate::world::Checked;
use cinnabar_driver::Phase;
use cinnabar_engine::{Answer, Failure, Op, RequestId};
use cinnabar_writeback::{Action, Command, Done, EngineId, Event, Refusal};

impl World {
    /// Lets the log take what there is, and does what it says.
    pub(super) fn pump(&mut self) -> Checked {
        while !self.log_events.is_empty() && !self.host.is_killed() {
            let mut events: Vec<_> = self.log_events.drain(..).collect();
            for event in &events {
                self.trace("<-", event);
            }
            let mut actions = Vec::new();
            let was_lost = self.log.is_lost();
            self.log.apply(self.now, &mut events, &mut actions);
            if self.has(Bug::RequestsReordered) {
                let engine = |action: &Action<Mem>| matches!(action, Action::Engine(..));
                for run in actions.chunk_by_mut(|a, b| engine(a) && engine(b)) {
                    run.reverse();
                }
            }
            for action in actions {
                if self.host.is_killed() {
                    break;
                }
                self.trace("->", &action);
                match action {
                    Action::Log(id, op) => self.log_ssd.submit(id, op),
                    Action::Memory(op) => self.host.store(&op),
                    Action::Engine(id, place, op) => {
                        let key = self.volumes.iter().position(|v| v.mode.place() == Some(place));
                        let key = key.ok_or("a request for no volume")?;
                        self.request_of_log(key, id, op)?;
                    }
                    Action::Reply(id, _) if self.given_up.remove(&id.0) => {}
                    Action::Reply(id, result) => {
                        let key = self.volumes.iter().position(|v| v.asked.contains_key(&id.0));
                        let key = key.ok_or("an answer to nothing")?;
                        if !self.volumes[key].claim {
                            return Err("acknowledged in the log without a claim".to_owned());
                        }
                        let reads = matches!(self.volumes[key].asked[&id.0].op, Op::Read { .. });
                        if was_lost && !reads && result.is_ok() {
                            return Err("acknowledged after the log's device was lost".to_owned());
                        }
                        self.replied(key, id, result)?;
                        self.settle_mode(key)?;
                    }
                    Action::Answer(id, result) => self.log_answered(id, result)?,
                    Action::WakeAt(at) => {
                        self.log_wake = Some(self.log_wake.map_or(at, |wake| wake.min(at)));
                    }
                }
            }
        }
        Ok(())
    }

    /// A request of the log's for the engines.
    pub(super) fn request_of_log(&mut self, key: usize, id: EngineId, op: Op<Mem>) -> Checked {
        if self.volumes[key].phase() != Phase::Serving {
            if self.volumes[key].again && self.has(Bug::EarlyDropped) {
                return Ok(());
            }
            self.volumes[key].early.push_back((id, op));
            return Ok(());
        }
        match op {
            Op::Flush if self.has(Bug::FlushNotPassedOn) => {
                self.log_events.push_back(Event::EngineDone(id, Ok(Answer::Done)));
                return Ok(());
            }
            Op::Write { span, data, .. } if self.has(Bug::CopyKept) => {
                let head = span.offset % 4096;
                let at = (head + span.len) / 512;
                for n in head / 512..at {
                    let value = data.value(n as usize).expect("whole");
                    let sector = (span.offset - head) / 512 + n;
                    self.volumes[key].backend.put_behind(sector as usize, value);
                }
                self.log_events.push_back(Event::EngineDone(id, Ok(Answer::Done)));
                return Ok(());
            }
            _ => {}
        }
        let request = self.new_id();
        self.ask_engines(Asker::Log(key, id), key, request, op)
    }

    pub(super) fn log_request_done(
        &mut self,
        key: usize,
        id: EngineId,
        result: Result<Answer<Mem>, Failure>,
    ) {
        if result.is_err() && self.volumes[key].backend.sticks {
            // No later flush succeeds until it is attached again.
            self.renew(key);
            if self.has(Bug::FailedFlushRepeated) {
                return self.volumes[key].early.push_back((id, Op::Flush));
            }
        }
        self.log_events.push_back(Event::EngineDone(id, result));
    }

    pub(super) fn log_answered(&mut self, id: RequestId, result: Result<Done, Refusal>) -> Checked {
        match self.log_askers.remove(&id.0).ok_or("an answer to no command")? {
            LogAsker::Attach(key) => {
                let result = result.map(|done| match done {
                    Done::Attached(place) => place,
                    Done::Nothing => panic!("an attach is answered with a place"),
                });
                if let Ok(place) = result
                    && let Some(memory) = self.host.draws_memory(&self.settings.base)
                {
                    let command = Command::Acknowledge { place, memory };
                    self.log_events.push_back(Event::Control(RequestId(u64::MAX), command));
                }
                let holds = self.place_of(&self.volumes[key].name);
                let status = result.ok().and_then(|place| self.log.status(place));
                let taken = status.is_some_and(|status| status.taken);
                let taken = taken || self.has(Bug::OpenedUnflushed);
                let step = self.volumes[key].mode.attached(result, (holds, taken));
                self.do_step(key, step)
            }
            LogAsker::Step(key) => {
                let little = self.little_is_left(key)?;
                let step = self.volumes[key].mode.answered(result.map(drop), little);
                self.do_step(key, step)
            }
            LogAsker::Close => {
                self.log_closed = true;
                result.map(drop).map_err(|refusal| format!("the log was not closed: {refusal}"))
            }
        }
    }
}
