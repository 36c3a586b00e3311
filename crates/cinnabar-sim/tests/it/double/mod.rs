//! A tiny trusted machine behind the seam, and broken variants of it that the oracle must catch.
//!
//! It keeps read blocks in a map that survives everything, invalidates them on writes, and forwards
//! everything else.
//! Requests to a backend that wants 4 KiB alignment are carried out one at a time.

mod blocks;
mod kept;

use blocks::{apply_change, modify};
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::volume::{Recorded, VolumeSpec};
use cinnabar_engine::{
    Action, Answer, Command, Event, Failure, IoDone, IoError, IoId, IoOp, IoRequest, Op, Payload,
    Reply, Request, RequestId, Slice, Target, limits,
};
use cinnabar_sim::machine::{CacheSetup, Factory, Format, Machine};
use cinnabar_sim::{Stamp, Stamped};
use kept::{SharedDevice, SharedKept};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

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
    /// Blocks taken out by writes are back after a crash.
    LosesMarks,
    /// After a crash, blocks are believed although the backend may have lost what they are copies of.
    BelievesUnflushed,
    /// Every crash leaves the cache cold.
    ColdAfterCrash,
    /// Blocks are believed under any generation.
    IgnoresGeneration,
    /// Generations are never changed.
    NeverDistrusts,
    /// The operator's word to forget a volume is answered, and that is all.
    ForgetsNothing,
    /// So is the one to invalidate.
    IgnoresInvalidate,
}

type Devices = Rc<RefCell<BTreeMap<[u8; 16], SharedDevice>>>;

/// Makes doubles: one kind, on devices that outlive them.
pub(crate) struct Doubles {
    bug: Bug,
    devices: Devices,
}

impl Doubles {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { bug, devices: Devices::default() }
    }
}

impl Factory<Stamped> for Doubles {
    type Machine = Double;

    fn format(&mut self, _: &CacheSetup, serial: u8) -> Format {
        let superblock = Superblock::format([serial; 16], Geometry::for_capacity(4, 1));
        self.devices.borrow_mut().insert(superblock.uuid, SharedDevice::default());
        let (offset, page) = superblock.encode();
        let mut superblocks = [MetaPage::zeroed(), MetaPage::zeroed()];
        superblocks[(offset / BLOCK_BYTES) as usize] = page;
        Format { device_blocks: 2, checkpoints: 2, log: 2, superblocks }
    }

    fn start(&mut self, _: &CacheSetup, pages: &[MetaPage; 2]) -> Result<Double, String> {
        let superblock = Superblock::decode(pages).map_err(|error| error.to_string())?;
        let device = self.devices.borrow()[&superblock.uuid].clone();
        device.borrow_mut().load(self.bug);
        let devices = self.devices.clone();
        Ok(Double { bug: self.bug, device: Some(device), devices, ..Double::default() })
    }

    fn start_without_device(&mut self, _: &CacheSetup) -> Option<Double> {
        Some(Double { bug: self.bug, devices: self.devices.clone(), ..Double::default() })
    }
}

