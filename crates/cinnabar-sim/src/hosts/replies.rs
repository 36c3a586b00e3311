//! Answers to guests, and what the oracle says to them.

use crate::hosts::judge::Judge;
use crate::hosts::requests::{Asked, Pending};
use crate::hosts::world::{Work, World};
use crate::oracle::{Outcome, WriteTicket};
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Answer, Failure, RequestId};

/// An answer: the sectors of a read, or nothing.
pub(super) type Outcomes = Result<Option<Vec<Stamp>>, Failure>;

impl World {
    /// The engine has answered a request.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        result: Result<Answer<Stamped>, Failure>,
    ) -> Result<(), Violation> {
        let Some(pending) = self.pending.get(&id) else {
            return Err(Violation::new(Kind::WrongReply, format!("{id:?} is answered twice")));
        };
        let result = match (&pending.asked, result) {
            (Asked::Read { sectors, .. }, Ok(Answer::Data(data))) => {
                let count = sectors.end - sectors.start;
                let span = ByteSpan::new(sectors.start * SECTOR_BYTES, count * SECTOR_BYTES);
                let first = (span.head_bytes() / SECTOR_BYTES) as usize;
                Ok(Some(data.get(first, count as usize)))
            }
            (Asked::Read { .. }, Ok(other)) => {
                let what = format!("a read is answered with {other:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
            (_, result) => result.map(|_| None),
        };
        self.done(id, result)
    }

    /// A request has ended.
    pub(super) fn done(&mut self, id: RequestId, result: Outcomes) -> Result<(), Violation> {
        let pending = self.pending.remove(&id).expect("it is under way");
        let good = result.is_ok();
        self.fate.answered(id, good);
        self.count.answered += 1;
        self.note(|| format!("request {} is answered, good: {good}", id.0));
        if let Some(client) = pending.client {
            self.clients[client].waits_for -= 1;
            let host = pending.host;
            self.soon_at(host, self.profile.think_ns_max, Work::Arrive(client));
        }
        self.judge_answer(&pending, result)
    }

    fn judge_answer(&mut self, pending: &Pending, result: Outcomes) -> Result<(), Violation> {
        let breach = self.judge.is_breached();
        match (&pending.asked, result) {
            (Asked::Read { ticket, .. }, Ok(values)) => {
                let values = values.expect("a read that was good has data");
                let murky = &self.judge.murky;
                let unknown = |sector: u64| {
                    let block = sector / BLOCK_SECTORS as u64;
                    murky.contains(&block) || pending.murky.contains(&block)
                };
                self.judge.oracle.read_done_but(ticket, &values, unknown)
            }
            (Asked::Read { ticket, .. }, Err(_)) => {
                self.judge.oracle.read_dropped(ticket);
                Ok(())
            }
            (Asked::Write { ticket, fua }, Ok(_)) if !breach => {
                self.overtake(pending);
                self.judge.oracle.write_ended(ticket, Outcome::Done);
                let durable = *fua && self.judge.zombies[pending.host].is_none();
                if durable { self.fua_done(ticket) } else { Ok(()) }
            }
            (Asked::Write { ticket, .. }, _) => {
                let waited = pending.op.is_some();
                let outcome = if waited { Outcome::Refused } else { Outcome::Perhaps };
                self.judge.oracle.write_ended(ticket, outcome);
                Ok(())
            }
            // What a host that was replaced flushes is no promise to the other one's guest.
            (Asked::Flush { tick }, Ok(_)) if self.judge.zombies[pending.host].is_none() => {
                self.flush_done(*tick)
            }
            (Asked::Flush { .. } | Asked::Breach { .. }, _) => Ok(()),
        }
    }

    /// A flush that was submitted at that tick was good.
    pub(super) fn flush_done(&mut self, tick: u64) -> Result<(), Violation> {
        let Judge { oracle, murky, .. } = &mut self.judge;
        let image = &self.image.backend;
        let known = |sector: u64| !murky.contains(&(sector / BLOCK_SECTORS as u64));
        oracle.flush_done(0, tick, |sector| image.not_durable(sector).filter(|_| known(sector)))
    }

    /// A write that was to be durable was good.
    fn fua_done(&mut self, ticket: &WriteTicket) -> Result<(), Violation> {
        let Judge { oracle, murky, .. } = &mut self.judge;
        let image = &self.image.backend;
        let known = |sector: u64| !murky.contains(&(sector / BLOCK_SECTORS as u64));
        oracle.fua_done(ticket, |sector| image.not_durable(sector).filter(|_| known(sector)))
    }
}
