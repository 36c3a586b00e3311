//! Random requests for parts of blocks, with I/O that ends in any order, fails, lands in part or takes
//! too long, and volumes and devices that come and go: a read gives what the backend holds.
//!
//! A request holds its blocks until it is answered, so what a read gives can be compared with the
//! backend at that moment. What changes behind the cache's back is excused for reads that began before
//! the invalidation that follows at once. Plans let nothing in for a while. Other than in the seeded simulation nearly every request is
//! for a part of a block: a thousand steps take a few milliseconds.

mod steps;

use cinnabar_engine::counters::Admitted;
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::{ByteSpan, Instant, SECTOR_BYTES, VolumeId};
use cinnabar_engine::{
    Action, Answer, Bounds, Command, Config, Event, Failure, IoRequest, Op, Reply, Request,
    RequestId,
};
use cinnabar_sim::medium::{Backend, CacheDevice, Media, Transfer};
use cinnabar_sim::rng::Rng;
use cinnabar_sim::shards::Shards;
use cinnabar_sim::{CacheSetup, Factory, Machine, ShardedFactory, Stamp, Stamped};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sectors of each volume and the alignment of its backend. One ends within a block, one is shorter
/// than a block.
const VOLUMES: [(u64, u64); 4] = [(96 * 8, 512), (40 * 8 + 3, 512), (5, 512), (32 * 8, 4096)];
const STEPS: u64 = 4_000;
/// Sectors of two blocks, which is a shard's stripe.
const STRIPE_SECTORS: u64 = 16;

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Attaching,
    Attached(VolumeId),
    Detaching(VolumeId),
    Detached(VolumeId),
    Sealing(VolumeId),
}

/// A read under way.
struct Reading {
    volume: usize,
    first: u64,
    /// What each of its sectors has held since it began.
    held: Vec<Vec<Stamp>>,
    /// Sectors that were changed behind the cache's back.
    excused: BTreeSet<u64>,
}

/// What is to be answered.
enum Asked {
    Read(Reading),
    /// An invalidation of what was changed behind the cache's back.
    Behind,
    Other,
    Attach(usize),
    Detach(usize),
    Seal(usize),
    Abandon,
    Replace,
}

/// An I/O under way, and the device it was meant for.
struct Held {
    transfer: Transfer,
    touched: bool,
    device: u8,
}

/// What a run has met, all devices together.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    compared: u64,
    read: u64,
    completed: u64,
    dropped: u64,
    let_in: u64,
    kept_out: u64,
}

struct World {
    rng: Rng,
    setup: CacheSetup,
    machine: Shards<Stamped>,
    media: Media,
    held: Vec<Held>,
    now: Instant,
    wake: Option<Instant>,
    ticks: u64,
    asked: BTreeMap<RequestId, Asked>,
    states: [State; 4],
    /// Whether each volume was left with a proof, or dropped: what another host writes then is found
    /// out.
    sealed: [bool; 4],
    /// The first sector of the block that each volume's requests are about.
    hot: [u64; 4],
    /// Which cache device it is, counted.
    device: u8,
    faults: bool,
    /// The last plan that said so lets blocks go to flash.
    admits: bool,
    version: u64,
    met: Met,
}

