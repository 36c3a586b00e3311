//! A tiny trusted machine behind the seam, and broken variants of it that the oracle must catch.
//!
//! It keeps read blocks in a map in RAM, invalidates them on writes, and forwards everything else.
//! Requests to a backend that wants 4 KiB alignment are carried out one at a time.

mod blocks;

use blocks::{apply_change, modify};
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::LoadReport;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::{DropReason, Epoch, VolumeSpec, Warmth};
use cinnabar_engine::{
    Action, Answer, Command, Event, Failure, IoDone, IoError, IoId, IoOp, IoRequest, Op, Payload,
    Reply, Request, RequestId, Slice, Target, limits,
};
use cinnabar_sim::machine::{CacheSetup, Factory, Format, Machine};
use cinnabar_sim::{Stamp, Stamped};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What is wrong with a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    #[default]
    None,
    /// Nothing, and nothing is cached either.
    PassThrough,
    /// A write leaves the cached block as it was.
    StaleRead,
    /// A partial write takes the whole buffer for its block.
    TornPartialWrite,
    /// A read miss fills the cache although a write came in between.
    FillOverNewerWrite,
    /// A partial hit is answered when the first of its missing runs has arrived.
    EarlyPartialHit,
    /// Zeroes leave the cached block as it was.
    LostZeroes,
    /// A flush is answered without flushing.
    NoFlush,
    /// FUA is forgotten.
    NoFua,
    /// A failed backend write is cached.
    KeepsFailedWrite,
    /// A failed backend read is answered with what was in the buffer.
    IgnoresReadError,
    /// Blocks of an earlier attachment are believed without proof.
    BelievesAnything,
    /// A request in flight at a detach is forgotten.
    ForgetsRequests,
    /// A detach does not flush.
    DetachesUnflushed,
    /// The buffer of a read is used again after the reply.
    ReusesBuffer,
    /// Unaligned I/O to a backend that can't do it.
    Misaligned,
    /// A request beyond the end is passed on.
    Unbounded,
    /// So is a write to a read-only volume.
    WritesReadOnly,
}

pub(crate) struct Doubles(pub(crate) Bug);

impl Factory<Stamped> for Doubles {
    type Machine = Double;

    fn format(&mut self, _: &CacheSetup, _: u8) -> Format {
        Format { device_blocks: 2, log: 2, superblocks: [MetaPage::zeroed(), MetaPage::zeroed()] }
    }

    fn start(&mut self, _: &CacheSetup, _: &[MetaPage; 2]) -> Result<Double, String> {
        Ok(Double { bug: self.0, ..Double::default() })
    }
}

#[derive(Default)]
pub(crate) struct Double {
    bug: Bug,
    volumes: Vec<Volume>,
    work: BTreeMap<RequestId, Work>,
    io: BTreeMap<IoId, RequestId>,
    next_io: u64,
    /// Requests that wait for their turn.
    queue: VecDeque<Request<Stamped>>,
    turn_taken: bool,
    old_buffers: Vec<Stamped>,
}

struct Volume {
    spec: VolumeSpec,
    attached: bool,
    proof: Option<Epoch>,
    cached: BTreeMap<u64, Stamped>,
    detaching: Option<RequestId>,
    in_flight: u64,
    counters: VolumeCounters,
}

/// A request under way.
struct Work {
    request: Request<Stamped>,
    left: u64,
    failure: Option<IoError>,
    /// Runs of blocks that a read misses.
    missing: Vec<Range<u64>>,
    /// A write came in between: fill nothing.
    overtaken: bool,
    /// It holds the turn, and this is what it does next.
    next: Option<IoOp<Stamped>>,
    exclusive: bool,
    /// It is the flush of a detach.
    detach: bool,
}

impl Work {
    fn of(request: Request<Stamped>) -> Self {
        Self {
            request,
            left: 0,
            failure: None,
            missing: Vec::new(),
            overtaken: false,
            next: None,
            exclusive: false,
            detach: false,
        }
    }
}

impl Machine<Stamped> for Double {
    fn apply(
        &mut self,
        _: Instant,
        events: &mut Vec<Event<Stamped>>,
        actions: &mut Vec<Action<Stamped>>,
    ) {
        for event in events.drain(..) {
            match event {
                Event::Submit(request) => self.submit(request, actions),
                Event::IoDone(done) => self.done(&done, actions),
                Event::Control(id, command) => self.control(id, command, actions),
                Event::Wake | Event::Adopt(_) | Event::Overdue(_) => {}
            }
        }
    }

    fn cache_counters(&self) -> CacheCounters {
        CacheCounters::default()
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        Some(self.volumes[usize::from(volume.0)].counters)
    }
}

fn span_of(op: &Op<Stamped>) -> Option<ByteSpan> {
    match op {
        Op::Flush => None,
        Op::Read { span, .. }
        | Op::Write { span, .. }
        | Op::Trim { span, .. }
        | Op::WriteZeroes { span, .. }
        | Op::Invalidate { span } => Some(*span),
    }
}

fn reply(
    actions: &mut Vec<Action<Stamped>>,
    id: RequestId,
    result: Result<Answer<Stamped>, Failure>,
) {
    actions.push(Action::Reply(Reply { id, result }));
}

