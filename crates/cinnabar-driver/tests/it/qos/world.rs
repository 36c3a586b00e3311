//! A discrete-event simulation around a scheduler: guests that ask, a server with a number of channels
//! that takes a time for each request, slows down and stalls, and a script of the operator's.

use crate::qos::judge::{Began, Log, MS};
use cinnabar_driver::qos::mutant::Mutants;
use cinnabar_driver::qos::{
    Admitted, Client, ClientId, Config, Dispatch, Op, Refusal, Request, Scheduler, Settings, Work,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// How a guest asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// So many requests at any time.
    Closed(usize),
    /// So many requests a second, whatever becomes of them, a little irregular.
    Open(u64),
}

/// A guest.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) settings: Settings,
    pub(crate) load: Load,
    pub(crate) op: Op,
    pub(crate) work: Work,
    pub(crate) volume: u64,
    /// When it asks, in ms.
    pub(crate) phases: Vec<(u64, u64)>,
}

/// A guest that asks from the beginning on, with reads of 4 KiB.
pub(crate) fn guest(volume: u64, reservation: u32, limit: u32, weight: u32, load: Load) -> Guest {
    Guest {
        settings: Settings {
            reservation_iops: reservation,
            limit_iops: (limit > 0).then_some(limit),
            weight,
        },
        load,
        op: Op::Read { length: 4096 },
        work: Work::Guest,
        volume,
        phases: vec![(0, u64::MAX / MS)],
    }
}

/// What the operator does, or what happens to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// Other settings of a guest.
    Change(usize, Settings),
    /// A guest asks otherwise from now on.
    Op(usize, Op),
    /// A guest goes away with all that waits.
    Remove(usize),
    /// The server takes so many thousandths of its time for a request.
    Speed(u64),
    /// The server does nothing until then, in ms.
    Stall(u64),
    /// Another depth.
    Depth(usize),
}

/// What is on the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(usize),
    Arrive(usize),
    Script(usize),
    Wake,
}

/// A request of a guest.
#[derive(Clone, Copy, Debug)]
struct Asked {
    token: u64,
    arrived_ns: u64,
}

/// A guest as it is.
struct Seat {
    guest: Guest,
    id: Option<ClientId>,
    /// Refused by the scheduler; the guest's own queue.
    kept: VecDeque<Asked>,
    /// What the scheduler has of it, in order.
    waiting: VecDeque<Asked>,
    /// Closed loads: requests anywhere.
    outstanding: usize,
}

/// The world.
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) log: Log,
    now_ns: u64,
    depth: usize,
    channels: usize,
    /// For an I/O of cost 1, in ns.
    service_ns: u64,
    speed: u64,
    stall_ns: u64,
    busy: usize,
    under_way: Vec<Option<Dispatch>>,
    server_queue: VecDeque<usize>,
    seats: Vec<Seat>,
    script: Vec<Deed>,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    wake_ns: u64,
    tokens: u64,
    owners: BTreeMap<u64, usize>,
    rng: Xoshiro256PlusPlus,
}

impl World {
    /// A server with `channels` that together do `iops`; the group's depth is the same number.
    pub(crate) fn new(mutants: Mutants, channels: usize, iops: u64, guests: Vec<Guest>) -> Self {
        let config = Config { depth: channels, waiting_max: 4096, mutants };
        let mut scheduler = Scheduler::new(config).expect("the configuration is right");
        let seats: Vec<Seat> = guests
            .into_iter()
            .map(|guest| {
                let client = Client { volume: guest.volume, work: guest.work };
                // A guest that comes later is added later.
                let id = (guest.phases[0].0 == 0)
                    .then(|| scheduler.add(0, client, guest.settings).expect("it is new"));
                let (kept, waiting) = (VecDeque::new(), VecDeque::new());
                Seat { guest, id, kept, waiting, outstanding: 0 }
            })
            .collect();
        let mut world = Self {
            scheduler,
            log: Log { refused: vec![0; seats.len()], ..Log::default() },
            now_ns: 0,
            depth: channels,
            channels,
            service_ns: channels as u64 * 1_000_000_000 / iops,
            speed: 1000,
            stall_ns: 0,
            busy: 0,
            under_way: Vec::new(),
            server_queue: VecDeque::new(),
            seats,
            script: Vec::new(),
            agenda: BinaryHeap::new(),
            events: 0,
            wake_ns: u64::MAX,
            tokens: 0,
            owners: BTreeMap::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(18),
        };
        for seat in 0..world.seats.len() {
            for phase in world.seats[seat].guest.phases.clone() {
                world.schedule(phase.0 * MS, Event::Arrive(seat));
            }
        }
        world
    }

