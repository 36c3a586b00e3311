//! The engine with I/O that takes no time and moves no data: hit ratios, flash writes, CPU cost.
//!
//! Metadata pages are real bytes and are kept, so that checkpoints and clean restarts work; data
//! blocks are not, and checksums are all alike.

use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::plan::Plan;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, VolumeId};
use cinnabar_engine::volume::VolumeSpec;
use cinnabar_engine::{
    Action, Answer, Command, Config, Engine, Event, Failure, IoDone, IoOp, IoRequest, Op, Payload,
    Request, RequestId,
};
use std::collections::BTreeMap;

/// A payload without contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length;

impl Payload for Length {
    fn alloc(_blocks: u32) -> Self {
        Self
    }
    fn copy_from(&self, _at: u64, _from: &Self, _from_at: u64, _len: u64) {}
    fn zero(&self, _at: u64, _len: u64) {}
    fn checksum(&self, _at: u64, _seed: u64) -> u32 {
        0
    }
}

/// Requests gathered before the engine sees them, unless [`InstantCache::set_batch`] says
/// otherwise.
const BATCH: usize = 32;
/// Virtual time between two requests.
const REQUEST_NS: u64 = 10_000;

/// How a cache is made.
#[derive(Clone, Copy, Debug)]
pub struct CacheSetup {
    /// Data blocks of the log.
    pub capacity_blocks: u64,
    /// Chunks of 256 blocks in a segment.
    pub segment_chunks: u32,
    /// Settings of the engine.
    pub config: Config,
}

impl CacheSetup {
    /// A cache with segments of one chunk.
    pub const fn single(capacity_blocks: u64, config: Config) -> Self {
        Self { capacity_blocks, segment_chunks: 1, config }
    }

    /// The superblock of a new device.
    fn format(&self) -> Superblock {
        let capacity = u32::try_from(self.capacity_blocks).expect("an engine's size");
        let geometry = Geometry::for_capacity(capacity, self.segment_chunks);
        Superblock::format([0xC1; 16], geometry)
    }
}

/// An engine, its two kinds of medium, and a clock that moves with each request.
pub struct InstantCache {
    setup: CacheSetup,
    engine: Engine<Length>,
    now: Instant,
    wake: Option<Instant>,
    batch: usize,
    request_ns: u64,
    next_id: u64,
    in_flight: usize,
    failures: u64,
    answer: Option<Result<Answer<Length>, Failure>>,
    events: Vec<Event<Length>>,
    actions: Vec<Action<Length>>,
    pages: BTreeMap<u64, MetaPage>,
}

impl InstantCache {
    /// A new, empty, open cache.
    ///
    /// # Panics
    /// If there is no such cache, or the engine won't open it.
    pub fn new(setup: CacheSetup) -> Self {
        let superblock = setup.format();
        let (offset, page) = superblock.encode();
        let mut cache = Self {
            setup,
            engine: Engine::new(setup.config, superblock),
            now: Instant(0),
            wake: None,
            batch: BATCH,
            request_ns: REQUEST_NS,
            next_id: 0,
            in_flight: 0,
            failures: 0,
            answer: None,
            events: Vec::with_capacity(4 * BATCH),
            actions: Vec::with_capacity(4 * BATCH),
            pages: BTreeMap::from([(offset / BLOCK_BYTES, page)]),
        };
        cache.command(Command::Open).expect("a formatted device opens");
        cache
    }

    /// Gathers so many requests before the engine sees them; 1 makes each complete before the next.
    pub fn set_batch(&mut self, requests: usize) {
        self.batch = requests.max(1);
    }

    /// Moves the clock by so many nanoseconds with each request (10 us otherwise).
    pub fn set_request_ns(&mut self, ns: u64) {
        self.request_ns = ns;
    }

    /// Attaches a volume.
    ///
    /// # Panics
    /// If the engine refuses.
    pub fn attach(&mut self, spec: VolumeSpec) -> VolumeId {
        match self.command(Command::Attach(spec)).expect("the volume attaches") {
            Answer::Attached { volume, .. } => volume,
            other => panic!("attach was answered with {other:?}"),
        }
    }

    /// Reads `count` blocks.
    pub fn read(&mut self, volume: VolumeId, block: u64, count: u64) {
        self.read_span(volume, ByteSpan::new(block * BLOCK_BYTES, count * BLOCK_BYTES));
    }

    /// Writes `count` blocks.
    pub fn write(&mut self, volume: VolumeId, block: u64, count: u64) {
        self.write_span(volume, ByteSpan::new(block * BLOCK_BYTES, count * BLOCK_BYTES));
    }

