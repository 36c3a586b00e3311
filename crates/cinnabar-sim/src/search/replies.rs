//! What the engine answers, and what the oracle makes of it.

use super::requests::{Asked, Pending};
use super::world::World;
use crate::oracle::Outcome;
use crate::stamp::{BLOCK_SECTORS, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::{Answer, Failure, Reply};

impl World {
    pub(super) fn replied(&mut self, reply: Reply<Stamped>) -> Result<(), Violation> {
        self.note(|_| format!("  reply {}: {:?}", reply.id.0, reply.result));
        if let Some(control) = self.controls.remove(&reply.id) {
            return self.command_replied(control, reply.result);
        }
        let Some(pending) = self.pending.remove(&reply.id) else {
            let what = format!("an answer to nothing: {reply:?}");
            return Err(Violation::new(Kind::WrongReply, what));
        };
        match reply.result {
            Ok(answer) => self.succeeded(pending, &answer),
            Err(failure) => self.failed(&pending, failure),
        }
    }

    fn succeeded(&mut self, pending: Pending, answer: &Answer<Stamped>) -> Result<(), Violation> {
        let volume = pending.volume;
        let backend = &self.media.backends[volume];
        let not_durable = |sector| backend.not_durable(sector);
        match (pending.asked, answer) {
            (Asked::Read { ticket, span }, Answer::Data(data)) => {
                if data.sectors() as u64 != span.blocks() * BLOCK_SECTORS as u64 {
                    let what = format!("{data:?} came back for {span:?}");
                    return Err(Violation::new(Kind::WrongReply, what));
                }
                let first = (span.head_bytes() / SECTOR_BYTES) as usize;
                let values = data.get(first, ticket.sectors() as usize);
                self.oracle.read_done(&ticket, &values)?;
            }
            (Asked::Write { ticket, span, data, values, fua }, Answer::Data(_)) => {
                let first = (span.head_bytes() / SECTOR_BYTES) as usize;
                if data.get(first, values.len()) != values {
                    let what = format!("the data of the write of {span:?} changed under way");
                    return Err(Violation::new(Kind::TouchedBuffer, what));
                }
                if fua {
                    self.oracle.fua_done(&ticket, not_durable)?;
                }
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Zeroes { ticket }, Answer::Done) => {
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Trim { ticket }, Answer::Done) => {
                self.oracle.write_ended(&ticket, Outcome::Perhaps);
            }
            (Asked::Flush { .. }, Answer::Done) if pending.sync_failed => {
                let what = "a flush succeeded after one that failed";
                return Err(Violation::new(Kind::WrongReply, what));
            }
            (Asked::Flush { tick }, Answer::Done) => {
                self.oracle.flush_done(volume, tick, not_durable)?;
            }
            (Asked::Invalidate, Answer::Done) => {}
            (asked, answer) => {
                let what = format!("{answer:?} is no answer to {asked:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    fn failed(&mut self, pending: &Pending, failure: Failure) -> Result<(), Violation> {
        let may_flush = matches!(
            pending.asked,
            Asked::Flush { .. } | Asked::Zeroes { .. } | Asked::Trim { .. }
        );
        let errors = self.volumes[pending.volume].errors > pending.errors_before
            || pending.sync_failed && may_flush;
        if !matches!(failure, Failure::Io(_)) || !errors {
            let what = format!("{:?} failed with {failure:?}; no backend error", pending.asked);
            return Err(Violation::new(Kind::WrongReply, what));
        }
        self.give_up(pending);
        Ok(())
    }

    /// A request has failed, or will never be answered: it has happened or has not.
    pub(super) fn give_up(&mut self, pending: &Pending) {
        match &pending.asked {
            Asked::Read { ticket, .. } => self.oracle.read_dropped(ticket),
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket } | Asked::Trim { ticket } => {
                if self.volumes[pending.volume].overdue > 0 {
                    self.doubtful.push((pending.volume, ticket.clone()));
                } else {
                    self.oracle.write_ended(ticket, Outcome::Perhaps);
                }
            }
            Asked::Flush { .. } | Asked::Invalidate => {}
        }
    }
}
