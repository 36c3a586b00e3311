//! Engines on threads of their own, as the daemon drives them: what a shard answers is heard by the
//! router some time later, and whose an engine's I/O is each shard knows for itself.
//!
//! The router is the production one; what is here stands for the daemon's workers
//! (`dataplane/{crew,worker,unit}`).

use crate::machine::Machine;
use cinnabar_engine::counters::{CacheCounters, VolumeCounters};
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::shards::{Losses, OWN_COMMAND, Routed, Router, ShardMap, name_io};
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_engine::volume::Recorded;
use cinnabar_engine::{
    Action, Answer, AtRisk, Command, Config, Crossings, Engine, Event, IoDone, IoError, IoId, IoOp,
    IoRequest, Payload, Phases, Reply, RequestId, Target,
};

/// Whose a volume is that an engine has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Volume(VolumeId),
    /// Another shard refused it: its I/O fails.
    Nobodys,
}

/// A command that may end a volume: its name is free with the answer.
struct Ending {
    id: RequestId,
    volume: VolumeId,
    /// A seal ends it in any case, a detach only when it fails.
    seal: bool,
}

struct Unit<P> {
    engine: Engine<P>,
    inbox: Vec<Event<P>>,
    wake: Option<Instant>,
    /// By the engine's names.
    volumes: Vec<Option<Whose>>,
    /// I/O of volumes that nobody has bound yet.
    early: Vec<(VolumeId, IoId, IoOp<P>)>,
    endings: Vec<Ending>,
    /// Answers that the router has not heard.
    said: Vec<Reply<P>>,
}

/// See the module.
pub struct Threaded<P> {
    router: Router<P>,
    units: Vec<Unit<P>>,
    losses: Losses,
}

impl<P: Payload> Threaded<P> {
    /// Engines over a device whose regions have these superblocks, in order.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(config: Config, superblocks: Vec<Superblock>) -> Self {
        let map = ShardMap::of(&superblocks[0].geometry);
        let unit = |superblock| Unit {
            engine: Engine::new(config, superblock),
            inbox: Vec::new(),
            wake: None,
            volumes: Vec::new(),
            early: Vec::new(),
            endings: Vec::new(),
            said: Vec::new(),
        };
        let units = superblocks.into_iter().map(unit).collect();
        let losses = Losses::new(&map);
        Self { router: Router::new(map, &config), units, losses }
    }

    /// Wakes the engines whose time has come; the others' is asked for again.
    fn wake(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        for unit in &mut self.units {
            match unit.wake {
                Some(at) if at <= now => {
                    unit.wake = None;
                    unit.inbox.push(Event::Wake);
                }
                Some(at) => actions.push(Action::WakeAt(at)),
                None => {}
            }
        }
    }

    /// What one shard can't record on the device, no shard may rely on.
    fn share_loss(&mut self) {
        let health = self.units.iter().map(|unit| unit.engine.health());
        for shard in self.losses.notice(health) {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            self.units[shard as usize].inbox.push(event);
        }
    }
}