    /// Reads bytes, whole sectors.
    pub fn read_span(&mut self, volume: VolumeId, span: ByteSpan) {
        self.submit(volume, Op::Read { span, data: Length });
    }

    /// Writes bytes, whole sectors.
    pub fn write_span(&mut self, volume: VolumeId, span: ByteSpan) {
        self.submit(volume, Op::Write { span, data: Length, fua: false });
    }

    /// Queues any request; it is carried out with the batch it completes.
    pub fn submit(&mut self, volume: VolumeId, op: Op<Length>) {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.in_flight += 1;
        self.events.push(Event::Submit(Request { id, volume, op }));
        self.now = self.now.plus_ns(self.request_ns);
        if self.in_flight >= self.batch {
            self.settle();
        }
    }

    /// Changes the plan.
    pub fn adopt(&mut self, plan: Plan) {
        self.settle();
        self.events.push(Event::Adopt(plan));
        self.settle();
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// What the engine says.
    ///
    /// # Panics
    /// If the engine does not answer.
    pub fn command(&mut self, command: Command) -> Result<Answer<Length>, Failure> {
        self.settle();
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.in_flight += 1;
        self.events.push(Event::Control(id, command));
        self.settle();
        self.answer.take().expect("a command was answered")
    }

    /// Carries out what is queued, to the last reply.
    ///
    /// # Panics
    /// If the engine neither replies nor asks to be woken.
    pub fn settle(&mut self) {
        loop {
            if self.wake.is_some_and(|at| at <= self.now) {
                self.wake = None;
                self.events.push(Event::Wake);
            }
            if self.events.is_empty() {
                if self.in_flight == 0 {
                    return;
                }
                let wake = self.wake.expect("requests in flight, but no I/O and no wake-up");
                self.now = self.now.max(wake);
                continue;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.apply(self.now, &mut self.events, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Io(io) => {
                    let done = self.carry_out(io);
                    self.events.push(Event::IoDone(done));
                }
                Action::Reply(reply) => {
                    self.in_flight -= 1;
                    self.failures += u64::from(reply.result.is_err());
                    self.answer = Some(reply.result);
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
                }
            }
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, io: IoRequest<Length>) -> IoDone {
        let pages = match io.op {
            IoOp::ReadMeta { offset, mut pages } => {
                for (block, page) in (offset / BLOCK_BYTES..).zip(&mut pages) {
                    *page = self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
                }
                pages
            }
            IoOp::WriteMeta { offset, pages, .. } => {
                for (block, page) in (offset / BLOCK_BYTES..).zip(&pages) {
                    self.pages.insert(block, page.clone());
                }
                pages
            }
            _ => Vec::new(),
        };
        IoDone { pages, ..IoDone::new(io.id, Ok(())) }
    }

    /// Requests and commands that failed so far.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Counters of the cache, with everything queued carried out.
    pub fn cache_counters(&mut self) -> CacheCounters {
        self.settle();
        self.engine.cache_counters()
    }

    /// Counters of a volume, with everything queued carried out.
    ///
    /// # Panics
    /// If it is not attached.
    pub fn volume_counters(&mut self, volume: VolumeId) -> VolumeCounters {
        self.settle();
        self.engine.volume_counters(volume).expect("an attached volume")
    }

    /// Start and length in bytes of the large tables, for callers that back them with huge pages.
    pub fn tables(&self) -> [(*const u8, usize); 3] {
        self.engine.tables()
    }

    /// RAM held by the engine.
    pub fn ram_bytes(&self) -> RamBytes {
        self.engine.ram_bytes()
    }

    /// The next session of the device, after [`Command::Close`] or as if the daemon had died: a new
    /// engine, open, without volumes.
    ///
    /// # Panics
    /// If the superblock on the device is no longer one.
    pub fn restart(&mut self) {
        let page = |block| self.pages.get(&block).cloned().unwrap_or(MetaPage::zeroed());
        let superblock = Superblock::decode(&[page(0), page(1)]).expect("a superblock");
        self.engine = Engine::new(self.setup.config, superblock);
        self.wake = None;
        self.events.clear();
        self.in_flight = 0;
        self.command(Command::Open).expect("the device opens");
    }
}

/// A volume for hit-ratio runs: write-through, the whole cache as its share, nothing bypasses.
pub fn plain_volume(name: &str, size_blocks: u64) -> VolumeSpec {
    let spec = VolumeSpec::new(name.to_owned(), size_blocks * BLOCK_BYTES);
    VolumeSpec { exclusive: true, ..spec }
}
