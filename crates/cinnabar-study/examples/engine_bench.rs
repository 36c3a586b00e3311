//! What the engine costs: RAM a block, CPU a hit and an insertion, at up to 64 M blocks.
//!
//! Beside the figures stands this machine's dependent DRAM read, measured in the same run over
//! memory as large as the index. Best of five rounds.

use cinnabar_engine::metadata::superblock::{Geometry, Superblock};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan, Instant, VolumeId};
use cinnabar_engine::{
    Action, Answer, Command, Config, Engine, Event, IoDone, IoOp, Op, Request, RequestId,
};
use cinnabar_study::instant::{Length, plain_volume};
use std::time::Instant as Clock;

const ROUNDS: usize = 5;
const LOOKUPS: u64 = 2_000_000;

/// An engine and what is queued for it.
struct Bench {
    engine: Engine<Length>,
    volume: VolumeId,
    events: Vec<Event<Length>>,
    actions: Vec<Action<Length>>,
    now: u64,
    /// Nanoseconds spent inside the engine, and of those on batches of requests just submitted:
    /// lookups up to the I/O that they start.
    spent: u64,
    looked_up: u64,
    replies: u64,
}

impl Bench {
    fn new(capacity: u32, huge: bool) -> Self {
        let geometry = Geometry::for_capacity(capacity, 4);
        let superblock = Superblock::format([7; 16], geometry);
        let engine = Engine::new(Config::default(), superblock);
        if huge {
            for (address, bytes) in engine.tables() {
                advise_huge(address, bytes);
            }
        }
        let (events, actions) = (Vec::new(), Vec::new());
        let mut bench = Self {
            engine,
            volume: VolumeId(0),
            events,
            actions,
            now: 0,
            spent: 0,
            looked_up: 0,
            replies: 0,
        };
        bench.events.push(Event::Control(RequestId(0), Command::Open));
        bench.settle();
        let spec = plain_volume("bench", 1 << 36);
        bench.events.push(Event::Control(RequestId(0), Command::Attach(spec)));
        bench.settle();
        bench
    }

    /// Applies what is queued and carries out what comes of it, to the end.
    fn settle(&mut self) {
        let mut first = true;
        while !self.events.is_empty() {
            let start = Clock::now();
            self.now += 1_000;
            self.engine.apply(Instant(self.now), &mut self.events, &mut self.actions);
            let spent = start.elapsed().as_nanos() as u64;
            self.spent += spent;
            self.looked_up += if first { spent } else { 0 };
            first = false;
            for action in self.actions.drain(..) {
                match action {
                    Action::Io(io) => {
                        let pages = match io.op {
                            IoOp::WriteMeta { pages, .. } | IoOp::ReadMeta { pages, .. } => pages,
                            _ => Vec::new(),
                        };
                        let done = IoDone { pages, ..IoDone::new(io.id, Ok(())) };
                        self.events.push(Event::IoDone(done));
                    }
                    Action::Reply(reply) => {
                        self.replies += 1;
                        if let Ok(Answer::Attached { volume, .. }) = reply.result {
                            self.volume = volume;
                        }
                    }
                    // Cleaning goes on with the next batch, as it would beside real I/O.
                    Action::WakeAt(_) => {}
                }
            }
        }
    }

    /// Reads single blocks, `batch` at a time; gives nanoseconds an operation inside the
    /// engine, and of those up to the I/O.
    fn read(&mut self, blocks: impl Iterator<Item = u64>, batch: usize) -> (f64, f64) {
        (self.spent, self.looked_up) = (0, 0);
        let mut count = 0u64;
        for block in blocks {
            let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
            let op = Op::Read { span, data: Length };
            self.events.push(Event::Submit(Request { id: RequestId(0), volume: self.volume, op }));
            count += 1;
            if self.events.len() >= batch {
                self.settle();
            }
            if count.is_multiple_of(64) {
                self.events.push(Event::Wake);
            }
        }
        self.settle();
        (self.spent as f64 / count as f64, self.looked_up as f64 / count as f64)
    }

