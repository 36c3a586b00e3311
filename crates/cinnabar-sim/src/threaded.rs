//! Shards that several threads run: what a shard answers is heard by the router some time later, and
//! each shard knows for itself which volume its engine's I/O belongs to.
//!
//! Router and pool are the production ones; the doors are the simulator's. The threads are simulated,
//! one at a time. So that they meet, some of a shard's events come from another thread while the shard
//! is being run: its attempt to run the shard finds the lock taken. And a shard is often run away from
//! its home, which knows of its wake-ups what it was told. What a thread says of a shard's health may be
//! heard behind what another one says later.

use crate::machine::{Kept, Machine, kept_of};
use cinnabar_driver::health_news::{HealthNews, KnownHealth};
use cinnabar_driver::pool::{Left, Ran};
use cinnabar_driver::{ShardIo, ShardPool};
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap, name_io};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{
    Action, Answer, AtRisk, Command, Config, Crossings, Engine, Event, IoId, IoOp, IoRequest,
    Payload, Phases, Reply, Target, mix,
};

/// What the threads have for a shard, and have of it.
struct IoTable<P> {
    events: Vec<Event<P>>,
    /// It is to be run, with or without events.
    again: bool,
    /// Its answers that the router has not heard.
    said: Vec<Reply<P>>,
    /// When its home wakes it, as far as that knows.
    wake: Option<Instant>,
    /// How it is, as last told.
    health: KnownHealth,
    /// What a thread has told that is not heard yet, as its turn is a long one.
    late: Option<HealthNews>,
}

impl<P> IoTable<P> {
    /// A thread's turn is over: what it has told is heard, or will be behind what is told next.
    fn hear_of(&mut self, news: HealthNews, rng: u64) {
        if self.late.is_none() && rng.is_multiple_of(2) {
            self.late = Some(news);
            return;
        }
        self.health.hear(news);
        self.hear_late();
    }

    fn hear_late(&mut self) {
        if let Some(news) = self.late.take() {
            self.health.hear(news);
        }
    }
}

/// The doors of a shard: what goes through them is done by the simulator.
struct Doors<'a, P> {
    pool: &'a ShardPool<P, VolumeId>,
    now: Instant,
    actions: &'a mut Vec<Action<P>>,
    said: &'a mut Vec<Reply<P>>,
    news: Vec<HealthNews>,
    /// The home is told of an earlier wake-up.
    told: Option<Instant>,
    /// What another thread has for the shard: it comes when the engine has taken its batch,
    during: Vec<Event<P>>,
    /// or just before the shard is let go of.
    at_end: Vec<Event<P>>,
}

impl<P: Payload> Doors<'_, P> {
    fn meet(&mut self, shard: u32, mut events: Vec<Event<P>>) {
        if !events.is_empty() {
            let other = self.pool.home(shard) + 1;
            let ran = self.pool.run(shard, other, self.now, &mut events, &mut Shut);
            assert!(ran == Ran::Taken && events.is_empty(), "the shard is being run");
        }
    }
}

impl<P: Payload> ShardIo<P> for Doors<'_, P> {
    type Volume = VolumeId;

    fn start_on_cache(&mut self, shard: u32, id: IoId, op: IoOp<P>) {
        let id = name_io(shard, id);
        self.actions.push(Action::Io(IoRequest { id, target: Target::Cache, op }));
    }

    fn start_on_backend(&mut self, shard: u32, id: IoId, volume: VolumeId, op: IoOp<P>) {
        let (id, target) = (name_io(shard, id), Target::Backend(volume));
        self.actions.push(Action::Io(IoRequest { id, target, op }));
    }

    fn reply(&mut self, shard: u32, reply: Reply<P>) {
        self.said.push(reply);
        let events = std::mem::take(&mut self.during);
        self.meet(shard, events);
    }

    fn tell_home(&mut self, _: u32, _: usize, at: Instant) {
        self.told = Some(at);
    }

    fn health(&mut self, _: u32, news: HealthNews) {
        self.news.push(news);
    }

    fn letting_go(&mut self, shard: u32) {
        let mut events = std::mem::take(&mut self.during);
        events.append(&mut self.at_end);
        self.meet(shard, events);
    }
}

/// The doors of a thread that finds its shard taken.
struct Shut;

impl<P: Payload> ShardIo<P> for Shut {
    type Volume = VolumeId;

