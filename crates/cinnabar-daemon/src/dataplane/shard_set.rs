//! All engines, wherever they are: events on their way to them, answers on their way back.
//!
//! Requests and completions are run where they arrive ([`DataThread`]); commands go to the home of each
//! shard.

mod counters;
mod disks;

use super::data_thread::DataThread;
use super::io_table::IoTable;
use super::worker::Worker;
use cinnabar_backend::Memory;
use cinnabar_driver::ShardPool;
use cinnabar_driver::health_news::{HealthNews, KnownHealth};
use cinnabar_engine::health::Health;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::Plan;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap};
use cinnabar_engine::units::VolumeId;
use cinnabar_engine::{Command, Config, Engine, Event, Reply, Request, RequestId};
use counters::OfShard;
use std::cell::RefCell;
use std::sync::Arc;

/// See the module.
pub(super) struct ShardSet {
    router: Router<Memory>,
    pub(super) workers: Vec<Worker>,
    /// By shard, as last heard.
    health: Vec<KnownHealth>,
    losses: Losses,
    /// Blocks that fit on the device; 0 without one.
    pub(super) capacity_blocks: u64,
    /// What each shard has said of itself last.
    last: RefCell<Vec<OfShard>>,
}

impl ShardSet {
    /// No engines yet.
    pub(super) fn new(workers: Vec<Worker>) -> Self {
        let router = Router::new(ShardMap::single(), &Config::default());
        let losses = Losses::new(router.map());
        let (health, last) = (Vec::new(), RefCell::default());
        Self { router, workers, health, losses, capacity_blocks: 0, last }
    }

    /// Seats engines, one for each shard, in place of those there were.
    pub(super) fn seat(
        &mut self,
        data_thread: &mut DataThread,
        map: ShardMap,
        engines: Vec<Engine<Memory>>,
    ) {
        self.router = Router::new(map, &Config::default());
        let unheard = KnownHealth::new(Health::Opening, Mutants::default());
        self.health = vec![unheard; engines.len()];
        self.losses = Losses::new(self.router.map());
        self.last.borrow_mut().clear();
        let pool = Arc::new(ShardPool::new(engines, self.threads(), Mutants::default()));
        for worker in &self.workers {
            let pool = Arc::clone(&pool);
            worker.call(move |hands| hands.data_thread.seat(pool));
        }
        data_thread.seat(pool);
    }

    /// Which shard owns what.
    pub(super) fn map(&self) -> &ShardMap {
        self.router.map()
    }

    /// What a shard calls a volume.
    pub(super) fn inner(&self, volume: VolumeId, shard: u32) -> Option<VolumeId> {
        self.router.inner(volume, shard)
    }

    /// Number of shards.
    pub(super) fn shards(&self) -> u32 {
        self.router.map().shards()
    }

    /// Number of data threads.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// A guest's request; answered at once only if it can't be served. `share`: the homes of the shards
    /// run it.
    pub(super) fn submit(
        &mut self,
        data_thread: &mut DataThread,
        request: Request<Memory>,
        share: bool,
    ) -> Option<Reply<Memory>> {
        self.router.submit(request, &mut |routed| {
            if share {
                data_thread.share(routed.shard);
            }
            post(data_thread, routed);
        })
    }

    /// Requests take too long; those are answered here that no shard has seen.
    pub(super) fn late(
        &mut self,
        data_thread: &mut DataThread,
        ids: Vec<RequestId>,
    ) -> Vec<Reply<Memory>> {
        self.router.all_late(ids, &mut |routed| post(data_thread, routed))
    }

    /// An operator's command; answered at once only if it can't be carried out.
    pub(super) fn control(
        &mut self,
        data_thread: &mut DataThread,
        id: RequestId,
        command: &Command,
    ) -> Option<Reply<Memory>> {
        self.router.control(id, command, &mut |routed| post(data_thread, routed))
    }

    /// New settings.
    pub(super) fn adopt(&mut self, data_thread: &mut DataThread, plan: &Plan) {
        self.router.adopt(plan, &mut |routed| post(data_thread, routed));
    }

    /// A shard has answered: gives the answer for whoever asked, once all of it is there.
    pub(super) fn reply(
        &mut self,
        data_thread: &mut DataThread,
        shard: u32,
        reply: Reply<Memory>,
    ) -> Option<Reply<Memory>> {
        if reply.id == OWN_COMMAND {
            return None;
        }
        self.router.reply(shard, reply, &mut |routed| post(data_thread, routed))
    }

    /// Has each other thread say when it has looked at its port and run what came of that; gives their
    /// number.
    pub(super) fn have_look(&self) -> usize {
        self.workers.iter().map(Worker::have_look).count()
    }

    /// The engines' I/O to a volume whose attach was answered goes to the plane's volume `key`.
    pub(super) fn bind(&self, data_thread: &mut DataThread, volume: VolumeId, key: usize) {
        for shard in 0..self.shards() {
            if let Some(inner) = self.router.inner(volume, shard) {
                data_thread.bind(shard, inner, key);
            }
        }
    }

    /// How the cache is, as the shard that is worst off.
    pub(super) fn health(&self) -> Health {
        Health::of_all(self.health.iter().map(KnownHealth::health))
    }

    /// Whether shards have different sizes, after a resize that failed and could not be taken back.
    pub(super) fn is_uneven(&self) -> bool {
        self.router.is_uneven()
    }

    /// A shard is doing otherwise than before, as one of the threads says.
    pub(super) fn heard_health(&mut self, shard: u32, news: HealthNews) {
        if let Some(known) = self.health.get_mut(shard as usize) {
            known.hear(news);
        }
    }

    /// Has all shards give up a device that one of them lost.
    pub(super) fn watch_health(&mut self, data_thread: &mut DataThread) {
        for shard in self.losses.notice(self.health.iter().map(KnownHealth::health)) {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            post(data_thread, Routed { shard, event });
        }
    }

    /// Has the I/O table of a thread do something.
    pub(super) fn on_io_table(
        &mut self,
        data_thread: &mut DataThread,
        thread: usize,
        work: impl FnOnce(&mut IoTable) + Send + 'static,
    ) {
        match thread {
            0 => work(&mut data_thread.io_table),
            thread => {
                self.workers[thread - 1].order(move |hands| work(&mut hands.data_thread.io_table));
            }
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

/// What guests ask for is run here; commands are carried out at the home of their shard.
fn post(data_thread: &mut DataThread, Routed { shard, event }: Routed<Memory>) {
    match event {
        Event::Control(..) | Event::Adopt(_) => data_thread.hand_over(shard, event),
        event => data_thread.give(shard, event),
    }
}
