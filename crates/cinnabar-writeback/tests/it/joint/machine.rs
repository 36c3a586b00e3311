//! The production engines behind the production router, run by simulated data threads with a port each:
//! what the daemon's threads do, in any order of their turns.

use crate::memory::Mem;
use cinnabar_driver::health_news::HealthNews;
use cinnabar_driver::pool::{Left, Ran};
use cinnabar_driver::{ShardIo, ShardPool};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{
    Answer, Command, Config, Engine, Event, IoDone, IoId, IoOp, Reply, Request, RequestId,
};
use std::collections::{BTreeMap, VecDeque};

/// What a thread's port has brought.
#[derive(Debug)]
pub(super) enum Arrived {
    Done(u32, IoDone),
    Restarted(Restarted),
}

/// The server of a volume may have restarted and lost ranges.
#[derive(Clone, Debug)]
pub(super) struct Restarted {
    pub(super) key: usize,
    pub(super) ranges: Vec<ByteSpan>,
    /// No other port has told it.
    pub(super) first: bool,
    /// Which restart of the volume's it is.
    pub(super) number: u64,
    /// The log has heard.
    pub(super) told: bool,
}

/// What the first thread hears.
#[derive(Debug)]
pub(super) enum ThreadEvent {
    Said(u32, Reply<Mem>),
    Restarted(Restarted),
}

/// Where an I/O goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Cache,
    /// The volume of this number.
    Backend(usize),
}

/// An I/O under way: which shard calls it what, and the thread whose port it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    shard: u32,
    id: IoId,
    pub(super) thread: usize,
}

#[derive(Default)]
struct Lane {
    /// By shard.
    events: Vec<Vec<Event<Mem>>>,
    again: Vec<bool>,
    arrived: VecDeque<Arrived>,
}

/// See the module.
pub(super) struct Machine {
    router: Router<Mem>,
    pool: ShardPool<Mem, usize>,
    lanes: Vec<Lane>,
    losses: Losses,
    health: Vec<Health>,
    ios: BTreeMap<u64, Io>,
    next_io: u64,
    /// A deliberate bug: what a server may have lost is not dropped.
    pub(super) keeps_lost: bool,
    /// From the other threads.
    pub(super) inbox: VecDeque<ThreadEvent>,
}

/// The doors of a shard.
struct Doors<'a> {
    started: Vec<(u32, IoId, On, IoOp<Mem>)>,
    said: Vec<(u32, Reply<Mem>)>,
    health: &'a mut Vec<Health>,
}

impl ShardIo<Mem> for Doors<'_> {
    type Volume = usize;

    fn start_on_cache(&mut self, shard: u32, id: IoId, op: IoOp<Mem>) {
        self.started.push((shard, id, On::Cache, op));
    }

    fn start_on_backend(&mut self, shard: u32, id: IoId, volume: usize, op: IoOp<Mem>) {
        self.started.push((shard, id, On::Backend(volume), op));
    }

    fn reply(&mut self, shard: u32, reply: Reply<Mem>) {
        if reply.id != OWN_COMMAND {
            self.said.push((shard, reply));
        }
    }

    fn health(&mut self, shard: u32, news: HealthNews) {
        self.health[shard as usize] = news.health;
    }
}

/// I/O to be started.
pub(super) type Started = Vec<(IoId, On, IoOp<Mem>)>;

impl Machine {
    /// Engines over a device whose regions have these superblocks; without any, one without a device.
    pub(super) fn new(config: Config, superblocks: Vec<Superblock>, threads: usize) -> Self {
        let map = superblocks.first().map_or(ShardMap::single(), |s| ShardMap::of(&s.geometry));
        let engines: Vec<_> = if superblocks.is_empty() {
            vec![Engine::without_device(config)]
        } else {
            superblocks.into_iter().map(|superblock| Engine::new(config, superblock)).collect()
        };
        let shards = engines.len();
        let lane = |_| Lane {
            events: (0..shards).map(|_| Vec::new()).collect(),
            again: vec![false; shards],
            arrived: VecDeque::new(),
        };
        Self {
            router: Router::new(map, &config),
            losses: Losses::new(&map),
            pool: ShardPool::new(engines, threads, config.mutants),
            lanes: (0..threads).map(lane).collect(),
            health: vec![Health::Opening; shards],
            ios: BTreeMap::new(),
            next_io: 0,
            keeps_lost: false,
            inbox: VecDeque::new(),
        }
    }

