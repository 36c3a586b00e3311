//! A guest's request on its way in: refused, made to wait for its turn, or sent on.

use super::blocks::{modify, zeros};
use super::{Bug, Double, Work, is_write, reply, span_of};
use cinnabar_engine::units::{BLOCK_BYTES, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{
    Action, Failure, IoId, IoOp, IoRequest, Op, Request, RequestId, Slice, Target, limits,
};
use cinnabar_sim::Stamped;

impl Double {
    pub(super) fn submit(&mut self, request: Request<Stamped>, actions: &mut Vec<Action<Stamped>>) {
        let volume = &mut self.volumes[usize::from(request.volume.0)];
        if !volume.attached {
            return reply(actions, request.id, Err(Failure::NoVolume));
        }
        let size = volume.spec.size_bytes;
        if let Some(span) = span_of(&request.op) {
            let end = span.offset.checked_add(span.len);
            let sound = span.len > 0
                && span.offset.is_multiple_of(SECTOR_BYTES)
                && span.len.is_multiple_of(SECTOR_BYTES)
                && end.is_some_and(|end| end <= size || self.bug == Bug::Unbounded)
                && (span.len <= limits::DATA_BYTES_MAX || !matches!(request.op, Op::Read { .. }));
            if !sound {
                return reply(actions, request.id, Err(Failure::Invalid));
            }
            let writes = !matches!(request.op, Op::Read { .. } | Op::Invalidate { .. });
            if writes && volume.spec.read_only && self.bug != Bug::WritesReadOnly {
                return reply(actions, request.id, Err(Failure::ReadOnly));
            }
        }
        volume.in_flight += 1;
        if is_write(&request.op) && volume.bumping_generation {
            return volume.waiting.push(request);
        }
        self.admit(request, actions);
    }

    pub(super) fn admit(&mut self, request: Request<Stamped>, actions: &mut Vec<Action<Stamped>>) {
        let volume = &mut self.volumes[usize::from(request.volume.0)];
        if is_write(&request.op) {
            volume.writes += 1;
            volume.writing += 1;
            volume.clean = false;
            volume.written = true;
            volume.kept.borrow_mut().written = true;
        }
        // Read-modify-write, and who meets one, takes turns.
        if volume.spec.align_bytes > 512 && self.bug != Bug::Misaligned {
            self.queue.push_back(request);
            return self.next_turn(actions);
        }
        self.begin(&request, false, actions);
    }

    pub(super) fn next_turn(&mut self, actions: &mut Vec<Action<Stamped>>) {
        if self.turn_taken {
            return;
        }
        if let Some(request) = self.queue.pop_front() {
            self.turn_taken = true;
            self.begin(&request, true, actions);
        }
    }

    pub(super) fn begin(
        &mut self,
        request: &Request<Stamped>,
        exclusive: bool,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        let mut work = Work { exclusive, ..Work::of(request.clone()) };
        let mut ios = Vec::new();
        match &request.op {
            Op::Read { span, data } => {
                work.overtaken = self.written_now(request.volume, *span);
                work.missing = self.look_up(request.volume, *span, data);
                for run in &work.missing {
                    let at = (run.start - span.first_block()) * BLOCK_BYTES;
                    let len = (run.end - run.start) * BLOCK_BYTES;
                    let slices = [Slice { data: data.clone(), at, len }].into_iter().collect();
                    ios.push(IoOp::Read { offset: run.start * BLOCK_BYTES, data: slices });
                }
            }
            Op::Flush if self.bug == Bug::NoFlush => {}
            Op::Flush => {
                work.covers = self.covered(request.volume);
                ios.push(IoOp::Flush);
            }
            Op::Invalidate { .. } if self.bug == Bug::IgnoresInvalidate => {}
            Op::Invalidate { .. } => self.invalidate(request),
            _ => {
                self.invalidate(request);
                if exclusive {
                    modify(&mut work, &mut ios);
                } else {
                    self.forward(&request.op, &mut ios);
                }
            }
        }
        work.left = ios.len() as u64;
        let id = request.id;
        self.work.insert(id, work);
        for op in ios {
            self.io(id, op, actions);
        }
        self.advance(id, actions);
    }

    pub(super) fn io(
        &mut self,
        of: RequestId,
        op: IoOp<Stamped>,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        self.next_io += 1;
        let id = IoId(self.next_io);
        self.io.insert(id, of);
        let target = Target::Backend(self.work[&of].request.volume);
        actions.push(Action::Io(IoRequest { id, target, op }));
    }

    pub(super) fn forward(&self, op: &Op<Stamped>, ios: &mut Vec<IoOp<Stamped>>) {
        match op {
            Op::Write { span, data, fua } => {
                let fua = *fua && self.bug != Bug::NoFua;
                let slice = Slice { data: data.clone(), at: span.head_bytes(), len: span.len };
                let data = [slice].into_iter().collect();
                ios.push(IoOp::Write { offset: span.offset, data, fua });
            }
            // Zeroing has no FUA.
            Op::WriteZeroes { span, fua: true, .. } => {
                ios.push(zeros(*span, self.bug != Bug::NoFua));
            }
            Op::WriteZeroes { span, may_punch, .. } => {
                ios.push(IoOp::WriteZeroes { span: *span, may_punch: *may_punch });
            }
            Op::Trim { span, .. } => ios.push(IoOp::Trim { span: *span }),
            Op::Read { .. } | Op::Flush | Op::Invalidate { .. } => {
                unreachable!("handled by the caller")
            }
        }
    }

    /// Writes that a flush covers which begins now, if none is under way.
    pub(super) fn covered(&self, volume: VolumeId) -> Option<u64> {
        let volume = &self.volumes[usize::from(volume.0)];
        (volume.writing == 0).then_some(volume.writes)
    }
}
