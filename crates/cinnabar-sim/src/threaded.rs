//! Shards on threads of their own: what a shard answers is heard by the router some time later, and
//! each shard knows for itself whose its engine's I/O is.
//!
//! Router and shards are the production ones; the doors are the simulator's.

use crate::machine::Machine;
use cinnabar_driver::{Binding, Shard, ShardIo};
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap, name_io};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{
    Action, Answer, AtRisk, Command, Config, Crossings, Engine, Event, IoId, IoOp, IoRequest,
    Payload, Phases, Reply, Target,
};

/// A shard, and its answers that the router has not heard.
struct Unheard<P> {
    shard: Shard<P, VolumeId>,
    said: Vec<Reply<P>>,
}

/// The doors of a shard: what goes through them is done by the simulator.
struct Doors<'a, P> {
    actions: &'a mut Vec<Action<P>>,
    said: &'a mut Vec<Reply<P>>,
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

    fn reply(&mut self, _: u32, reply: Reply<P>) {
        self.said.push(reply);
    }

    fn wake_at(&mut self, at: Instant) {
        self.actions.push(Action::WakeAt(at));
    }
}

/// See the module.
pub struct Threaded<P> {
    router: Router<P>,
    shards: Vec<Unheard<P>>,
    losses: Losses,
}

impl<P: Payload> Threaded<P> {
    /// Engines over a device whose regions have these superblocks, in order.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(config: Config, superblocks: Vec<Superblock>) -> Self {
        let map = ShardMap::of(&superblocks[0].geometry);
        let new = |(number, superblock)| {
            let engine = Engine::new(config, superblock);
            Unheard { shard: Shard::new(number, engine, config.mutants), said: Vec::new() }
        };
        let shards = (0..).zip(superblocks).map(new).collect();
        let losses = Losses::new(&map);
        Self { router: Router::new(map, &config), shards, losses }
    }

    /// Wakes the engines whose time has come; the others' is asked for again.
    fn wake(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        for Unheard { shard, .. } in &mut self.shards {
            shard.look_at_time(now);
            actions.extend(shard.wake.map(Action::WakeAt));
        }
    }

    /// What one shard can't record on the device, no shard may rely on.
    fn share_loss(&mut self) {
        let health = self.shards.iter().map(|one| one.shard.engine.health());
        for shard in self.losses.notice(health) {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            self.shards[shard as usize].shard.events.push(event);
        }
    }
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
        self.shards.iter().map(|one| one.shard.engine.cache_counters()).sum()
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let names = self.names(volume);
        (names.len() == self.shards.len()).then(|| self.counters_of(&names))?
    }

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        self.shards.iter().filter_map(|one| one.shard.engine.recorded(name)).collect()
    }

    fn health(&self) -> Health {
        Health::of_all(self.shards.iter().map(|one| one.shard.engine.health()))
    }

    fn crossings(&self) -> Crossings {
        let all = self.router.crossings().clone();
        self.shards.iter().for_each(|one| all.add(&one.shard.engine.crossings()));
        all
    }

    fn phases(&self) -> Option<Phases> {
        self.shards.iter().map(|one| one.shard.engine.phases()).reduce(Phases::or)
    }

    fn at_risk(&self) -> AtRisk {
        let all = self.shards.iter().map(|one| one.shard.engine.at_risk());
        all.fold(AtRisk::default(), std::ops::Add::add)
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        let all = self.shards.iter().zip(names);
        all.flat_map(|(one, name)| one.shard.engine.settled_blocks(*name)).collect()
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        self.shards.iter().zip(names).any(|(one, name)| one.shard.engine.holds(*name, block))
    }

    fn check_invariants(&self) {
        self.shards.iter().for_each(|one| one.shard.engine.check_invariants());
    }

    fn shards(&self) -> u32 {
        self.router.map().shards()
    }

    fn route(&mut self, now: Instant, events: &mut Vec<Event<P>>, actions: &mut Vec<Action<P>>) {
        for event in events.drain(..) {
            if let Event::Wake = event {
                self.wake(now, actions);
                continue;
            }
            let mut to = |routed: Routed<P>| {
                self.shards[routed.shard as usize].shard.events.push(routed.event);
            };
            let reply = self.router.route(event, &mut to);
            actions.extend(reply.map(Action::Reply));
        }
    }

    fn has_events(&self, shard: u32) -> bool {
        !self.shards[shard as usize].shard.events.is_empty()
    }

    fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        let Unheard { shard, said } = &mut self.shards[shard as usize];
        shard.apply(now, &mut Doors { actions, said });
        self.share_loss();
    }

    fn has_said(&self, shard: u32) -> bool {
        !self.shards[shard as usize].said.is_empty()
    }

    fn hear(&mut self, shard: u32, actions: &mut Vec<Action<P>>) {
        for reply in std::mem::take(&mut self.shards[shard as usize].said) {
            if reply.id == OWN_COMMAND {
                continue;
            }
            let mut to = |routed: Routed<P>| {
                self.shards[routed.shard as usize].shard.events.push(routed.event);
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
                let Unheard { shard, said } = &mut self.shards[shard as usize];
                shard.bind(inner, Binding::Volume(volume), &mut Doors { actions, said });
            }
        }
    }

    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        let shards = 0..self.router.map().shards();
        shards.filter_map(|shard| self.router.inner(volume, shard)).collect()
    }

    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        let all = self.shards.iter().zip(names);
        let each = all.map(|(one, name)| one.shard.engine.volume_counters(*name));
        each.collect::<Option<Vec<_>>>().map(VolumeCounters::of_shards)
    }

    fn split_requests(&self) -> u64 {
        self.router.split_requests()
    }
}