    fn misses(&self) -> u64 {
        self.engine.volume_counters(self.volume).expect("attached").misses
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let capacity: u32 = if quick { 1 << 20 } else { 64 << 20 };
    println!("capacity: {capacity} blocks ({} GiB)", capacity >> 18);
    let mut bench = Bench::new(capacity, true);
    let total = u64::from(capacity);
    let start = Clock::now();
    bench.read(0..total, 32);
    println!("filled in {:.1} s", start.elapsed().as_secs_f64());
    report_ram(&bench);
    println!("dependent DRAM read: {:.0} ns (best of {ROUNDS})", dram_ns(total as usize * 16));
    let mut random = Random(1);
    // The newest nine tenths are surely cached.
    let cached = total / 10..total;
    let span = cached.end - cached.start;
    for batch in [32, 1] {
        let before = bench.misses();
        let best = (0..ROUNDS)
            .map(|_| {
                let blocks: Vec<u64> =
                    (0..LOOKUPS).map(|_| cached.start + random.next() % span).collect();
                bench.read(blocks.into_iter(), batch)
            })
            .fold((f64::INFINITY, f64::INFINITY), |best, new| {
                (best.0.min(new.0), best.1.min(new.1))
            });
        let missed = bench.misses() - before;
        println!(
            "hit, batches of {batch}: lookup {:.0} ns, with completion and reply {:.0} ns \
             ({missed} of {} missed)",
            best.1,
            best.0,
            LOOKUPS * ROUNDS as u64,
        );
    }
    let mut next = total;
    let insertions = (total / 4).min(2_000_000);
    for batch in [32, 1] {
        let freed = bench.engine.cache_counters().evicted_blocks;
        let best = (0..ROUNDS)
            .map(|_| {
                // Missed twice: the second time the ghost admits it, so that every block of the
                // second pass is inserted into flash and evicts another.
                let blocks = next..next + insertions;
                next += insertions;
                bench.read(blocks.clone(), batch);
                bench.read(blocks, batch).0
            })
            .fold(f64::INFINITY, f64::min);
        let evicted = bench.engine.cache_counters().evicted_blocks - freed;
        let inserted = insertions * ROUNDS as u64;
        println!(
            "insertion into flash with eviction, batches of {batch}: {best:.0} ns \
             ({evicted} evicted for {inserted} inserted)"
        );
    }
    println!("replies: {}", bench.replies);
}

fn report_ram(bench: &Bench) {
    let ram = bench.engine.ram_bytes();
    let counters = bench.engine.cache_counters();
    let blocks = counters.capacity_blocks as f64;
    println!(
        "RAM a block: index {:.2} + descriptor with checksum {:.2} = {:.2} B; ghost {:.2} B; \
         segments {:.2} B; buffers {} MiB; cached {} of {}",
        ram.address_map as f64 / blocks,
        ram.descriptors as f64 / blocks,
        (ram.address_map + ram.descriptors) as f64 / blocks,
        ram.ghost as f64 / blocks,
        ram.other as f64 / blocks,
        ram.buffers >> 20,
        counters.cached_blocks,
        counters.capacity_blocks,
    );
}

/// A small generator; its quality matters only in that it jumps about.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }
}

/// Nanoseconds of a read whose address depends on the one before, over `bytes` of memory.
fn dram_ns(bytes: usize) -> f64 {
    const STEPS: u64 = 2_000_000;
    let len = bytes / 8;
    let mut chain: Vec<u64> = (0..len as u64).collect();
    let mut random = Random(9);
    // Sattolo's shuffle: one cycle through all of it.
    for i in (1..len).rev() {
        chain.swap(i, random.next() as usize % i);
    }
    (0..ROUNDS)
        .map(|_| {
            let start = Clock::now();
            let mut at = 0;
            for _ in 0..STEPS {
                at = chain[at as usize];
            }
            std::hint::black_box(at);
            start.elapsed().as_nanos() as f64 / STEPS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Asks for huge pages under a table that has not been touched yet.
fn advise_huge(address: *const u8, bytes: usize) {
    let page = 4096;
    let start = (address as usize).next_multiple_of(page);
    let end = (address as usize + bytes) / page * page;
    if end > start {
        // SAFETY: the range lies within a live allocation; the advice changes no contents.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE);
        }
    }
}