impl<P: Payload> Unit<P> {
    fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        self.watch_for_endings(shard, actions);
        let mut own = Vec::new();
        self.engine.apply(now, &mut self.inbox, &mut own);
        for action in own {
            match action {
                Action::Io(IoRequest { id, target, mut op }) => match target {
                    Target::Cache => {
                        op.shift(self.engine.superblock().region_start());
                        actions.push(Action::Io(IoRequest { id: name_io(shard, id), target, op }));
                    }
                    Target::Backend(inner) => self.on_backend(shard, inner, id, op, actions),
                },
                Action::Reply(reply) => {
                    self.end_volume(&reply);
                    self.said.push(reply);
                }
                Action::WakeAt(at) => {
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                    actions.push(Action::WakeAt(at));
                }
                Action::Sample(_) => {}
            }
        }
    }

    fn on_backend(
        &mut self,
        shard: u32,
        inner: VolumeId,
        id: IoId,
        op: IoOp<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        match self.volumes.get(usize::from(inner.0)).copied().flatten() {
            Some(Whose::Volume(volume)) => {
                let target = Target::Backend(volume);
                actions.push(Action::Io(IoRequest { id: name_io(shard, id), target, op }));
            }
            Some(Whose::Nobodys) => {
                self.inbox.push(Event::IoDone(IoDone::new(id, Err(IoError::Io))));
            }
            None => self.early.push((inner, id, op)),
        }
    }

    fn bind(&mut self, shard: u32, inner: VolumeId, whose: Whose, actions: &mut Vec<Action<P>>) {
        let place = usize::from(inner.0);
        if self.volumes.len() <= place {
            self.volumes.resize(place + 1, None);
        }
        self.volumes[place] = Some(whose);
        for (volume, id, op) in std::mem::take(&mut self.early) {
            self.on_backend(shard, volume, id, op, actions);
        }
    }

    /// A volume that is to be detached before anybody bound it is one that another shard refused.
    fn watch_for_endings(&mut self, shard: u32, actions: &mut Vec<Action<P>>) {
        let ending = |event: &Event<P>| match *event {
            Event::Control(id, Command::Detach(volume)) => Some(Ending { id, volume, seal: false }),
            Event::Control(id, Command::Seal(volume, _)) => Some(Ending { id, volume, seal: true }),
            _ => None,
        };
        let endings: Vec<Ending> = self.inbox.iter().filter_map(ending).collect();
        for ending in endings {
            if self.volumes.get(usize::from(ending.volume.0)).copied().flatten().is_none() {
                self.bind(shard, ending.volume, Whose::Nobodys, actions);
            }
            self.endings.push(ending);
        }
    }

    /// The engine may give the name to another volume now.
    fn end_volume(&mut self, reply: &Reply<P>) {
        if let Some(at) = self.endings.iter().position(|ending| ending.id == reply.id) {
            let Ending { volume, seal, .. } = self.endings.swap_remove(at);
            if seal || reply.result.is_err() {
                self.volumes[usize::from(volume.0)] = None;
            }
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
        self.units.iter().map(|unit| unit.engine.cache_counters()).sum()
    }

    fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let names = self.names(volume);
        (names.len() == self.units.len()).then(|| self.counters_of(&names))?
    }

    fn recorded(&self, name: &str) -> Vec<Recorded> {
        self.units.iter().filter_map(|unit| unit.engine.recorded(name)).collect()
    }

    fn health(&self) -> Health {
        Health::of_all(self.units.iter().map(|unit| unit.engine.health()))
    }

    fn crossings(&self) -> Crossings {
        let all = self.router.crossings().clone();
        self.units.iter().for_each(|unit| all.add(&unit.engine.crossings()));
        all
    }

    fn phases(&self) -> Option<Phases> {
        self.units.iter().map(|unit| unit.engine.phases()).reduce(Phases::or)
    }

    fn at_risk(&self) -> AtRisk {
        let all = self.units.iter().map(|unit| unit.engine.at_risk());
        all.fold(AtRisk::default(), std::ops::Add::add)
    }

    fn settled_blocks(&self, names: &[VolumeId]) -> Vec<(u64, u64)> {
        let all = self.units.iter().zip(names);
        all.flat_map(|(unit, name)| unit.engine.settled_blocks(*name)).collect()
    }

    fn holds(&self, names: &[VolumeId], block: u64) -> bool {
        self.units.iter().zip(names).any(|(unit, name)| unit.engine.holds(*name, block))
    }

    fn check_invariants(&self) {
        self.units.iter().for_each(|unit| unit.engine.check_invariants());
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
            let units = &mut self.units;
            let mut to = |routed: Routed<P>| units[routed.shard as usize].inbox.push(routed.event);
            let reply = self.router.route(event, &mut to);
            actions.extend(reply.map(Action::Reply));
        }
    }

    fn has_events(&self, shard: u32) -> bool {
        !self.units[shard as usize].inbox.is_empty()
    }

    fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        self.units[shard as usize].turn(shard, now, actions);
        self.share_loss();
    }

    fn has_said(&self, shard: u32) -> bool {
        !self.units[shard as usize].said.is_empty()
    }

    fn hear(&mut self, shard: u32, actions: &mut Vec<Action<P>>) {
        for reply in std::mem::take(&mut self.units[shard as usize].said) {
            if reply.id == OWN_COMMAND {
                continue;
            }
            let units = &mut self.units;
            let mut to = |routed: Routed<P>| units[routed.shard as usize].inbox.push(routed.event);
            let Some(reply) = self.router.reply(shard, reply, &mut to) else { continue };
            let attached = match &reply.result {
                Ok(Answer::Attached { volume, .. }) => Some(*volume),
                _ => None,
            };
            actions.push(Action::Reply(reply));
            let Some(volume) = attached else { continue };
            for shard in 0..self.router.map().shards() {
                let inner = self.router.inner(volume, shard).expect("every shard has it");
                let whose = Whose::Volume(volume);
                self.units[shard as usize].bind(shard, inner, whose, actions);
            }
        }
    }

    fn names(&self, volume: VolumeId) -> Vec<VolumeId> {
        let shards = 0..self.router.map().shards();
        shards.filter_map(|shard| self.router.inner(volume, shard)).collect()
    }

    fn counters_of(&self, names: &[VolumeId]) -> Option<VolumeCounters> {
        let all = self.units.iter().zip(names);
        let each = all.map(|(unit, name)| unit.engine.volume_counters(*name));
        each.collect::<Option<Vec<_>>>().map(VolumeCounters::of_shards)
    }

    fn split_requests(&self) -> u64 {
        self.router.split_requests()
    }
}
