//! The experiment of the MOBBS slides in virtual time: small random writes by a Zipf law on all-SSD,
//! hybrid and all-HDD volumes, with the production state machine, planners and throttle.
//!
//! The pools are models: three disks of 170 reads and 140 writes a second, as the authors count with,
//! and three SSDs of 1 ms a request (the servers' part included). Ratios between modes mean something,
//! absolute numbers don't.

#![expect(clippy::cast_sign_loss, reason = "times and ranks are positive")]

use cinnabar_placement::mutant::Mutants;
use cinnabar_placement::planner::{
    Backoff, Benefit, BenefitSettings, Mobbs, MobbsSettings, Planner, View,
};
use cinnabar_placement::volume::{
    Action, Admission, Copied, Event, Io, Op, Route, Settings, Stored, Ticket, Volume,
};
use cinnabar_placement::{
    Curve, Device, Devices, Direction, Geometry, Header, Heat, Object, Pool, Record, Sequential,
};
use rand::SeedableRng;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const EXTENTS: u32 = 2048;
const EXTENT_BYTES: u64 = 4 << 20;
/// Blocks of 4 KiB, a power of two.
const BLOCKS: u64 = EXTENTS as u64 * 1024;
const DEPTH: u64 = 32;
const DEVICES: usize = 3;
const SECOND: u64 = 1_000_000_000;

fn device(read_ns: f64, write_ns: f64, on_ns: f64, rate: f64) -> Device {
    let curve = |ns| Curve::line(ns, rate).expect("times");
    let (read, write, on) = (curve(read_ns), curve(write_ns), curve(on_ns));
    Device { read, write, read_on: on.clone(), write_on: on }
}

fn pools() -> [Device; 2] {
    [device(1e9 / 170.0, 1e9 / 140.0, 5e5, 100e6), device(1e6, 1e6, 5e5, 300e6)]
}

/// How extents are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    AllFast,
    Mobbs,
    /// With room for so many extents.
    Benefit(u32),
    AllSlow,
}

/// What a run shows of its last third.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) iops: f64,
    pub(crate) fast_extents: u32,
    /// Of writes, in ms.
    pub(crate) p99_ms: f64,
    pub(crate) moves: u64,
    pub(crate) given_up: u64,
    /// Bytes through the host over bytes moved.
    pub(crate) through_host: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Guest(u64),
    Event(usize),
    Tick,
}

struct Bench {
    volume: Volume,
    planner: Box<dyn Planner>,
    heat: Heat,
    sequential: Sequential,
    pools: [Device; 2],
    /// When each device is free.
    free: [[u64; DEVICES]; 2],
    agenda: BinaryHeap<Reverse<(u64, u64, Next)>>,
    order: u64,
    events: Vec<Option<Event>>,
    tickets: Vec<Option<Ticket>>,
    begun: Vec<u64>,
    latencies: Vec<u32>,
    rng: Xoshiro256PlusPlus,
    zipf: Zipf<f64>,
    /// Bytes of a write, a power of two.
    length: u64,
    backoff: Backoff,
    now: u64,
}

impl Bench {
    fn new(mode: Mode, theta: f64, length: u64) -> Self {
        let geometry = Geometry::new(u64::from(EXTENTS) * EXTENT_BYTES, 22).expect("a size");
        let budget = if let Mode::Benefit(extents) = mode { extents } else { EXTENTS };
        let header = Header::new([1; 16], geometry, u64::from(budget) * EXTENT_BYTES);
        let slow = Record::ABSENT.allocated(Pool::Slow, 1).settled();
        let fast = slow.copying().flipped().cleaned();
        let record = if mode == Mode::AllFast { fast } else { slow };
        let settings = Settings { mutants: Mutants::NONE, ..Settings::default() };
        let records = (0..EXTENTS).map(|extent| (extent, record));
        let mut volume = Volume::open(header, records, settings).expect("a sound table");
        let [slow, fast] = pools();
        volume.set_devices(Devices::new(slow.clone(), fast.clone()).expect("SSDs are faster"));
        let planner: Box<dyn Planner> = if let Mode::Benefit(_) = mode {
            let devices = Devices::new(slow, fast).expect("SSDs are faster");
            Box::new(Benefit::new(BenefitSettings::default(), devices))
        } else {
            Box::new(Mobbs::new(MobbsSettings::default()))
        };
        let heat = Heat::new(volume.table());
        let (events, latencies, agenda) = (Vec::new(), Vec::new(), BinaryHeap::new());
        let (tickets, begun) = (vec![None; DEPTH as usize], vec![0; DEPTH as usize]);
        let zipf = Zipf::new(BLOCKS as f64, theta).expect("a law");
        let rng = Xoshiro256PlusPlus::seed_from_u64(theta.to_bits());
        let (sequential, pools, free) = (Sequential::default(), pools(), [[0; DEVICES]; 2]);
        Self {
            volume,
            planner,
            heat,
            sequential,
            pools,
            free,
            agenda,
            order: 0,
            events,
            tickets,
            begun,
            latencies,
            rng,
            zipf,
            length,
            backoff: Backoff::default(),
            now: 0,
        }
    }

