//! Makes the cache device that `cargo xtask bench restart` starts from: full, and left by a crash at
//! the worst moment. Everything but the data blocks is really there.
//!
//! `format FILE BYTES` makes an empty device in a sparse file, with the shards that a device of that size
//! usually has, for the daemon to attach its volume
//! to, so that device and host agree on the volume's generation. `fill FILE VOLUME BYTES GENERATION`
//! then drives the production engine of each shard over it, with the file as the medium for metadata, until
//! a checkpoint is as far away as it gets, and stops without a word.
//!
//! `load FILE` loads the indices of such a device as a start does, one after the other and with reads that
//! take no time, and prints what that costs the engines alone.
//!
//! Of the log only what is newer than the last checkpoint is written, whole chunks with zeros for data:
//! a start reads nothing else, and a file of a hundred thousand scattered pages would take a
//! quarter of an hour to delete.

use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::shards::ShardMap;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, VolumeId};
use cinnabar_engine::{
    Action, Answer, Command, Config, Engine, Event, IoDone, IoOp, IoRequest, Op, Phase, Request,
    RequestId, Slices, Target,
};
use cinnabar_study::instant::{Length, plain_volume};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Blocks of one request.
const REQUEST_BLOCKS: u64 = 64;
/// Requests between two looks at the counters.
const STEP_REQUESTS: u64 = 16;
/// Virtual time between two requests of `STEP_REQUESTS` blocks: a gigabyte a second.
const REQUEST_NS: u64 = 256_000;
/// Share of the way to the next checkpoint after which the device is left, in percent: of the
/// segments that may be opened until then, and of the marks, which the records of those segments
/// leave room for.
const LEFT_AT_PERCENT: u64 = 90;
const MARKS_PERCENT: u64 = 60;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["format", file, bytes] => format(file, number(bytes)),
        ["fill", file, volume, bytes, generation] => {
            fill(file, volume, number(bytes), number(generation));
        }
        ["load", file] => load(file),
        _ => panic!("format FILE BYTES, fill FILE VOLUME BYTES GENERATION, or load FILE"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn format(file: &str, bytes: u64) {
    let geometry = Geometry::for_shards(bytes, Geometry::shards_for(bytes));
    let geometry = geometry.expect("a size that can be formatted");
    let file = File::create_new(file).expect("a file that is not there yet");
    file.set_len(geometry.device_bytes()).expect("a sparse file of the device's size");
    for superblock in Superblock::format_all([0xB3; 16], geometry) {
        let (offset, page) = superblock.encode();
        let place = superblock.region_start() + offset;
        file.write_all_at(&page.0, place).expect("room for the superblock");
    }
}

fn fill(file: &str, volume: &str, bytes: u64, generation: u64) {
    let file = File::options().read(true).write(true).open(file).expect("the device");
    for superblock in superblocks(&file) {
        let file = file.try_clone().expect("another handle of the device");
        let stripes = Stripes::of(&superblock, volume);
        fill_shard(Driver::new(file, superblock, stripes), volume, bytes, generation);
    }
}

fn fill_shard(mut driver: Driver, volume: &str, bytes: u64, generation: u64) {
    let capacity = driver.capacity;
    driver.command(Command::Open);
    driver.command(Command::AwaitLoad);
    let mut spec = plain_volume(volume, bytes / BLOCK_BYTES);
    spec.generation = generation;
    match driver.command(Command::Attach(spec)) {
        Answer::Attached { volume, warmth } => {
            println!("attached: {warmth:?}");
            driver.volume = volume;
        }
        other => panic!("attach was answered with {other:?}"),
    }
    driver.read_on(capacity);
    println!("full: {} blocks", driver.engine.cache_counters().cached_blocks);

    // How far apart checkpoints are, with reads only.
    driver.read_until_checkpoint();
    let apart = driver.read_until_checkpoint();
    let to_go = apart * LEFT_AT_PERCENT / 100;
    driver.read_on(to_go);
    driver.keeps_log = true;
    driver.read_until_checkpoint();
    let checkpoints = driver.engine.cache_counters().checkpoints;
    driver.read_on(to_go);
    // Marks of what is cached for sure: what was read last.
    let newest = driver.next_block;
    let marks_max = capacity / 100 * MARKS_PERCENT / 100;
    for mark in 0..marks_max {
        let block = driver.stripes.block(newest - 1 - (mark * 7 + 1) % (capacity / 2));
        let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
        driver.submit(Op::Write { span, data: Length, fua: false });
    }
    driver.settle();
    let counters = driver.engine.cache_counters();
    println!(
        "left: {} blocks cached, {to_go} of {apart} blocks after a checkpoint, {} marked writes, \
         {} journal records, {} checkpoints",
        counters.cached_blocks,
        driver.engine.volume_counters(driver.volume).expect("attached").invalidation_waits,
        counters.journal_records,
        counters.checkpoints,
    );
    assert_eq!(counters.checkpoints, checkpoints, "a checkpoint came after all");
    driver.file.sync_all().expect("the file reaches the disk");
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("time since the thread began")
}

/// The superblocks of all regions.
fn superblocks(file: &File) -> Vec<Superblock> {
    let at = |start: u64| {
        let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
        for (offset, page) in (start..).step_by(4096).zip(&mut pages) {
            file.read_exact_at(&mut page.0, offset).expect("the superblock");
        }
        Superblock::decode(&pages).expect("a superblock of this example")
    };
    let first = at(0);
    (0..first.geometry.shards).map(|shard| at(first.for_shard(shard).region_start())).collect()
}

/// Loads the indices, leaving the device as it is.
fn load(file: &str) {
    let file = File::open(file).expect("the device");
    for superblock in superblocks(&file) {
        let file = file.try_clone().expect("another handle of the device");
        let stripes = Stripes::of(&superblock, "");
        load_shard(Driver::new(file, superblock, stripes));
    }
}

fn load_shard(mut driver: Driver) {
    driver.writes = false;
    for (start, bytes) in driver.engine.tables() {
        advise_huge(start, bytes);
    }
    driver.command(Command::Open);
    let answer = driver.command(Command::AwaitLoad);
    let (Answer::Loaded(report), seconds) = (answer, driver.busy.as_secs_f64()) else {
        panic!("a load was answered with something else");
    };
    println!("{report:?}");
    for (phase, busy) in &driver.busy_in {
        println!("{phase:>12} {:5.0} ms", busy.as_secs_f64() * 1e3);
    }
    println!(
        "{:>12} {:5.0} ms of CPU, {:.1} ns a block; the longest step {:.2} ms",
        "in all",
        seconds * 1e3,
        seconds * 1e9 / report.blocks as f64,
        driver.longest.as_secs_f64() * 1e3,
    );
}

/// Asks for huge pages under a table that has not been touched yet, as the daemon does.
fn advise_huge(start: *const u8, bytes: usize) {
    let from = start.addr().next_multiple_of(4096);
    let to = (start.addr() + bytes) & !4095;
    if from < to {
        let address = start.cast_mut().with_addr(from).cast();
        // SAFETY: the range lies within a live allocation; the advice changes no contents.
        unsafe { libc::madvise(address, to - from, libc::MADV_HUGEPAGE) };
    }
}

/// The blocks of a volume that one shard owns, counted from 0.
#[derive(Clone, Copy)]
struct Stripes {
    shards: u64,
    /// The first stripe that it owns.
    first: u64,
    blocks: u64,
}

impl Stripes {
    fn of(superblock: &Superblock, volume: &str) -> Self {
        let map = ShardMap::of(&superblock.geometry);
        let blocks = map.stripe_bytes() / BLOCK_BYTES;
        let shards = u64::from(map.shards());
        let of_volume = map.first_shard(volume);
        let owned = |stripe: &u64| map.shard_of(of_volume, stripe * blocks) == superblock.shard;
        let first = (0..shards).find(owned).expect("each shard owns one of as many stripes");
        Self { shards, first, blocks }
    }

    /// The block of the volume.
    fn block(&self, own: u64) -> u64 {
        (own / self.blocks * self.shards + self.first) * self.blocks + own % self.blocks
    }
}

/// The engine of a shard over a file; I/O takes no time, and data blocks are not written.
struct Driver {
    file: File,
    /// First byte of its region.
    region: u64,
    stripes: Stripes,
    engine: Engine<Length>,
    /// First byte of the log.
    log: u64,
    /// Whether what goes to the log is written.
    keeps_log: bool,
    /// Whether anything is written at all.
    writes: bool,
    /// CPU time that the engine has taken: in all, by phase of loading, at most in one go.
    busy: Duration,
    busy_in: BTreeMap<&'static str, Duration>,
    longest: Duration,
    /// Blocks that fit.
    capacity: u64,
    volume: VolumeId,
    /// What `read_on` reads next.
    next_block: u64,
    now: Instant,
    wake: Option<Instant>,
    next_id: u64,
    in_flight: u64,
    answer: Option<Answer<Length>>,
    events: Vec<Event<Length>>,
    actions: Vec<Action<Length>>,
}

impl Driver {
    fn new(file: File, superblock: Superblock, stripes: Stripes) -> Self {
        let log = superblock.geometry.log * BLOCK_BYTES;
        let capacity = superblock.geometry.capacity_blocks();
        Self {
            file,
            region: superblock.region_start(),
            stripes,
            engine: Engine::new(Config::default(), superblock),
            log,
            keeps_log: false,
            writes: true,
            busy: Duration::ZERO,
            busy_in: BTreeMap::new(),
            longest: Duration::ZERO,
            capacity,
            volume: VolumeId(0),
            next_block: 0,
            now: Instant(0),
            wake: None,
            next_id: 0,
            in_flight: 0,
            answer: None,
            events: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Reads so many blocks that were never read before, twice: a full cache keeps what is used
    /// again.
    fn read_on(&mut self, blocks: u64) {
        let end = self.next_block + blocks;
        while self.next_block < end {
            let bytes = REQUEST_BLOCKS * BLOCK_BYTES;
            let block = self.stripes.block(self.next_block);
            let span = ByteSpan::new(block * BLOCK_BYTES, bytes);
            self.submit(Op::Read { span, data: Length });
            self.submit(Op::Read { span, data: Length });
            self.next_block += REQUEST_BLOCKS;
        }
        self.settle();
    }

    /// Reads on until a checkpoint is completed; the blocks read.
    fn read_until_checkpoint(&mut self) -> u64 {
        let (start, before) = (self.next_block, self.engine.cache_counters().checkpoints);
        while self.engine.cache_counters().checkpoints == before {
            assert!(self.next_block - start < self.capacity, "no checkpoint in a whole round");
            self.read_on(REQUEST_BLOCKS * STEP_REQUESTS);
        }
        self.next_block - start
    }

    fn submit(&mut self, op: Op<Length>) {
        let id = self.next_id();
        self.events.push(Event::Submit(Request { id, volume: self.volume, op }));
        self.now = self.now.plus_ns(REQUEST_NS);
        self.settle();
    }

    fn command(&mut self, command: Command) -> Answer<Length> {
        let id = self.next_id();
        self.events.push(Event::Control(id, command));
        self.settle();
        self.answer.take().expect("a command was answered")
    }

    fn next_id(&mut self) -> RequestId {
        self.next_id += 1;
        self.in_flight += 1;
        RequestId(self.next_id)
    }

    /// Carries out what is queued, to the last reply.
    fn settle(&mut self) {
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
            let mut actions = std::mem::take(&mut self.actions);
            let phase = self.engine.phases().iter().find(|phase| phase.name().starts_with("load"));
            let begun = cpu_time();
            self.engine.apply(self.now, &mut self.events, &mut actions);
            let took = cpu_time().saturating_sub(begun);
            self.busy += took;
            *self.busy_in.entry(phase.map_or("open", Phase::name)).or_default() += took;
            self.longest = self.longest.max(took);
            for action in actions.drain(..) {
                match action {
                    Action::Io(io) => {
                        let done = self.carry_out(io);
                        self.events.push(Event::IoDone(done));
                    }
                    Action::Reply(reply) => {
                        self.in_flight -= 1;
                        self.answer = Some(reply.result.expect("nothing fails here"));
                    }
                    Action::WakeAt(at) => {
                        self.wake = Some(self.wake.map_or(at, |earlier| earlier.min(at)));
                    }
                }
            }
            self.actions = actions;
        }
    }

    fn carry_out(&mut self, io: IoRequest<Length>) -> IoDone {
        let pages = match io.op {
            _ if io.target != Target::Cache => Vec::new(),
            IoOp::ReadMeta { offset, mut pages } => {
                for (at, page) in (self.region + offset..).step_by(4096).zip(&mut pages) {
                    self.file.read_exact_at(&mut page.0, at).expect("a page of the device");
                }
                pages
            }
            IoOp::WriteMeta { pages, .. } if !self.writes => pages,
            IoOp::WriteMeta { offset, pages, data, .. } => {
                if offset < self.log || self.keeps_log {
                    for (at, page) in (self.region + offset..).step_by(4096).zip(&pages) {
                        self.file.write_all_at(&page.0, at).expect("room for a page");
                    }
                    self.write_zeros(offset + pages.len() as u64 * BLOCK_BYTES, &data);
                }
                pages
            }
            // What the engine writes outside of the log without saying what are zeros.
            IoOp::Write { offset, data, .. } if offset < self.log => {
                self.write_zeros(offset, &data);
                Vec::new()
            }
            IoOp::WriteZeroes { span, .. } if span.offset < self.log => {
                self.zero(span.offset, span.len);
                Vec::new()
            }
            _ => Vec::new(),
        };
        IoDone { pages, ..IoDone::new(io.id, Ok(())) }
    }

    fn write_zeros(&self, offset: u64, data: &Slices<Length>) {
        self.zero(offset, data.iter().map(|slice| slice.len).sum());
    }

    fn zero(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let zeros = vec![0; len as usize];
        self.file.write_all_at(&zeros, self.region + offset).expect("room for zeros");
    }
}