    pub(super) fn recorded(&self, name: &str) -> Vec<Recorded> {
        let of = |shard| {
            let name = name.to_owned();
            self.pool.ask(shard, move |shard| shard.engine.recorded(&name))
        };
        (0..self.pool.shards()).filter_map(of).collect()
    }

    pub(super) fn check_invariants(&self) {
        for shard in 0..self.pool.shards() {
            self.pool.ask(shard, |shard| shard.engine.check_invariants());
        }
    }

    /// Blocks that shards hold of volumes.
    pub(super) fn cached_blocks(&self) -> u64 {
        let of = |shard| self.pool.ask(shard, |s| s.engine.cache_counters().cached_blocks);
        (0..self.pool.shards()).map(of).sum()
    }

    /// The first thread submits a request; gives the answer to what needs no shard.
    pub(super) fn submit(&mut self, request: Request<Mem>) -> Option<Reply<Mem>> {
        let lane = &mut self.lanes[0];
        let mut to = |routed: Routed<Mem>| lane.events[routed.shard as usize].push(routed.event);
        self.router.route(Event::Submit(request), &mut to)
    }

    /// The first thread says that the time of a request is over; gives the answer to what no shard has.
    pub(super) fn late(&mut self, id: RequestId) -> Option<Reply<Mem>> {
        let lane = &mut self.lanes[0];
        let mut to = |routed: Routed<Mem>| lane.events[routed.shard as usize].push(routed.event);
        self.router.late(id, &mut to)
    }

    /// Requests of a volume that were answered as late and are still under way.
    pub(super) fn late_requests(&self, volume: VolumeId) -> u32 {
        let of = |shard| {
            let inner = self.router.inner(volume, shard)?;
            Some(self.pool.ask(shard, move |s| s.engine.late_requests(inner)))
        };
        (0..self.pool.shards()).filter_map(of).sum()
    }

    /// An I/O takes too long: the thread of its port says so.
    pub(super) fn overdue(&mut self, io: IoId) {
        let Io { shard, id, thread } = self.ios[&io.0];
        self.lanes[thread].events[shard as usize].push(Event::Overdue(id));
    }

    /// The first thread gives a command, which each shard's home carries out.
    pub(super) fn command(&mut self, id: RequestId, command: Command) -> Option<Reply<Mem>> {
        let Self { router, pool, lanes, .. } = self;
        let mut to = |routed: Routed<Mem>| hand_over(pool, lanes, routed);
        router.route(Event::Control(id, command), &mut to)
    }

    /// The first thread hears an answer of a shard; gives the requester's, once all of it is there.
    pub(super) fn answered(
        &mut self,
        shard: u32,
        reply: Reply<Mem>,
        key: impl Fn(RequestId) -> usize,
    ) -> Option<Reply<Mem>> {
        let Self { router, pool, lanes, .. } = self;
        let mut to = |routed: Routed<Mem>| hand_over(pool, lanes, routed);
        let reply = router.reply(shard, reply, &mut to)?;
        if let Ok(Answer::Attached { volume, .. }) = reply.result {
            let key = key(reply.id);
            for shard in 0..pool.shards() {
                let inner = router.inner(volume, shard).expect("every shard has it");
                leave(pool, lanes, 0, (shard, Left::Bind(inner, key)));
            }
        }
        Some(reply)
    }

    /// What the shards at home at this thread have of lost ranges goes before they hear of anything
    /// that the server has done since.
    fn drop_lost(&mut self, thread: usize, key: usize, ranges: &[ByteSpan]) {
        for shard in 0..self.pool.shards() {
            if self.pool.home(shard) == thread && !self.keeps_lost {
                let lost = Left::DropLost(key, ranges.to_vec());
                leave(&self.pool, &mut self.lanes, thread, (shard, lost));
            }
        }
    }

    pub(super) fn thread_of(&self, io: IoId) -> usize {
        self.ios[&io.0].thread
    }

    /// An I/O has ended: its port brings that.
    pub(super) fn io_done(&mut self, done: IoDone) {
        let Io { shard, id, thread } = self.ios.remove(&done.id.0).expect("an I/O ends once");
        self.arrive(thread, Arrived::Done(shard, IoDone { id, ..done }));
    }

    pub(super) fn arrive(&mut self, thread: usize, arrived: Arrived) {
        self.lanes[thread].arrived.push_back(arrived);
    }

