//! All engines, wherever they are: events on their way to them, answers on their way back.
//!
//! The first thread has a lane of its own; shard `s` is served by thread `s % threads`.

mod counters;
mod disks;

use super::desk::Desk;
use super::lane::Lane;
use super::worker::Worker;
use cinnabar_backend::Memory;
use cinnabar_driver::Shard;
use cinnabar_engine::health::Health;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::Plan;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::{Command, Config, Engine, Event, Reply, Request, RequestId};

/// See the module.
pub(super) struct Crew {
    router: Router<Memory>,
    pub(super) workers: Vec<Worker>,
    /// By shard, as last heard.
    health: Vec<Health>,
    losses: Losses,
    /// Blocks that fit on the device; 0 without one.
    pub(super) capacity_blocks: u64,
}

impl Crew {
    /// No engines yet.
    pub(super) fn new(workers: Vec<Worker>) -> Self {
        let router = Router::new(ShardMap::single(), &Config::default());
        let losses = Losses::new(router.map());
        Self { router, workers, health: Vec::new(), losses, capacity_blocks: 0 }
    }

    /// Thread of a shard; 0 is the first.
    fn thread_of(&self, shard: u32) -> usize {
        shard as usize % (self.workers.len() + 1)
    }

    /// Seats engines, one for each shard, in place of those there were.
    pub(super) fn seat(&mut self, lane: &mut Lane, map: ShardMap, engines: Vec<Engine<Memory>>) {
        self.router = Router::new(map, &Config::default());
        self.health = vec![Health::Opening; engines.len()];
        self.losses = Losses::new(self.router.map());
        lane.unseat();
        self.workers.iter().for_each(|worker| worker.call(Lane::unseat));
        for (number, engine) in (0..).zip(engines) {
            let shard = Shard::new(number, engine, Mutants::default());
            match self.thread_of(number) {
                0 => lane.shards.push(shard),
                thread => self.workers[thread - 1].call(move |lane| lane.shards.push(shard)),
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

    /// Requests take too long; those are answered here that no shard has seen.
    pub(super) fn late(&mut self, lane: &mut Lane, ids: Vec<RequestId>) -> Vec<Reply<Memory>> {
        let Self { router, workers, .. } = self;
        router.all_late(ids, &mut |routed| post(lane, workers, routed))
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
            self.on(lane, shard, move |lane| lane.bind(now, shard, inner, key));
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
        for shard in &lane.shards {
            self.health[shard.number as usize] = shard.engine.health();
        }
        let Self { health, losses, workers, .. } = self;
        for shard in losses.notice(health.iter().copied()) {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            post(lane, workers, Routed { shard, event });
        }
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

/// Hands an event to the thread of its shard.
fn post(lane: &mut Lane, workers: &mut [Worker], routed: Routed<Memory>) {
    let Routed { shard, event } = routed;
    match shard as usize % (workers.len() + 1) {
        0 => lane.shard(shard).events.push(event),
        thread => workers[thread - 1].event(shard, event),
    }
}