    fn at(&mut self, when: u64, next: Next) {
        self.order += 1;
        self.agenda.push(Reverse((when, self.order, next)));
    }

    /// A device is busy for a while; when it has done this.
    fn serve(&mut self, object: Object, direction: Direction, length: u64, on: bool) -> u64 {
        let takes = self.pools[object.pool as usize].ns(direction, length, on) as u64;
        let free = &mut self.free[object.pool as usize][object.extent as usize % DEVICES];
        *free = self.now.max(*free) + takes;
        *free
    }

    fn guest(&mut self, slot: u64) {
        let mut actions = Vec::new();
        if let Some(ticket) = self.tickets[slot as usize].take() {
            self.latencies.push(((self.now - self.begun[slot as usize]) / 1000) as u32);
            self.volume.end(ticket, true, &mut actions);
        }
        let rank = self.zipf.sample(&mut self.rng) as u64;
        let block = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS;
        let offset = block * 4096 / self.length * self.length;
        let io = Io { token: slot, op: Op::Write, offset, length: self.length };
        let on = self.sequential.note(io.offset, io.length);
        let score = self.planner.score(Direction::Write, io.length, on);
        self.heat.note((offset / EXTENT_BYTES) as u32, score);
        self.begun[slot as usize] = self.now;
        match self.volume.begin(io, &mut actions) {
            Admission::Go(route) => self.send(slot, route),
            Admission::Held => {}
            other => panic!("a write: {other:?}"),
        }
        self.carry_out(actions);
    }

    fn send(&mut self, slot: u64, route: Route) {
        self.tickets[slot as usize] = Some(route.ticket);
        let done = self.serve(route.object, Direction::Write, self.length, false);
        self.at(done, Next::Guest(slot));
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            let ms = self.now + 1_000_000;
            let (when, event) = match action {
                Action::Release { token, route } => {
                    self.send(token, route);
                    continue;
                }
                Action::Store { extent, .. } => {
                    (ms, Event::Stored { extent, outcome: Stored::Done })
                }
                Action::StoreHeader { .. } => (ms, Event::HeaderStored(Stored::Done)),
                Action::Probe { object } => {
                    let probed = Event::Probed { extent: object.extent, exists: Some(true) };
                    (self.serve(object, Direction::Read, 512, true), probed)
                }
                Action::Copy { from, to } => {
                    let read = self.serve(from, Direction::Read, EXTENT_BYTES, true);
                    let written = self.serve(to, Direction::Write, EXTENT_BYTES, true);
                    let copied = Event::Copied { extent: to.extent, outcome: Copied::Done };
                    (read.max(written), copied)
                }
                Action::Patch { from, to, ranges } => {
                    let mut when = self.now;
                    for range in ranges {
                        let bytes = range.end - range.start;
                        when = when.max(self.serve(from, Direction::Read, bytes, false));
                        when = when.max(self.serve(to, Direction::Write, bytes, false));
                    }
                    (when, Event::Patched { extent: to.extent, done: true })
                }
                Action::Delete { object } => {
                    let deleted = Event::Deleted { extent: object.extent, done: true };
                    (self.serve(object, Direction::Write, 512, false), deleted)
                }
                Action::Ended { extent, outcome } => {
                    self.backoff.ended(extent, outcome);
                    continue;
                }
                Action::Fail { .. } | Action::Fenced => panic!("{action:?}"),
            };
            self.events.push(Some(event));
            self.at(when, Next::Event(self.events.len() - 1));
        }
    }

    fn round(&mut self) {
        self.backoff.next_round();
        let (volume, backoff) = (&self.volume, &self.backoff);
        let view = View {
            table: volume.table(),
            may_move: &|extent| volume.may_move(extent) && backoff.may_move(extent),
            budget_bytes: volume.header().budget_bytes,
            fast_bytes: volume.fast_bytes(),
            seconds: self.planner.period_s(),
        };
        let mut moves = Vec::new();
        self.planner.round(&mut self.heat, &view, &mut moves);
        self.volume.set_moves(moves.into_iter().map(|of| (of.extent, of.to)));
    }

    fn run(mut self, seconds: u64, plans: bool) -> Outcome {
        for slot in 0..DEPTH {
            self.at(0, Next::Guest(slot));
        }
        self.at(SECOND, Next::Tick);
        let (mut ticks, measured) = (0, seconds / 3);
        while let Some(Reverse((now, _, next))) = self.agenda.pop() {
            self.now = now;
            match next {
                Next::Guest(slot) => self.guest(slot),
                Next::Event(at) => {
                    let event = self.events[at].take().expect("an event ends once");
                    let mut actions = Vec::new();
                    self.volume.apply(event, &mut actions);
                    self.carry_out(actions);
                }
                Next::Tick => {
                    ticks += 1;
                    if ticks == seconds - measured {
                        self.latencies.clear();
                    }
                    if ticks == seconds {
                        break;
                    }
                    if plans && ticks % self.planner.period_s() as u64 == 0 {
                        self.round();
                    }
                    let mut actions = Vec::new();
                    self.volume.tick(now, &mut actions);
                    self.carry_out(actions);
                    self.at(now + SECOND, Next::Tick);
                }
            }
        }
        let iops = self.latencies.len() as f64 / measured as f64;
        self.latencies.sort_unstable();
        let p99_ms = f64::from(self.latencies[self.latencies.len() * 99 / 100]) / 1e3;
        let counts = self.volume.counts();
        let moves = counts.moved[0] + counts.moved[1];
        let moved = (counts.copies * EXTENT_BYTES).max(1) as f64;
        let through_host = counts.patched_bytes as f64 / moved;
        let fast_extents = self.volume.table().objects(Pool::Fast);
        let given_up = counts.given_up;
        Outcome { iops, fast_extents, p99_ms, moves, given_up, through_host }
    }
}

