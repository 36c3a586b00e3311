//! All engines, wherever they are: events on their way to them, answers on their way back.
//!
//! Called by the loop. The first thread has a lane of its own; shard `s` is served by thread
//! `s % threads`.

use super::desk::Desk;
use super::lane::Lane;
use super::unit::{Unit, Whose};
use super::volume::VolumeIo;
use super::worker::Worker;
use cinnabar_backend::{Disk, Memory};
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::{Health, PassThroughReason};
use cinnabar_engine::plan::Plan;
use cinnabar_engine::shards::{Routed, Router, ShardMap};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{Command, Config, Engine, Event, Reply, Request, RequestId};
use std::sync::Arc;

/// Names the commands that nobody gave.
const OWN_COMMAND: RequestId = RequestId(u64::MAX);

/// See the module.
pub(super) struct Crew {
    router: Router<Memory>,
    pub(super) workers: Vec<Worker>,
    /// By shard, as last heard.
    health: Vec<Health>,
    /// Shards that were told to give up the device because another lost it.
    giving_up: Vec<bool>,
    /// Blocks that fit on the device; 0 without one.
    pub(super) capacity_blocks: u64,
}

impl Crew {
    /// No engines yet.
    pub(super) fn new(workers: Vec<Worker>) -> Self {
        let router = Router::new(ShardMap::single(), Config::default().mutants);
        let (health, giving_up) = (Vec::new(), Vec::new());
        Self { router, workers, health, giving_up, capacity_blocks: 0 }
    }

    /// Thread of a shard; 0 is the first.
    fn thread_of(&self, shard: u32) -> usize {
        shard as usize % (self.workers.len() + 1)
    }

    /// Seats engines, one for each shard, in place of those there were.
    pub(super) fn seat(&mut self, lane: &mut Lane, map: ShardMap, engines: Vec<Engine<Memory>>) {
        self.router = Router::new(map, Config::default().mutants);
        self.health = vec![Health::Opening; engines.len()];
        self.giving_up = vec![false; engines.len()];
        lane.units.clear();
        for worker in &mut self.workers {
            worker.call(|lane| lane.units.clear());
        }
        for (shard, engine) in (0..).zip(engines) {
            let unit = Unit::new(shard, engine);
            match self.thread_of(shard) {
                0 => lane.units.push(unit),
                thread => self.workers[thread - 1].call(move |lane| lane.units.push(unit)),
            }
        }
    }