impl Double {
    fn control(&mut self, id: RequestId, command: Command, actions: &mut Vec<Action<Stamped>>) {
        match command {
            Command::Open | Command::Close => reply(actions, id, Ok(Answer::Done)),
            Command::AwaitLoad => {
                reply(actions, id, Ok(Answer::Loaded(LoadReport::default())));
            }
            Command::Forget(_) | Command::Replace(_) | Command::Abandon => {
                reply(actions, id, Err(Failure::Invalid));
            }
            Command::Attach(spec) => {
                let (index, warmth) = self.attach(spec);
                let volume = VolumeId(index as u16);
                reply(actions, id, Ok(Answer::Attached { volume, warmth }));
            }
            Command::Detach(volume) => {
                self.volumes[usize::from(volume.0)].detaching = Some(id);
                self.volumes[usize::from(volume.0)].attached = false;
                self.let_go(usize::from(volume.0), actions);
            }
            Command::Seal(volume, proof) => {
                self.volumes[usize::from(volume.0)].proof = proof;
                reply(actions, id, Ok(Answer::Done));
            }
        }
    }

    fn attach(&mut self, spec: VolumeSpec) -> (usize, Warmth) {
        let known = self.volumes.iter().position(|volume| volume.spec.name == spec.name);
        let Some(index) = known else {
            self.volumes.push(Volume {
                spec,
                attached: true,
                proof: None,
                cached: BTreeMap::new(),
                detaching: None,
                in_flight: 0,
                counters: VolumeCounters::default(),
            });
            return (self.volumes.len() - 1, Warmth::New);
        };
        let volume = &mut self.volumes[index];
        let proven = volume.proof.is_some() && volume.proof == spec.epoch || spec.exclusive;
        let blocks = volume.cached.len() as u64;
        volume.attached = true;
        volume.spec = spec;
        if proven {
            return (index, Warmth::Warm { blocks });
        }
        if self.bug != Bug::BelievesAnything {
            volume.cached.clear();
        }
        (index, Warmth::Dropped { blocks, reason: DropReason::EpochChanged })
    }

    /// Once the last request is done, a volume being detached is flushed.
    fn let_go(&mut self, index: usize, actions: &mut Vec<Action<Stamped>>) {
        let volume = &mut self.volumes[index];
        let idle = volume.in_flight == 0 || self.bug == Bug::ForgetsRequests;
        let Some(id) = volume.detaching.take_if(|_| idle) else { return };
        if matches!(self.bug, Bug::ForgetsRequests | Bug::DetachesUnflushed) {
            return reply(actions, id, Ok(Answer::Done));
        }
        let request = Request { id, volume: VolumeId(index as u16), op: Op::Flush };
        self.work.insert(id, Work { left: 1, detach: true, ..Work::of(request) });
        self.io(id, IoOp::Flush, actions);
    }

    fn submit(&mut self, request: Request<Stamped>, actions: &mut Vec<Action<Stamped>>) {
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
            let writes = !matches!(request.op, Op::Read { .. });
            if writes && volume.spec.read_only && self.bug != Bug::WritesReadOnly {
                return reply(actions, request.id, Err(Failure::ReadOnly));
            }
        }
        volume.in_flight += 1;
        // Read-modify-write, and who meets one, takes turns.
        if volume.spec.align_bytes > 512 && self.bug != Bug::Misaligned {
            self.queue.push_back(request);
            return self.next_turn(actions);
        }
        self.begin(&request, false, actions);
    }

    fn next_turn(&mut self, actions: &mut Vec<Action<Stamped>>) {
        if self.turn_taken {
            return;
        }
        if let Some(request) = self.queue.pop_front() {
            self.turn_taken = true;
            self.begin(&request, true, actions);
        }
    }

    fn begin(
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
            Op::Flush => ios.push(IoOp::Flush),
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

    fn io(&mut self, of: RequestId, op: IoOp<Stamped>, actions: &mut Vec<Action<Stamped>>) {
        self.next_io += 1;
        let id = IoId(self.next_io);
        self.io.insert(id, of);
        let target = Target::Backend(self.work[&of].request.volume);
        actions.push(Action::Io(IoRequest { id, target, op }));
    }

    fn forward(&self, op: &Op<Stamped>, ios: &mut Vec<IoOp<Stamped>>) {
        match op {
            Op::Write { span, data, fua } => {
                let fua = *fua && self.bug != Bug::NoFua;
                let slice = Slice { data: data.clone(), at: span.head_bytes(), len: span.len };
                let data = [slice].into_iter().collect();
                ios.push(IoOp::Write { offset: span.offset, data, fua });
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

    fn done(&mut self, done: &IoDone, actions: &mut Vec<Action<Stamped>>) {
        let Some(id) = self.io.remove(&done.id) else { return };
        let Some(work) = self.work.get_mut(&id) else { return };
        work.left -= 1;
        if done.result == Err(IoError::Unsupported) {
            // A trim is a hint; zeros can be written.
            if let Op::WriteZeroes { span, .. } = work.request.op {
                work.left += 1;
                let data = Stamped::from_stamps(vec![Stamp::ZERO; span.blocks() as usize * 8]);
                let slice = Slice { data, at: span.head_bytes(), len: span.len };
                let data = [slice].into_iter().collect();
                self.io(id, IoOp::Write { offset: span.offset, data, fua: false }, actions);
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

    fn advance(&mut self, id: RequestId, actions: &mut Vec<Action<Stamped>>) {
        let work = &self.work[&id];
        let partial = work.missing.len() > 1;
        let early = self.bug == Bug::EarlyPartialHit && partial && work.left == 1;
        if work.left > 0 && !early {
            return;
        }
        let work = self.work.remove(&id).expect("it is under way");
        let index = usize::from(work.request.volume.0);
        if work.detach {
            if work.failure.is_some() {
                self.volumes[index].cached.clear();
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

    fn answer(
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
