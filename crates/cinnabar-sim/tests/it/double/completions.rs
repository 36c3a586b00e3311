//! A guest's request on its way out: what its I/O brought, what is kept of it, the answer.

use super::blocks::{apply_change, zeros};
use super::{Bug, Double, Work, is_write, reply};
use cinnabar_engine::units::SECTOR_BYTES;
use cinnabar_engine::{Action, Answer, Failure, IoDone, IoError, IoOp, Op, Payload, RequestId};
use cinnabar_sim::Stamped;

impl Double {
    pub(super) fn done(&mut self, done: &IoDone, actions: &mut Vec<Action<Stamped>>) {
        if let Some(index) = self.generation_bumps.remove(&done.id) {
            if done.result.is_err() {
                return self.bump_generation(index, actions);
            }
            self.generation_bumped(index);
            for request in std::mem::take(&mut self.volumes[index].waiting) {
                self.admit(request, actions);
            }
            return self.let_go(index, actions);
        }
        let Some(id) = self.io.remove(&done.id) else { return };
        let Some(work) = self.work.get_mut(&id) else { return };
        work.left -= 1;
        if done.result == Err(IoError::Unsupported) {
            // A trim is a hint; zeros can be written.
            if let Op::WriteZeroes { span, .. } = work.request.op {
                work.left += 1;
                self.io(id, zeros(span, false), actions);
            }
            return self.advance(id, actions);
        }
        work.failure = work.failure.or(done.result.err());
        if let Some(next) = work.next.take_if(|_| done.result.is_ok()) {
            work.left += 1;
            if let IoOp::Write { .. } = next {
                apply_change(&work.request.op, &next);
            }
            self.io(id, next, actions);
        }
        self.advance(id, actions);
    }

    pub(super) fn advance(&mut self, id: RequestId, actions: &mut Vec<Action<Stamped>>) {
        let work = &self.work[&id];
        let partial = work.missing.len() > 1;
        let early = self.bug == Bug::EarlyPartialHit && partial && work.left == 1;
        if work.left > 0 && !early {
            return;
        }
        let mut work = self.work.remove(&id).expect("it is under way");
        let index = usize::from(work.request.volume.0);
        let volume = &mut self.volumes[index];
        volume.writing -= u64::from(is_write(&work.request.op));
        if matches!(work.request.op, Op::Flush) {
            let lost = work.failure.filter(|error| *error != IoError::TimedOut);
            volume.sync_failed = volume.sync_failed.or(lost);
            work.failure = work.failure.or(volume.sync_failed);
        }
        if work.failure.is_none() && work.covers == Some(volume.writes) {
            volume.clean = true;
            volume.kept.borrow_mut().flushed();
        }
        if work.detach {
            if work.failure.is_some() {
                self.volumes[index].kept.borrow_mut().cached.clear();
            }
            let result = work.failure.map_or(Ok(Answer::Done), |error| Err(Failure::Io(error)));
            return reply(actions, work.request.id, result);
        }
        let result = match work.failure {
            Some(_) if self.bug == Bug::IgnoresReadError && !work.missing.is_empty() => Ok(()),
            Some(error) => Err(Failure::Io(error)),
            None => Ok(()),
        };
        if result.is_ok() && !early {
            self.fill(&work);
        }
        if self.bug == Bug::KeepsFailedWrite && result.is_err() || self.bug == Bug::TornPartialWrite
        {
            self.keep_write(&work);
        }
        self.answer(&work, result, actions);
        self.volumes[index].in_flight -= 1;
        self.let_go(index, actions);
        if work.exclusive {
            self.turn_taken = false;
            self.next_turn(actions);
        }
    }

    pub(super) fn answer(
        &mut self,
        work: &Work,
        result: Result<(), Failure>,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        let counters = &mut self.volumes[usize::from(work.request.volume.0)].counters;
        let answer = match &work.request.op {
            Op::Read { span, data } => {
                counters.reads += 1;
                counters.blocks_read += span.blocks();
                self.old_buffers.push(data.clone());
                if let (Bug::ReusesBuffer, [.., old, _]) = (self.bug, &self.old_buffers[..]) {
                    old.zero(0, old.sectors() as u64 * SECTOR_BYTES);
                }
                Answer::Data(data.clone())
            }
            Op::Write { span, data, .. } => {
                counters.writes += 1;
                counters.blocks_written += span.blocks();
                Answer::Data(data.clone())
            }
            Op::Flush => {
                counters.flushes += 1;
                Answer::Done
            }
            Op::Invalidate { .. } => Answer::Done,
            Op::Trim { .. } => {
                counters.trims += 1;
                Answer::Done
            }
            Op::WriteZeroes { .. } => {
                counters.zeroes += 1;
                Answer::Done
            }
        };
        reply(actions, work.request.id, result.map(|()| answer));
    }
}