#[derive(Default)]
pub(crate) struct Double {
    bug: Bug,
    device: Option<SharedDevice>,
    devices: Devices,
    distrusts: BTreeMap<IoId, usize>,
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
    kept: SharedKept,
    /// What is read is kept.
    caching: bool,
    /// Its generation is being changed: writes wait.
    distrusting: bool,
    waiting: Vec<Request<Stamped>>,
    written: bool,
    /// Writes begun so far, and under way now.
    writes: u64,
    writing: u64,
    /// Nothing was written since a flush.
    clean: bool,
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
    /// Writes begun when it was, if it is a flush and none was under way.
    covers: Option<u64>,
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
            covers: None,
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
        let cached_blocks = self.device.as_ref().map_or(0, |device| device.borrow().blocks());
        CacheCounters { cached_blocks, ..CacheCounters::default() }
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let volume = &self.volumes[usize::from(volume.0)];
        let cached_blocks = volume.kept.borrow().cached.len() as u64;
        Some(VolumeCounters { cached_blocks, ..volume.counters })
    }

    fn recorded(&self, name: &str) -> Option<Recorded> {
        self.recorded_of(name)
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

fn is_write(op: &Op<Stamped>) -> bool {
    matches!(op, Op::Write { .. } | Op::Trim { .. } | Op::WriteZeroes { .. })
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
            Command::Open => reply(actions, id, Ok(Answer::Done)),
            Command::Close => {
                if let Some(device) = &self.device {
                    device.borrow_mut().in_use = false;
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::AwaitLoad => {
                let report = self.device.as_ref().map(|device| device.borrow().report);
                reply(actions, id, Ok(Answer::Loaded(report.unwrap_or_default())));
            }
            Command::Forget(name) => {
                if let Some(device) =
                    self.device.as_ref().filter(|_| self.bug != Bug::ForgetsNothing)
                {
                    device.borrow_mut().volumes.remove(&name);
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::Abandon => {
                self.device = None;
                for index in 0..self.volumes.len() {
                    self.volumes[index].caching = false;
                    if self.volumes[index].attached && self.bug != Bug::NeverDistrusts {
                        self.distrust(index, actions);
                    }
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::Replace(superblock) => {
                let device = self.devices.borrow()[&superblock.uuid].clone();
                device.borrow_mut().load(self.bug);
                self.device = Some(device);
                for index in 0..self.volumes.len() {
                    if self.volumes[index].attached && !self.volumes[index].distrusting {
                        self.adopt(index);
                    }
                }
                reply(actions, id, Ok(Answer::Done));
            }
            Command::Attach(spec) => self.attach(id, spec, actions),
            Command::Detach(volume) => {
                self.volumes[usize::from(volume.0)].detaching = Some(id);
                self.volumes[usize::from(volume.0)].attached = false;
                self.let_go(usize::from(volume.0), actions);
            }
            Command::Seal(volume, proof) => {
                let volume = &self.volumes[usize::from(volume.0)];
                let mut kept = volume.kept.borrow_mut();
                kept.epoch = proof;
                kept.written = false;
                reply(actions, id, Ok(Answer::Done));
            }
        }
    }

    fn attach(&mut self, id: RequestId, spec: VolumeSpec, actions: &mut Vec<Action<Stamped>>) {
        let (kept, warmth, unknown) = self.find_kept(&spec);
        let known = self.volumes.iter().position(|volume| volume.spec.name == spec.name);
        let index = known.unwrap_or(self.volumes.len());
        let counters = known.map(|index| self.volumes[index].counters).unwrap_or_default();
        let volume = Volume {
            spec,
            attached: true,
            kept,
            caching: !unknown,
            distrusting: false,
            waiting: Vec::new(),
            written: false,
            writes: 0,
            writing: 0,
            // An earlier life may have left writes that nobody has flushed.
            clean: false,
            detaching: None,
            in_flight: 0,
            counters,
        };
        if index == self.volumes.len() {
            self.volumes.push(volume);
        } else {
            self.volumes[index] = volume;
        }
        let volume = VolumeId(index as u16);
        reply(actions, id, Ok(Answer::Attached { volume, warmth }));
        if unknown && self.bug == Bug::NeverDistrusts {
            self.adopt(index);
        } else if unknown {
            self.distrust(index, actions);
        }
    }

    /// Once the last request is done, a volume being detached is flushed.
    fn let_go(&mut self, index: usize, actions: &mut Vec<Action<Stamped>>) {
        let volume = &mut self.volumes[index];
        let idle = volume.in_flight == 0 || self.bug == Bug::ForgetsRequests;
        let idle = idle && !volume.distrusting;
        let Some(id) = volume.detaching.take_if(|_| idle) else { return };
        if matches!(self.bug, Bug::ForgetsRequests | Bug::DetachesUnflushed) {
            return reply(actions, id, Ok(Answer::Done));
        }
        let request = Request { id, volume: VolumeId(index as u16), op: Op::Flush };
        let covers = Some(self.volumes[index].writes);
        self.work.insert(id, Work { left: 1, detach: true, covers, ..Work::of(request) });
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
            let writes = !matches!(request.op, Op::Read { .. } | Op::Invalidate { .. });
            if writes && volume.spec.read_only && self.bug != Bug::WritesReadOnly {
                return reply(actions, request.id, Err(Failure::ReadOnly));
            }
        }
        volume.in_flight += 1;
        if is_write(&request.op) && volume.distrusting {
            return volume.waiting.push(request);
        }
        self.admit(request, actions);
    }

    fn admit(&mut self, request: Request<Stamped>, actions: &mut Vec<Action<Stamped>>) {
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

    /// Writes that a flush covers which begins now, if none is under way.
    fn covered(&self, volume: VolumeId) -> Option<u64> {
        let volume = &self.volumes[usize::from(volume.0)];
        (volume.writing == 0).then_some(volume.writes)
    }

    fn done(&mut self, done: &IoDone, actions: &mut Vec<Action<Stamped>>) {
        if let Some(index) = self.distrusts.remove(&done.id) {
            if done.result.is_err() {
                return self.distrust(index, actions);
            }
            self.distrusted(index);
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
        let volume = &mut self.volumes[index];
        volume.writing -= u64::from(is_write(&work.request.op));
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
