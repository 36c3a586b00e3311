//! A tiny trusted machine behind the seam, and broken variants of it that the oracle must catch.
//!
//! It keeps read blocks in a map that survives everything, invalidates them on writes, and forwards
//! everything else.
//! Requests to a backend that wants 4 KiB alignment are carried out one at a time.

mod blocks;
mod bug;
mod completions;
mod control;
mod kept;
mod requests;

pub(crate) use bug::Bug;

use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::volume::{Recorded, VolumeSpec};
use cinnabar_engine::{
    Action, Answer, Event, Failure, IoError, IoId, IoOp, Op, Reply, Request, RequestId,
};
use cinnabar_sim::Stamped;
use cinnabar_sim::machine::{CacheSetup, Factory, Format, Machine};
use kept::{SharedDevice, SharedKept};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

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
        Format { region_blocks: 2, checkpoints: 2, log: 2, ..Format::of(&[superblock]) }
    }

    fn start(&mut self, _: &CacheSetup, pages: &[[MetaPage; 2]]) -> Result<Double, String> {
        let superblock = Superblock::decode(&pages[0]).map_err(|error| error.to_string())?;
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
    generation_bumps: BTreeMap<IoId, usize>,
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
    bumping_generation: bool,
    waiting: Vec<Request<Stamped>>,
    written: bool,
    /// Writes begun so far, and under way now.
    writes: u64,
    writing: u64,
    /// Nothing was written since a flush.
    clean: bool,
    /// A flush failed: so do all later ones.
    sync_failed: Option<IoError>,
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
                Event::Wake
                | Event::Adopt(_)
                | Event::Overdue(_)
                | Event::Late(_)
                | Event::Invalidating(_)
                | Event::Invalidated(_) => {}
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

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        self.recorded_of(name).into_iter().collect()
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