    /// Whether a thread has something to do.
    pub(super) fn has_work(&self, thread: usize, now: Instant) -> bool {
        let lane = &self.lanes[thread];
        let due = |shard: u32| {
            self.pool.home(shard) == thread
                && (self.pool.is_filled(shard) || self.pool.wake(shard).is_some_and(|at| at <= now))
        };
        !lane.arrived.is_empty()
            || lane.again.contains(&true)
            || lane.events.iter().any(|events| !events.is_empty())
            || (0..self.pool.shards()).any(due)
    }

    pub(super) fn threads(&self) -> usize {
        self.lanes.len()
    }

    /// When the next shard wants to be woken.
    pub(super) fn wake(&self) -> Option<Instant> {
        (0..self.pool.shards()).filter_map(|shard| self.pool.wake(shard)).min()
    }

    /// A turn of a thread, which takes so many of what its port has brought, and `meets` other threads at
    /// shards that are not at home here: what it has for those is left to them. Gives I/O to be started,
    /// and what the first thread hears of itself.
    pub(super) fn turn(
        &mut self,
        thread: usize,
        now: Instant,
        (take, meets): (usize, bool),
    ) -> (Started, VecDeque<ThreadEvent>) {
        let (mut started, mut own) = (Vec::new(), VecDeque::new());
        for _ in 0..take.min(self.lanes[thread].arrived.len()) {
            match self.lanes[thread].arrived.pop_front().expect("just counted") {
                Arrived::Done(shard, done) => {
                    self.lanes[thread].events[shard as usize].push(Event::IoDone(done));
                }
                Arrived::Restarted(restarted) => {
                    self.drop_lost(thread, restarted.key, &restarted.ranges);
                    let heard = ThreadEvent::Restarted(restarted);
                    (if thread == 0 { &mut own } else { &mut self.inbox }).push_back(heard);
                }
            }
        }
        for shard in 0..self.pool.shards() {
            let home = self.pool.home(shard) == thread;
            let due = home
                && (self.pool.is_filled(shard)
                    || self.pool.wake(shard).is_some_and(|at| at <= now));
            let lane = &mut self.lanes[thread];
            let again = std::mem::take(&mut lane.again[shard as usize]) || due;
            if !again && lane.events[shard as usize].is_empty() {
                continue;
            }
            if meets && !home {
                self.pool.leave(shard, &mut lane.events[shard as usize], None);
                self.lanes[self.pool.home(shard)].again[shard as usize] = true;
                continue;
            }
            let health = &mut self.health;
            let mut doors = Doors { started: Vec::new(), said: Vec::new(), health };
            let events = &mut lane.events[shard as usize];
            let ran = self.pool.run(shard, thread, now, events, &mut doors);
            lane.again[shard as usize] = ran == Ran::More;
            let Doors { started: ios, said, .. } = doors;
            for (shard, id, on, op) in ios {
                let name = IoId(self.next_io);
                self.next_io += 1;
                self.ios.insert(name.0, Io { shard, id, thread });
                started.push((name, on, op));
            }
            let heard = said.into_iter().map(|(shard, reply)| ThreadEvent::Said(shard, reply));
            (if thread == 0 { &mut own } else { &mut self.inbox }).extend(heard);
        }
        // What one shard can't record on the device, no shard may rely on.
        for shard in self.losses.notice(self.health.iter().copied()) {
            let abandon = Event::Control(OWN_COMMAND, Command::Abandon);
            leave(&self.pool, &mut self.lanes, thread, (shard, Left::Event(abandon)));
        }
        (started, own)
    }
}

/// A command is carried out at the home of its shard, what is a request's here.
fn hand_over(pool: &ShardPool<Mem, usize>, lanes: &mut [Lane], routed: Routed<Mem>) {
    let Routed { shard, event } = routed;
    let home = pool.home(shard);
    if home == 0 || !matches!(event, Event::Control(..)) {
        return lanes[0].events[shard as usize].push(event);
    }
    leave(pool, lanes, 0, (shard, Left::Event(event)));
}

/// A thread leaves something for a shard's home, behind what it has for it.
fn leave(
    pool: &ShardPool<Mem, usize>,
    lanes: &mut [Lane],
    thread: usize,
    (shard, left): (u32, Left<Mem, usize>),
) {
    pool.leave(shard, &mut lanes[thread].events[shard as usize], Some(left));
    lanes[pool.home(shard)].again[shard as usize] = true;
}