    /// Something happens at that time.
    pub(crate) fn at(mut self, ms: u64, deed: Deed) -> Self {
        self.script.push(deed);
        self.schedule(ms * MS, Event::Script(self.script.len() - 1));
        self
    }

    /// Runs up to that time.
    pub(crate) fn run(mut self, to_ms: u64) -> Self {
        while let Some(Reverse((at_ns, _, event))) = self.agenda.pop() {
            if at_ns >= to_ms * MS {
                self.schedule(at_ns, event);
                break;
            }
            self.now_ns = at_ns;
            match event {
                Event::Done(slot) => self.done(slot),
                Event::Arrive(seat) => self.arrive(seat),
                Event::Script(number) => self.act(self.script[number]),
                Event::Wake => self.wake_ns = u64::MAX,
            }
            self.take();
        }
        self
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events += 1;
        self.agenda.push(Reverse((at_ns, self.events, event)));
    }

    fn asks(&self, seat: usize) -> bool {
        let now_ms = self.now_ns / MS;
        let phases = &self.seats[seat].guest.phases;
        phases.iter().any(|(from, to)| (*from..*to).contains(&now_ms))
    }

    fn arrive(&mut self, seat: usize) {
        if self.seats[seat].id.is_none() && self.asks(seat) {
            let guest = &self.seats[seat].guest;
            let client = Client { volume: guest.volume, work: guest.work };
            let added = self.scheduler.add(self.now_ns, client, guest.settings);
            self.seats[seat].id = added.ok();
        }
        match self.seats[seat].guest.load {
            Load::Closed(depth) => {
                while self.asks(seat) && self.seats[seat].outstanding < depth {
                    self.ask(seat);
                }
            }
            Load::Open(iops) if self.asks(seat) => {
                self.ask(seat);
                let mean = 1_000_000_000 / iops;
                let next = self.now_ns + self.rng.random_range(mean / 2..=mean + mean / 2);
                self.schedule(next, Event::Arrive(seat));
            }
            Load::Open(_) => {}
        }
    }

    fn ask(&mut self, seat: usize) {
        self.tokens += 1;
        let asked = Asked { token: self.tokens, arrived_ns: self.now_ns };
        self.owners.insert(asked.token, seat);
        self.seats[seat].outstanding += 1;
        self.seats[seat].kept.push_back(asked);
        self.submit(seat);
    }

    fn submit(&mut self, seat: usize) {
        let Some(client) = self.seats[seat].id else { return };
        while let Some(asked) = self.seats[seat].kept.pop_front() {
            let request = Request { client, op: self.seats[seat].guest.op, token: asked.token };
            match self.scheduler.submit(self.now_ns, request) {
                Ok(Admitted::Waits(_)) => self.seats[seat].waiting.push_back(asked),
                Ok(Admitted::Exempt) => self.wrong("a guest's request is exempt"),
                Err(Refusal::Full(_)) => {
                    self.log.refused[seat] += 1;
                    self.seats[seat].kept.push_front(asked);
                    break;
                }
                Err(refusal) => self.wrong(&format!("{refusal}")),
            }
        }
    }

    fn wrong(&mut self, what: &str) {
        self.log.wrong.push(format!("at {} ms: {what}", self.now_ns / MS));
    }

    fn take(&mut self) {
        let mut begin = Vec::new();
        self.scheduler.take(self.now_ns, &mut begin);
        for dispatch in begin {
            self.begin(dispatch);
        }
        if let Some(wake_ns) = self.scheduler.wake_at()
            && wake_ns < self.wake_ns
        {
            self.wake_ns = wake_ns.max(self.now_ns);
            self.schedule(self.wake_ns, Event::Wake);
        }
    }