    /// Number of shards.
    pub(super) fn shards(&self) -> u32 {
        self.router.map().shards()
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// A guest's request; answered at once only if it can't be served.
    pub(super) fn submit(
        &mut self,
        lane: &mut Lane,
        request: Request<Memory>,
    ) -> Option<Reply<Memory>> {
        let Self { router, workers, .. } = self;
        router.submit(request, &mut |routed| post(lane, workers, routed))
    }

    /// An operator's command; answered at once only if it can't be carried out.
    pub(super) fn control(
        &mut self,
        lane: &mut Lane,
        id: RequestId,
        command: &Command,
    ) -> Option<Reply<Memory>> {
        let Self { router, workers, .. } = self;
        router.control(id, command, &mut |routed| post(lane, workers, routed))
    }

    /// New settings.
    pub(super) fn adopt(&mut self, lane: &mut Lane, plan: &Plan) {
        let Self { router, workers, .. } = self;
        router.adopt(plan, &mut |routed| post(lane, workers, routed));
    }

    /// A shard has answered: gives the answer for whoever asked, once all of it is there.
    pub(super) fn reply(
        &mut self,
        lane: &mut Lane,
        shard: u32,
        reply: Reply<Memory>,
    ) -> Option<Reply<Memory>> {
        if reply.id == OWN_COMMAND {
            return None;
        }
        let Self { router, workers, .. } = self;
        router.reply(shard, reply, &mut |routed| post(lane, workers, routed))
    }

    /// Sends the workers what they were told.
    pub(super) fn send(&mut self) {
        self.workers.iter_mut().for_each(Worker::send);
    }

    /// Has something done by the thread of a shard.
    fn on(&mut self, lane: &mut Lane, shard: u32, work: impl FnOnce(&mut Lane) + Send + 'static) {
        match self.thread_of(shard) {
            0 => work(lane),
            thread => self.workers[thread - 1].order(work),
        }
    }

    /// The engines' I/O to a volume whose attach was answered goes to the plane's volume `key`.
    pub(super) fn bind(&mut self, lane: &mut Lane, now: Instant, volume: VolumeId, key: usize) {
        for shard in 0..self.shards() {
            let Some(inner) = self.router.inner(volume, shard) else { continue };
            self.on(lane, shard, move |lane| {
                let (unit, desk) = lane.unit_and_desk(shard);
                unit.bind(now, inner, Whose::Volume(key), desk);
            });
        }
    }

    /// What each engine says, in the order of shards.
    fn ask<T: Send + 'static>(
        &self,
        lane: &Lane,
        question: impl Fn(u32, &Engine<Memory>) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let of = move |lane: &Lane| -> Vec<(u32, T)> {
            lane.units.iter().map(|unit| (unit.shard, question(unit.shard, &unit.engine))).collect()
        };
        let mut all = of(lane);
        for worker in &self.workers {
            let of = of.clone();
            all.extend(worker.call(move |lane| of(lane)));
        }
        all.sort_by_key(|(shard, _)| *shard);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    /// What the device knows of a volume that is not attached.
    pub(super) fn recorded(&self, lane: &Lane, name: &str) -> Vec<Recorded> {
        let name = name.to_owned();
        let all = self.ask(lane, move |_, engine| engine.recorded(&name));
        all.into_iter().flatten().collect()
    }

    /// All counters: of the cache, and of these volumes.
    pub(super) fn counters(&self, lane: &Lane, volumes: &[Option<VolumeId>]) -> Counters {
        let inner: Vec<Vec<Option<VolumeId>>> = (0..self.shards())
            .map(|shard| {
                let name = |volume: &Option<_>| self.router.inner((*volume)?, shard);
                volumes.iter().map(name).collect()
            })
            .collect();
        let inner = Arc::new(inner);
        let all = self.ask(lane, move |shard, engine| {
            let of = |volume: &Option<VolumeId>| volume.and_then(|id| engine.volume_counters(id));
            let all = inner[shard as usize].iter();
            let volumes: Vec<VolumeCounters> = all.map(|v| of(v).unwrap_or_default()).collect();
            (engine.health(), engine.cache_counters(), engine.ram_bytes(), volumes)
        });
        let of_volume = |at: usize| VolumeCounters::of_shards(all.iter().map(|one| one.3[at]));
        Counters {
            health: Health::of_all(all.iter().map(|one| one.0)),
            cache: all.iter().map(|one| one.1).sum(),
            ram: all.iter().map(|one| one.2).sum(),
            volumes: (0..volumes.len()).map(of_volume).collect(),
        }
    }

    /// How the cache is, as the shard that is worst off.
    pub(super) fn health(&self) -> Health {
        Health::of_all(self.health.iter().copied())
    }

    /// A shard elsewhere is doing otherwise than before.
    pub(super) fn heard_health(&mut self, shard: u32, health: Health) {
        if let Some(known) = self.health.get_mut(shard as usize) {
            *known = health;
        }
    }

    /// Looks at the shards here, and has all give up a device that one of them lost.
    pub(super) fn watch_health(&mut self, lane: &mut Lane) {
        for unit in &lane.units {
            self.health[unit.shard as usize] = unit.engine.health();
        }
        let lost =
            |health: &Health| matches!(health, Health::PassThrough(PassThroughReason::Failed(_)));
        if self.health.len() == 1 || !self.health.iter().any(lost) {
            return;
        }
        for shard in 0..self.health.len() {
            let uses = matches!(self.health[shard], Health::Serving | Health::Loading { .. });
            if uses && !self.giving_up[shard] {
                let event = Event::Control(OWN_COMMAND, Command::Abandon);
                post(lane, &mut self.workers, Routed { shard: shard as u32, event });
            }
            self.giving_up[shard] = uses;
        }
    }

    /// Gives all threads a cache device of this capacity.
    pub(super) fn install_cache(
        &mut self,
        lane: &mut Lane,
        disk: &Arc<Disk>,
        capacity_blocks: u64,
    ) -> rustix::io::Result<()> {
        lane.desk.install_cache(Arc::clone(disk))?;
        for worker in &self.workers {
            let disk = Arc::clone(disk);
            worker.call(move |lane| lane.desk.install_cache(disk))?;
        }
        self.capacity_blocks = capacity_blocks;
        Ok(())
    }

    /// Has all threads let go of the cache device. No I/O of it may be under way.
    pub(super) fn close_cache(&mut self, lane: &mut Lane) {
        lane.desk.close_cache();
        self.workers.iter().for_each(|worker| worker.call(|lane| lane.desk.close_cache()));
        self.capacity_blocks = 0;
    }

    /// Has all threads leave the cache device to the kernel.
    pub(super) fn leave_cache(&mut self, lane: &mut Lane) {
        lane.desk.leave_cache();
        self.workers.iter().for_each(|worker| worker.call(|lane| lane.desk.leave_cache()));
        self.capacity_blocks = 0;
    }

    /// Gives all threads a volume.
    pub(super) fn install(
        &mut self,
        lane: &mut Lane,
        key: usize,
        io: &Arc<VolumeIo>,
    ) -> rustix::io::Result<()> {
        let mut result = lane.desk.install(key, Arc::clone(io));
        for worker in &self.workers {
            if result.is_ok() {
                let io = Arc::clone(io);
                result = worker.call(move |lane| lane.desk.install(key, io));
            }
        }
        if result.is_err() {
            self.uninstall(lane, key);
        }
        result
    }

    /// Has all threads let go of a volume. No I/O of it may be under way.
    pub(super) fn uninstall(&mut self, lane: &mut Lane, key: usize) {
        lane.desk.uninstall(key);
        self.workers.iter().for_each(|worker| worker.call(move |lane| lane.desk.uninstall(key)));
    }

    /// Has the desk of a thread do something.
    pub(super) fn on_desk(
        &mut self,
        lane: &mut Lane,
        thread: usize,
        work: impl FnOnce(&mut Desk) + Send + 'static,
    ) {
        match thread {
            0 => work(&mut lane.desk),
            thread => self.workers[thread - 1].order(move |lane| work(&mut lane.desk)),
        }
    }

    /// Ends the threads beside the first.
    pub(super) fn end(&mut self) {
        for worker in self.workers.drain(..) {
            if !worker.end() {
                tracing::warn!("a data thread does not end and is left behind");
            }
        }
    }
}

/// All counters.
pub(super) struct Counters {
    pub(super) health: Health,
    pub(super) cache: CacheCounters,
    pub(super) ram: RamBytes,
    /// In the order they were asked for.
    pub(super) volumes: Vec<VolumeCounters>,
}

/// Hands an event to the thread of its shard.
fn post(lane: &mut Lane, workers: &mut [Worker], routed: Routed<Memory>) {
    let Routed { shard, event } = routed;
    match shard as usize % (workers.len() + 1) {
        0 => lane.unit(shard).events.push(event),
        thread => workers[thread - 1].event(shard, event),
    }
}