fn setup(rng: &mut Rng, mutants: Mutants) -> CacheSetup {
    let shards = rng.pick(&[1, 1, 1, 2, 3]);
    let bounds = Bounds {
        partial_blocks: rng.pick(&[1, 2, 4, 1024]),
        write_blocks: rng.pick(&[1, 2, 256]),
        zero_blocks: rng.pick(&[1, 2, 4096]),
        parts: rng.pick(&[1, 2, 32]),
        part_bytes: rng.pick(&[4096, 8192, 1 << 30]),
        miss_blocks: rng.pick(&[1, 2, 256]),
        zero_fallback_blocks: rng.pick(&[1, 256]),
        ..Bounds::default()
    };
    let config = Config {
        bounds,
        mutants,
        probation_blocks: rng.pick(&[Some(1), Some(3), None]),
        chunk_age_ns_max: rng.pick(&[0, 1_000_000]),
        ..Config::default()
    };
    let single = CacheSetup::single(1020 * u64::from(shards), config);
    CacheSetup { shards, span_log2: 1, threads: rng.pick(&[1, 2]), ..single }
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> Self {
        let mut rng = Rng::new(seed);
        let setup = setup(&mut rng, mutants);
        let format = Factory::<Stamped>::format(&mut ShardedFactory, &setup, 0);
        let machine = ShardedFactory.start(&setup, &format.superblocks).expect("just formatted");
        let backends = VOLUMES.iter().enumerate().map(|(index, (sectors, align_bytes))| {
            let mut backend = Backend::new(index, *sectors, *align_bytes, false);
            backend.can_zero = rng.chance(0.7);
            backend
        });
        let backends = backends.collect();
        let mut world = Self {
            faults: rng.chance(0.5),
            rng,
            setup,
            machine,
            media: Media::new(CacheDevice::new(&format), backends),
            held: Vec::new(),
            now: Instant(0),
            wake: None,
            ticks: 0,
            asked: BTreeMap::new(),
            states: [State::Away; 4],
            sealed: [true; 4],
            hot: [0; 4],
            device: 0,
            admits: true,
            version: 0,
            met: Met::default(),
        };
        world.command(Asked::Other, Command::Open);
        world
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn command(&mut self, asked: Asked, command: Command) {
        let id = RequestId(self.tick());
        self.asked.insert(id, asked);
        self.event(Event::Control(id, command));
    }

    fn submit(&mut self, volume: VolumeId, op: Op<Stamped>, asked: Asked) {
        let id = RequestId(self.tick());
        self.asked.insert(id, asked);
        self.event(Event::Submit(Request { id, volume, op }));
    }

    fn event(&mut self, event: Event<Stamped>) {
        self.now = self.now.plus_ns(1_000);
        let mut actions = Vec::new();
        self.machine.apply(self.now, &mut vec![event], &mut actions);
        for action in actions {
            match action {
                Action::Io(request) => self.io(request),
                Action::Reply(reply) => self.reply(reply),
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                }
            }
        }
    }

    fn io(&mut self, request: IoRequest<Stamped>) {
        let tick = self.tick();
        let transfer = self.media.start(request, tick).expect("I/O by the rules");
        self.held.push(Held { transfer, touched: false, device: self.device });
    }

    fn reply(&mut self, Reply { id, result }: Reply<Stamped>) {
        match (self.asked.remove(&id).expect("it was asked"), result) {
            (Asked::Read(reading), Ok(Answer::Data(data))) => self.compare(&reading, &data),
            (Asked::Read(_) | Asked::Behind | Asked::Other, _) | (Asked::Replace, Err(_)) => {}
            (Asked::Attach(index), Ok(Answer::Attached { volume, .. })) => {
                self.states[index] = State::Attached(volume);
                self.media.attach(volume, index);
            }
            (Asked::Attach(index), _) => self.states[index] = State::Away,
            (Asked::Detach(index), Ok(_)) => {
                let State::Detaching(volume) = self.states[index] else { unreachable!("asked") };
                self.states[index] = State::Detached(volume);
            }
            (asked @ (Asked::Detach(index) | Asked::Seal(index)), result) => {
                self.sealed[index] =
                    if let Asked::Seal(_) = asked { result.is_ok() } else { !self.is_lost() };
                let (State::Detaching(volume) | State::Sealing(volume)) = self.states[index] else {
                    unreachable!("asked")
                };
                self.states[index] = State::Away;
                self.media.detach(volume);
            }
            (Asked::Abandon, result) => self.abandoned(result.err()),
            (Asked::Replace, Ok(_)) => {
                for (state, backend) in self.states.iter().zip(&mut self.media.backends) {
                    if let State::Attached(_) = state {
                        backend.entrust(self.device);
                    }
                }
            }
        }
    }

    /// The cache device is not used any more: another one takes its place.
    fn abandoned(&mut self, failure: Option<Failure>) {
        if failure.is_some() {
            return;
        }
        self.count();
        self.device += 1;
        let format = Factory::<Stamped>::format(&mut ShardedFactory, &self.setup, self.device);
        self.media.leave_cache();
        self.media.cache = CacheDevice::new(&format);
        let superblock = Superblock::decode(&format.superblocks[0]).expect("just formatted");
        self.command(Asked::Replace, Command::Replace(Box::new(superblock)));
    }

    /// The cache device is out of use.
    fn is_lost(&self) -> bool {
        matches!(Machine::<Stamped>::health(&self.machine), Health::PassThrough(_))
    }

    /// The daemon dies and starts again: nothing is left of what RAM had. Not while the device has yet
    /// to learn of what another host has written.
    fn crash(&mut self) {
        if self.asked.values().any(|asked| matches!(asked, Asked::Behind)) {
            return;
        }
        self.count();
        self.held.clear();
        self.asked.clear();
        let tick = self.tick();
        self.media.crash(tick);
        self.states = [State::Away; 4];
        self.wake = None;
        self.admits = true;
        let superblocks = self.media.cache.superblocks();
        self.machine = ShardedFactory.start(&self.setup, &superblocks).expect("superblocks");
        self.command(Asked::Other, Command::Open);
    }

    fn compare(&mut self, reading: &Reading, data: &Stamped) {
        let Reading { volume, first, held, excused } = reading;
        let count = held.len() as u64;
        let span = ByteSpan::new(first * SECTOR_BYTES, count * SECTOR_BYTES);
        let got = data.get((span.head_bytes() / SECTOR_BYTES) as usize, held.len());
        // A shard may have done its part of a read before another one begins.
        let split =
            self.setup.shards > 1 && first / STRIPE_SECTORS != (first + count - 1) / STRIPE_SECTORS;
        for ((sector, got), held) in (*first..).zip(got).zip(held) {
            let is = self.media.backends[*volume].sector(sector);
            let right = got == is || split && held.contains(&got) || excused.contains(&sector);
            assert!(right, "sector {sector} of volume {volume} is {is:?}, and read as {got:?}");
        }
        self.met.compared += count;
    }

    /// Blocks let in by all devices of this daemon, and those that a plan has kept out.
    fn let_in(&self) -> (u64, u64) {
        let seen = Machine::<Stamped>::cache_counters(&self.machine);
        let Admitted { filling, referenced, ghost, all, clean_stop: _ } = seen.admitted;
        (filling + referenced + ghost + all, seen.throttled_blocks)
    }

    /// A step; while a plan lets nothing in, nothing comes in.
    fn checked_step(&mut self) {
        let (was_open, (before, kept_out)) = (self.admits, self.let_in());
        self.step();
        let (now, kept_out_now) = self.let_in();
        let closed = !was_open && !self.admits;
        assert!(!closed || now <= before, "{now} blocks have come in, {before} before");
        self.met.let_in += now.saturating_sub(before);
        self.met.kept_out += kept_out_now.saturating_sub(kept_out);
    }

    /// Adds what is counted of this device.
    fn count(&mut self) {
        let seen = Machine::<Stamped>::cache_counters(&self.machine);
        self.met.read += seen.partials_read;
        self.met.completed += seen.partials_completed;
        self.met.dropped += seen.partials_dropped;
    }
}

