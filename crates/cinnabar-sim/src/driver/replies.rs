//! Replies to guests: the oracle judges them, and the guest goes on.

use crate::driver::agenda::Item;
use crate::driver::guests::{Asked, Pending};
use crate::driver::log::sectors_of;
use crate::driver::world::World;
use crate::kinds::Path;
use crate::machine::{Factory, Machine};
use crate::oracle::{Outcome, ReadTicket};
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::limits::REQUESTS_MAX;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Answer, Failure, IoError, Reply};

/// A frontend is done with a reply's buffer after at most this long.
const SENDING_NS_MAX: u64 = 100_000;

/// Longest pause of a guest whose request took too long, in ns.
const PATIENT_NS_MAX: u64 = 200_000_000;

/// A read's buffer on its way to the guest.
#[derive(Debug)]
pub(super) struct Sent {
    data: Stamped,
    first: usize,
    values: Vec<Stamp>,
}

impl<F: Factory<Stamped>> World<'_, F> {
    /// The machine answers a request or a command.
    pub(super) fn replied(&mut self, reply: Reply<Stamped>) -> Result<(), Violation> {
        self.answered_at = self.now;
        if let Some(control) = self.controls.remove(&reply.id) {
            return self.command_replied(control, reply.result);
        }
        let Some(pending) = self.pending.remove(&reply.id) else {
            let what = format!("an answer to nothing: {reply:?}");
            return Err(Violation::new(Kind::WrongReply, what));
        };
        let volume = pending.volume;
        let place = match &pending.asked {
            Asked::Read { span, .. } | Asked::Write { span, .. } => {
                Some((volume, sectors_of(*span)))
            }
            _ => None,
        };
        self.log.note(self.now, place, || format!("reply {:?}: {:?}", reply.id, reply.result));
        self.note_answered(&pending);
        let follower = reply.id;
        let timed_out = matches!(reply.result, Err(Failure::Io(IoError::TimedOut)));
        match reply.result {
            Ok(answer) => self.succeeded(pending, answer)?,
            Err(failure) => self.failed(&pending, failure)?,
        }
        self.settle_followed(follower);
        let mut think_ns_max = self.volumes[volume].guest.profile().think_ns_max;
        if timed_out {
            // A guest that would ask for everything at once of a silent backend learns nothing.
            think_ns_max = think_ns_max.max(PATIENT_NS_MAX);
        }
        self.soon(think_ns_max, Item::Arrive(volume));
        Ok(())
    }

    fn succeeded(&mut self, pending: Pending, answer: Answer<Stamped>) -> Result<(), Violation> {
        let volume = pending.volume;
        if let Some(refusal) = pending.refusal {
            let what = format!("{:?} succeeded instead of failing: {refusal}", pending.asked);
            return Err(Violation::new(Kind::WrongReply, what));
        }
        if let Some(ticket) = pending.write() {
            let ticket = ticket.clone();
            self.overtake(volume, &ticket)?;
        }
        let served = &mut self.volumes[volume].served;
        let backend = &self.media.backends[volume];
        let not_durable = |sector| backend.not_durable(sector);
        match (pending.asked, answer) {
            (Asked::Read { ticket, span }, Answer::Data(data)) => {
                served.reads += 1;
                served.blocks_read += span.blocks();
                self.judge(&ticket, span, data)?;
            }
            (Asked::Write { ticket, span, data, values, fua }, Answer::Data(_)) => {
                served.writes += 1;
                served.blocks_written += span.blocks();
                check_kept(&data, span, &values)?;
                if fua {
                    self.oracle.fua_done(&ticket, not_durable)?;
                }
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Zeroes { ticket, fua }, Answer::Done) => {
                served.zeroes += 1;
                if fua {
                    self.oracle.fua_done(&ticket, not_durable)?;
                }
                self.oracle.write_ended(&ticket, Outcome::Done);
            }
            (Asked::Trim { ticket }, Answer::Done) => {
                served.trims += 1;
                self.oracle.write_ended(&ticket, Outcome::Perhaps);
            }
            (Asked::Flush { .. }, Answer::Done) if pending.sync_failed => {
                let what = "a flush succeeded after one that failed".to_owned();
                return Err(Violation::new(Kind::WrongReply, what));
            }
            (Asked::Flush { tick }, Answer::Done) => {
                served.flushes += 1;
                let shards = self.machine.as_ref().map_or(1, Machine::shards);
                self.count.paths.add_many(Path::CrossShardFlushes, u64::from(shards > 1));
                self.oracle.flush_done(volume, tick, not_durable)?;
            }
            (Asked::Invalidate { span, losses, asked }, Answer::Done) => {
                for ticket in &losses {
                    self.oracle.loss_known(ticket);
                }
                self.oracle.end_excuses(volume, sectors_of(span), asked);
            }
            (Asked::Unasked, Answer::Data(_)) => {}
            (asked, answer) => {
                let what = format!("{answer:?} is no answer to {asked:?}");
                return Err(Violation::new(Kind::WrongReply, what));
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        ticket: &ReadTicket,
        span: ByteSpan,
        data: Stamped,
    ) -> Result<(), Violation> {
        if data.sectors() as u64 != span.blocks() * BLOCK_SECTORS as u64 {
            let what = format!("{data:?} came back for {span:?}");
            return Err(Violation::new(Kind::WrongReply, what));
        }
        let first = (span.head_bytes() / SECTOR_BYTES) as usize;
        let values = data.get(first, ticket.sectors() as usize);
        self.count.sectors_judged += ticket.sectors();
        self.oracle.read_done(ticket, &values)?;
        let number = self.number();
        self.sent.insert(number, Sent { data, first, values });
        self.soon(SENDING_NS_MAX, Item::Sent(number));
        Ok(())
    }

    fn failed(&mut self, pending: &Pending, failure: Failure) -> Result<(), Violation> {
        let volume = &self.volumes[pending.volume];
        // One that had to wait is refused when its turn comes.
        let since = volume.time_up.is_some_and(|at| at >= pending.arrived);
        let crowded = pending.crowded || since;
        let expected = match (pending.refusal, failure) {
            (_, Failure::Io(IoError::TimedOut)) if pending.late || crowded => true,
            (Some(refusal), failure) if refusal == failure => true,
            (None, Failure::Io(_)) => {
                volume.errors > pending.errors_before || pending.flushes_badly()
            }
            (_, Failure::Limit) => {
                let bounds = &self.profile.setup.config.bounds;
                pending.beside_others && bounds.requests < REQUESTS_MAX
            }
            _ => false,
        };
        if !expected {
            let what = format!(
                "{:?} failed with {failure:?}; the refusal it had to meet: {:?}; no backend error",
                pending.asked, pending.refusal
            );
            return Err(Violation::new(Kind::WrongReply, what));
        }
        // Parts of a split one may have been taken.
        let single = self.machine.as_ref().is_some_and(|machine| machine.shards() == 1);
        let whole = single && matches!(pending.asked, Asked::Write { .. });
        let refused = pending.refusal.is_some() || whole && failure == Failure::Limit;
        let volume = &mut self.volumes[pending.volume];
        let outcome = if refused {
            self.count.refused += 1;
            Outcome::Refused
        } else {
            volume.served.failures += 1;
            self.count.failed += 1;
            Outcome::Perhaps
        };
        self.end_of_hope(pending, outcome);
        Ok(())
    }

    pub(super) fn end_of_hope(&mut self, pending: &Pending, outcome: Outcome) {
        match &pending.asked {
            Asked::Read { ticket, .. } => self.oracle.read_dropped(ticket),
            Asked::Write { ticket, .. } | Asked::Zeroes { ticket, .. } | Asked::Trim { ticket } => {
                if outcome == Outcome::Perhaps {
                    self.doubt(pending.volume, ticket);
                } else {
                    self.oracle.write_ended(ticket, outcome);
                }
            }
            Asked::Invalidate { losses, .. } => {
                for loss in losses {
                    self.oracle.write_ended(loss, Outcome::Perhaps);
                }
            }
            Asked::Flush { .. } | Asked::Nonsense | Asked::Unasked => {}
        }
    }

    /// The frontend has sent a read's data: they must still be what they were at the reply.
    pub(super) fn check_sent(&mut self, number: u64) -> Result<(), Violation> {
        let sent = self.sent.remove(&number).expect("a buffer is sent once");
        if sent.data.get(sent.first, sent.values.len()) == sent.values {
            return Ok(());
        }
        let what = "the buffer of a read changed after the reply".to_owned();
        Err(Violation::new(Kind::TouchedBuffer, what))
    }
}

impl Pending {
    /// Whether it is, or may end with, a flush that covers writes which a failed one may have lost.
    fn flushes_badly(&self) -> bool {
        let may_flush =
            matches!(self.asked, Asked::Flush { .. } | Asked::Zeroes { .. } | Asked::Trim { .. });
        self.sync_failed && may_flush
    }
}

/// A write's data must be what the guest gave, to the end.
fn check_kept(data: &Stamped, span: ByteSpan, values: &[Stamp]) -> Result<(), Violation> {
    let first = (span.head_bytes() / SECTOR_BYTES) as usize;
    if data.get(first, values.len()) == values {
        return Ok(());
    }
    let what = format!("the data of the write of {span:?} changed under way");
    Err(Violation::new(Kind::TouchedBuffer, what))
}