fn run(mode: Mode, theta: f64, length: u64, seconds: u64) -> Outcome {
    let plans = !matches!(mode, Mode::AllFast | Mode::AllSlow);
    Bench::new(mode, theta, length).run(seconds, plans)
}

/// Rows of the table: theta, and the SSD ratio of the slides in percent.
const SLIDES: [(f64, f64); 5] = [(1.25, 7.5), (1.5, 6.5), (1.75, 3.7), (2.0, 2.5), (2.25, 1.8)];

/// `CINNABAR_SLIDES=1 cargo test -p cinnabar-placement --test it slides -- --nocapture` prints all
/// rows; without it one is run.
#[test]
fn slides_in_virtual_time() {
    let all = std::env::var_os("CINNABAR_SLIDES").is_some();
    let (rows, seconds) = if all { (&SLIDES[..], 2400) } else { (&SLIDES[1..2], 1500) };
    println!(
        "| theta | mode | IOPS | of all-fast | p99, ms | SSD extents | slides | moves | through the host |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    for (theta, slides) in rows {
        let run = |mode| run(mode, *theta, 4096, seconds);
        let (all_fast, mobbs) = (run(Mode::AllFast), run(Mode::Mobbs));
        let tenth = run(Mode::Benefit(EXTENTS / 10));
        let equal = run(Mode::Benefit(mobbs.fast_extents.max(1)));
        let all_slow = run(Mode::AllSlow);
        let named = [
            ("all-fast", all_fast),
            ("mobbs", mobbs),
            ("benefit, as much SSD as mobbs", equal),
            ("benefit, 10 %", tenth),
            ("all-slow", all_slow),
        ];
        for (name, of) in named {
            let percent = f64::from(of.fast_extents) * 100.0 / f64::from(EXTENTS);
            println!(
                "| {theta} | {name} | {:.0} | {:.0} % | {:.1} | {percent:.1} % | {slides} % | {} | {:.2} % |",
                of.iops,
                of.iops * 100.0 / all_fast.iops,
                of.p99_ms,
                of.moves,
                of.through_host * 100.0,
            );
        }
        assert!(all_slow.iops < mobbs.iops && mobbs.iops <= all_fast.iops * 1.2, "{named:?}");
        assert!(equal.iops >= mobbs.iops * 0.97, "benefit at equal SSD: {named:?}");
        assert!(equal.fast_extents <= mobbs.fast_extents.max(1), "the budget holds: {named:?}");
    }
}

/// Writes of which a few change much of an extent, so that one or two come during each copy of it.
#[test]
fn large_writes_in_virtual_time() {
    println!(
        "| writes | mode | IOPS | of all-fast | p99, ms | SSD extents | moves | given up | through the host |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    for length in [256 << 10, 512 << 10] {
        let all_fast = run(Mode::AllFast, 1.5, length, 1500);
        for mode in [Mode::Benefit(EXTENTS / 10), Mode::Mobbs, Mode::AllSlow] {
            let of = run(mode, 1.5, length, 1500);
            println!(
                "| {} KiB | {mode:?} | {:.0} | {:.0} % | {:.1} | {} | {} | {} | {:.2} % |",
                length >> 10,
                of.iops,
                of.iops * 100.0 / all_fast.iops,
                of.p99_ms,
                of.fast_extents,
                of.moves,
                of.given_up,
                of.through_host * 100.0,
            );
            let least = if mode == Mode::AllSlow { 0.0 } else { 0.8 };
            assert!(of.iops >= all_fast.iops * least, "{mode:?}: {of:?}, all-fast {all_fast:?}");
        }
    }
}