    fn start_on_cache(&mut self, _: u32, _: IoId, _: IoOp<P>) {
        unreachable!("another thread runs the shard");
    }

    fn start_on_backend(&mut self, _: u32, _: IoId, _: VolumeId, _: IoOp<P>) {
        unreachable!("another thread runs the shard");
    }

    fn reply(&mut self, _: u32, _: Reply<P>) {
        unreachable!("another thread runs the shard");
    }
}

/// See the module.
pub struct Threaded<P> {
    router: Router<P>,
    pool: ShardPool<P, VolumeId>,
    desks: Vec<IoTable<P>>,
    losses: Losses,
    /// Runs so far: decides how the threads of the next one meet.
    runs: u64,
    /// Batches of events so far: decides when news is heard.
    routed: u64,
}

impl<P: Payload> Threaded<P> {
    /// Engines over a device whose regions have these superblocks, in order.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(config: Config, superblocks: Vec<Superblock>) -> Self {
        let map = ShardMap::of(&superblocks[0].geometry);
        let engines: Vec<_> =
            superblocks.into_iter().map(|superblock| Engine::new(config, superblock)).collect();
        let io_table = |_: &Engine<P>| IoTable {
            events: Vec::new(),
            again: false,
            said: Vec::new(),
            wake: None,
            health: KnownHealth::new(Health::Opening, config.mutants),
            late: None,
        };
        let desks = engines.iter().map(io_table).collect();
        let threads = engines.len().div_ceil(2);
        let losses = Losses::new(&map);
        let pool = ShardPool::new(engines, threads, config.mutants);
        Self { router: Router::new(map, &config), pool, desks, losses, runs: 0, routed: 0 }
    }

    /// What each engine says.
    fn ask<T>(&self, question: impl Fn(&Engine<P>) -> T) -> Vec<T> {
        let shards = 0..self.pool.shards();
        shards.map(|shard| self.ask_one(shard, &question)).collect()
    }

    /// What one of them says.
    fn ask_one<T>(&self, shard: u32, question: impl FnOnce(&Engine<P>) -> T) -> T {
        let answer = self.pool.try_ask(shard, |shard| question(&shard.engine));
        answer.expect("nobody runs it at the moment")
    }

    /// The homes wake the shards whose time has come; the others' is asked for again.
    fn wake(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        for (shard, io_table) in (0..).zip(&mut self.desks) {
            if io_table.wake.is_some_and(|at| at <= now) {
                // A home looks at the shard then, which may have been woken since.
                io_table.wake = self.pool.wake(shard).filter(|at| *at > now);
                io_table.again = true;
            }
            actions.extend(io_table.wake.map(Action::WakeAt));
        }
    }

    /// Some thread runs a shard.
    fn run(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        let Self { pool, desks, runs, .. } = self;
        let io_table = &mut desks[shard as usize];
        let IoTable { events, again, said, wake, .. } = io_table;
        *runs += 1;
        let rng = mixed(*runs);
        // A wake-up is a matter of the home, whichever thread brings events.
        let home = *again || rng.is_multiple_of(2);
        let thread = pool.home(shard) + usize::from(!home);
        let cut = |events: &mut Vec<Event<P>>, rng: u64| {
            let len = events.len() as u64;
            events.split_off(if rng.is_multiple_of(2) { len } else { rng / 2 % (len + 1) } as usize)
        };
        let at_end = cut(events, rng >> 8);
        let during = cut(events, rng >> 32);
        *again = false;
        let news = Vec::new();
        let mut qos_queues = Doors { pool, now, actions, said, news, told: None, during, at_end };
        let ran = pool.run(shard, thread, now, events, &mut qos_queues);
        let Doors { told, news, .. } = qos_queues;
        *again = ran == Ran::More;
        // A home goes by what the pool says when it looks, others have it look.
        let known = if pool.home(shard) == thread { pool.wake(shard) } else { told };
        *wake = wake.take().into_iter().chain(known).min();
        actions.extend(known.map(Action::WakeAt));
        for (at, news) in (16..).zip(news) {
            io_table.hear_of(news, rng >> at);
        }
    }

    /// What one shard can't record on the device, no shard may rely on.
    fn share_loss(&mut self) {
        for shard in self.losses.notice(self.desks.iter().map(|io_table| io_table.health.health()))
        {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            self.desks[shard as usize].events.push(event);
        }
    }
}