fn run(seed: u64, mutants: Mutants) -> Met {
    let mut world = World::new(seed, mutants);
    for step in 0..STEPS {
        world.checked_step();
        if step % 16 == 0 {
            Machine::<Stamped>::check_invariants(&world.machine);
        }
    }
    world.count();
    world.met
}

#[test]
fn what_is_read_of_parts_is_what_the_backend_holds() {
    let mut all = Met::default();
    for seed in 0..100 {
        let met = catch_unwind(|| run(seed, Mutants::default()));
        let met = met.unwrap_or_else(|_| panic!("seed {seed} fails"));
        all.compared += met.compared;
        all.read += met.read;
        all.completed += met.completed;
        all.dropped += met.dropped;
        all.let_in += met.let_in;
        all.kept_out += met.kept_out;
    }
    let enough = all.compared > 10_000 && all.read > 100 && all.completed > 10 && all.dropped > 100;
    let enough = enough && all.let_in > 1000 && all.kept_out > 1000;
    assert!(enough, "{all:?}");
}

#[test]
fn random_parts_find_the_bugs_of_incomplete_blocks_and_of_the_throttle() {
    let bugs = [
        Mutant::PartialServedWhole,
        Mutant::PartialTakenForWhole,
        Mutant::PartialNotTakenOut,
        Mutant::FailedPartialKept,
        Mutant::PartialOutlivesTrim,
        Mutant::PartialOutlivesVolume,
        Mutant::ThrottleKeepsPartials,
        Mutant::ThrottleStopsRecords,
    ];
    for bug in bugs {
        let fails =
            |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, Mutants::only(bug)))).is_err();
        assert!((0..200).any(|seed| fails(&seed)), "{bug:?} is not found");
    }
}