    fn begin(&mut self, dispatch: Dispatch) {
        let Some(&seat) = self.owners.get(&dispatch.token) else {
            return self.wrong("an unknown token");
        };
        let Some(asked) = self.seats[seat].waiting.pop_front() else {
            return self.wrong("a request of a guest that has none");
        };
        if asked.token != dispatch.token {
            self.wrong("a request overtook another one of its guest");
        }
        if dispatch.dispatched_ns != self.now_ns {
            self.wrong("a request that does not begin now");
        }
        let waited = dispatch.held_ns + dispatch.queued_ns;
        if asked.token == dispatch.token && waited > self.now_ns - asked.arrived_ns {
            self.wrong("a wait longer than since the arrival");
        }
        let length = match self.seats[seat].guest.op {
            Op::Read { length } | Op::Write { length } => u64::from(length),
            _ => 0,
        };
        let arrived_ns = asked.arrived_ns;
        self.log.began.push(Began { at_ns: self.now_ns, arrived_ns, guest: seat, length });
        let slot = self.under_way.len();
        self.under_way.push(Some(dispatch));
        self.busy += 1;
        if self.busy > self.depth {
            self.wrong("more under way than the depth");
        }
        self.server_queue.push_back(slot);
        self.serve();
        self.submit(seat);
    }

    /// The server begins what its channels allow.
    fn serve(&mut self) {
        let running = self.busy - self.server_queue.len();
        for _ in running..self.channels {
            let Some(slot) = self.server_queue.pop_front() else { break };
            let cost = self.under_way[slot].map_or(0, |dispatch| dispatch.cost.units());
            let mean = self.service_ns * cost.max(65_536) / 65_536 * self.speed / 1000;
            let takes = self.rng.random_range(mean / 2..=mean + mean / 2);
            let from = self.now_ns.max(self.stall_ns);
            self.schedule(from + takes, Event::Done(slot));
        }
    }

    fn done(&mut self, slot: usize) {
        let dispatch = self.under_way[slot].take().expect("it is done once");
        self.busy -= 1;
        self.log.done += dispatch.cost.units() as f64 / 65_536.0;
        self.scheduler.complete(self.now_ns, &[dispatch.ticket]);
        self.serve();
        if let Some(&seat) = self.owners.get(&dispatch.token) {
            self.seats[seat].outstanding -= 1;
            if matches!(self.seats[seat].guest.load, Load::Closed(_)) {
                self.arrive(seat);
            }
        }
    }

    fn act(&mut self, deed: Deed) {
        let now_ns = self.now_ns;
        match deed {
            Deed::Change(seat, settings) => {
                let id = self.seats[seat].id.expect("it is there");
                self.scheduler.change(now_ns, id, settings).expect("the settings are right");
            }
            Deed::Op(seat, op) => self.seats[seat].guest.op = op,
            Deed::Remove(seat) => self.remove(seat),
            Deed::Speed(speed) => self.speed = speed,
            Deed::Stall(ms) => self.stall_ns = ms * MS,
            Deed::Depth(depth) => {
                // What is under way beyond it ends first.
                self.depth = self.depth.max(depth);
                self.scheduler.set_depth(now_ns, depth).expect("the depth is right");
            }
        }
    }

    fn remove(&mut self, seat: usize) {
        let mut given_back = Vec::new();
        let id = self.seats[seat].id.take().expect("it is there");
        let removed = self.scheduler.remove(self.now_ns, id, &mut given_back);
        let waiting: Vec<u64> = self.seats[seat].waiting.drain(..).map(|w| w.token).collect();
        if removed.is_err() || given_back != waiting {
            self.wrong("a removed guest's requests were not given back in their order");
        }
        self.seats[seat].guest.phases = vec![(0, 0)];
        self.seats[seat].kept.clear();
        if self.scheduler.client(id).is_some() {
            self.wrong("a removed guest is still there");
        }
    }

    /// A guest's name in the scheduler.
    pub(crate) fn id(&self, seat: usize) -> ClientId {
        self.seats[seat].id.expect("it is there")
    }
}