/// A number that looks drawn, the same for the same `number`.
const fn mixed(number: u64) -> u64 {
    mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0)
}

impl<P: Payload> Machine<P> for Threaded<P> {
    fn apply(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        self.route(now, events, actions);
        while let Some(shard) = (0..self.shards()).find(|s| self.has_events(*s)) {
            self.turn(shard, now, actions);
            self.hear(shard, actions);
        }
    }

    fn cache_counters(&self) -> CacheCounters {
        self.ask(Engine::cache_counters).into_iter().sum()
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let names = self.names(volume);
        (names.len() == self.desks.len()).then(|| self.counters_of(&names))?
    }

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        self.ask(|engine| engine.recorded(name)).into_iter().flatten().collect()
    }

    fn health(&self) -> Health {
        Health::of_all(self.ask(Engine::health))
    }

    fn crossings(&self) -> Crossings {
        let all = self.router.crossings().clone();
        self.ask(|engine| all.add(&engine.crossings()));
        all
    }

    fn phases(&self) -> Option<Phases> {
        self.ask(Engine::phases).into_iter().reduce(Phases::or)
    }

    fn at_risk(&self) -> AtRisk {
        self.ask(Engine::at_risk).into_iter().fold(AtRisk::default(), std::ops::Add::add)
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        let of = |(shard, name): (u32, &VolumeId)| {
            self.ask_one(shard, |engine| engine.settled_blocks(*name))
        };
        (0..self.shards()).zip(names).flat_map(of).collect()
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        let of = |(shard, name): (u32, &VolumeId)| {
            self.ask_one(shard, |engine| engine.holds(*name, block))
        };
        (0..self.shards()).zip(names).any(of)
    }

    fn kept(&self, name: &str) -> Vec<Kept<P>> {
        self.ask(|engine| kept_of(engine, name)).into_iter().flatten().collect()
    }

    fn check_invariants(&self) {
        self.ask(Engine::check_invariants);
    }

    fn shards(&self) -> u32 {
        self.router.map().shards()
    }

    fn route(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        // A turn is over some time, whatever comes of the shard.
        self.routed += 1;
        if mixed(self.routed).is_multiple_of(4) {
            self.desks.iter_mut().for_each(IoTable::hear_late);
        }
        for event in events.drain(..) {
            if let Event::Wake = event {
                self.wake(now, actions);
                continue;
            }
            let mut to = |routed: Routed<P>| {
                self.desks[routed.shard as usize].events.push(routed.event);
            };
            let reply = self.router.route(event, &mut to);
            actions.extend(reply.map(Action::Reply));
        }
    }

    fn has_events(&self, shard: u32) -> bool {
        let io_table = &self.desks[shard as usize];
        io_table.again || !io_table.events.is_empty()
    }

    fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        self.run(shard, now, actions);
        self.share_loss();
    }

    fn has_said(&self, shard: u32) -> bool {
        !self.desks[shard as usize].said.is_empty()
    }

    fn hear(&mut self, shard: u32, actions: &mut Vec<Action<P>>) {
        for reply in std::mem::take(&mut self.desks[shard as usize].said) {
            if reply.id == OWN_COMMAND {
                continue;
            }
            let mut to = |routed: Routed<P>| {
                self.desks[routed.shard as usize].events.push(routed.event);
            };
            let Some(reply) = self.router.reply(shard, reply, &mut to) else { continue };
            let attached = match &reply.result {
                Ok(Answer::Attached { volume, .. }) => Some(*volume),
                _ => None,
            };
            actions.push(Action::Reply(reply));
            let Some(volume) = attached else { continue };
            for shard in 0..self.router.map().shards() {
                let inner = self.router.inner(volume, shard).expect("every shard has it");
                let io_table = &mut self.desks[shard as usize];
                self.pool.leave(shard, &mut io_table.events, Some(Left::Bind(inner, volume)));
                io_table.again = true;
            }
        }
    }

    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        let shards = 0..self.router.map().shards();
        shards.filter_map(|shard| self.router.inner(volume, shard)).collect()
    }

    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        let of = |(shard, name): (u32, &VolumeId)| {
            self.ask_one(shard, |engine| engine.volume_counters(*name))
        };
        let each = (0..self.shards()).zip(names).map(of);
        each.collect::<Option<Vec<_>>>().map(VolumeCounters::of_shards)
    }

    fn split_requests(&self) -> u64 {
        self.router.split_requests()
    }
}
