//! A router and its engines behind the seam of a single engine.
//!
//! For drivers with one thread, and for the simulator, which may also let each shard take its own
//! turn ([`Sharded::route`], [`Sharded::turn`]) as a driver with several threads does.

use super::{Losses, OWN_COMMAND, Owner, Routed, Router, ShardMap, name_io};
use crate::Config;
use crate::Engine;
use crate::counters::{CacheCounters, RamBytes, VolumeCounters};
use crate::health::Health;
use crate::metadata::superblock::Superblock;
use crate::units::{Instant, VolumeId};
use crate::volume::Recorded;
use crate::{Action, Answer, Command, Event, IoDone, IoError, IoRequest, Payload, Target};

struct Shard<P> {
    engine: Engine<P>,
    inbox: Vec<Event<P>>,
    wake: Option<Instant>,
}

/// See the module.
pub struct Sharded<P> {
    router: Router<P>,
    shards: Vec<Shard<P>>,
    losses: Losses,
    /// I/O of volumes that their driver does not know yet.
    early: Vec<(u32, IoRequest<P>)>,
    /// Empty between two turns.
    said: Vec<Action<P>>,
}

impl<P: Payload> Sharded<P> {
    /// Engines over a device whose regions have these superblocks, in order.
    ///
    /// # Panics
    /// If there is not one for each shard.
    pub fn new(config: Config, superblocks: Vec<Superblock>) -> Self {
        let map = ShardMap::of(&superblocks[0].geometry);
        assert_eq!(superblocks.len(), map.shards() as usize, "a superblock for each shard");
        let engines = superblocks.into_iter().map(|superblock| Engine::new(config, superblock));
        Self::of(Router::new(map, &config), engines.collect())
    }

    /// Engines without a device: requests pass through. A device that comes later
    /// ([`Command::Replace`]) has as many shards as this map.
    pub fn without_device(config: Config, map: ShardMap) -> Self {
        let engines = (0..map.shards()).map(|_| Engine::without_device(config));
        Self::of(Router::new(map, &config), engines.collect())
    }

    fn of(router: Router<P>, engines: Vec<Engine<P>>) -> Self {
        assert_eq!(engines.len(), router.map().shards() as usize, "an engine for each shard");
        let new = |engine| Shard { engine, inbox: Vec::new(), wake: None };
        let shards = engines.into_iter().map(new).collect();
        let losses = Losses::new(router.map());
        Self { router, shards, losses, early: Vec::new(), said: Vec::new() }
    }

    /// As [`Engine::apply`].
    ///
    /// # Panics
    /// As there.
    pub fn apply(
        &mut self,
        now: Instant,
        events: &mut Vec<Event<P>>,
        actions: &mut Vec<Action<P>>,
    ) {
        self.route(now, events, actions);
        while let Some(shard) = self.shards.iter().position(|shard| !shard.inbox.is_empty()) {
            self.turn(shard as u32, now, actions);
        }
    }

    /// Sorts events into the shards' inboxes; answers what needs no shard.
    pub fn route(
        &mut self,
        now: Instant,
        events: &mut Vec<Event<P>>,
        actions: &mut Vec<Action<P>>,
    ) {
        let mut late = Vec::new();
        let mut events = events.drain(..).peekable();
        while let Some(event) = events.next() {
            if let Event::Wake = event {
                self.wake(now, actions);
                continue;
            }
            let shards = &mut self.shards;
            let mut to = |routed: Routed<P>| shards[routed.shard as usize].inbox.push(routed.event);
            if let Event::Late(id) = event {
                late.push(id);
                if !matches!(events.peek(), Some(Event::Late(_))) {
                    let replies = self.router.all_late(std::mem::take(&mut late), &mut to);
                    actions.extend(replies.into_iter().map(Action::Reply));
                }
                continue;
            }
            let reply = self.router.route(event, &mut to);
            actions.extend(reply.map(Action::Reply));
        }
    }

    /// Wakes the shards whose time has come; the others' is asked for again.
    fn wake(&mut self, now: Instant, actions: &mut Vec<Action<P>>) {
        for shard in &mut self.shards {
            match shard.wake {
                Some(at) if at <= now => {
                    shard.wake = None;
                    shard.inbox.push(Event::Wake);
                }
                Some(at) => actions.push(Action::WakeAt(at)),
                None => {}
            }
        }
    }

    /// Whether a shard has something to do.
    pub fn has_events(&self, shard: u32) -> bool {
        !self.shards[shard as usize].inbox.is_empty()
    }

    /// Lets one shard take what is in its inbox.
    ///
    /// # Panics
    /// As [`Engine::apply`].
    pub fn turn(&mut self, shard: u32, now: Instant, actions: &mut Vec<Action<P>>) {
        let mut said = std::mem::take(&mut self.said);
        let own = &mut self.shards[shard as usize];
        own.engine.apply(now, &mut own.inbox, &mut said);
        for action in said.drain(..) {
            match action {
                Action::Io(request) => self.io(shard, request, actions),
                Action::Reply(reply) if reply.id == OWN_COMMAND => {}
                Action::Reply(reply) => {
                    let attached = matches!(reply.result, Ok(Answer::Attached { .. }) | Err(_));
                    let shards = &mut self.shards;
                    let mut to = |r: Routed<P>| shards[r.shard as usize].inbox.push(r.event);
                    let reply = self.router.reply(shard, reply, &mut to);
                    actions.extend(reply.map(Action::Reply));
                    if attached && !self.early.is_empty() {
                        for (shard, request) in std::mem::take(&mut self.early) {
                            self.io(shard, request, actions);
                        }
                    }
                }
                Action::WakeAt(at) => {
                    let wake = &mut self.shards[shard as usize].wake;
                    *wake = Some(wake.map_or(at, |wake| wake.min(at)));
                    actions.push(Action::WakeAt(at));
                }
            }
        }
        self.said = said;
        self.share_loss();
    }

    /// An I/O of a shard's as one of the whole.
    fn io(&mut self, shard: u32, request: IoRequest<P>, actions: &mut Vec<Action<P>>) {
        let IoRequest { id, target, mut op } = request;
        let target = match target {
            Target::Cache => {
                // Asked each time: another device may have another place for the region.
                op.shift(self.shards[shard as usize].engine.superblock().region_start());
                target
            }
            Target::Backend(inner) => match self.router.owner(shard, inner) {
                Owner::Volume(volume) => Target::Backend(volume),
                Owner::NotYet => return self.early.push((shard, IoRequest { id, target, op })),
                Owner::None => {
                    let failed = Event::IoDone(IoDone::new(id, Err(IoError::Io)));
                    return self.shards[shard as usize].inbox.push(failed);
                }
            },
        };
        let id = name_io(shard, id);
        actions.push(Action::Io(IoRequest { id, target, op }));
    }

    /// What one shard can't record on the device, no shard may rely on.
    fn share_loss(&mut self) {
        let health = self.shards.iter().map(|shard| shard.engine.health());
        for shard in self.losses.notice(health) {
            let event = Event::Control(OWN_COMMAND, Command::Abandon);
            self.shards[shard as usize].inbox.push(event);
        }
    }

    /// As [`Engine::recorded`], of each shard that knows the volume.
    pub fn recorded(&self, name: &str) -> Vec<Recorded> {
        self.shards.iter().filter_map(|shard| shard.engine.recorded(name)).collect()
    }

    /// How the cache is: as the shard that is worst off.
    pub fn health(&self) -> Health {
        Health::of_all(self.shards.iter().map(|shard| shard.engine.health()))
    }

    /// Counters of all shards together.
    pub fn cache_counters(&self) -> CacheCounters {
        self.shards.iter().map(|shard| shard.engine.cache_counters()).sum()
    }

    /// Counters of a volume in all shards together.
    pub fn volume_counters(&self, volume: VolumeId) -> Option<VolumeCounters> {
        let inner = |shard| self.router.inner(volume, shard);
        let of = |(shard, own): (u32, &Shard<P>)| own.engine.volume_counters(inner(shard)?);
        let each: Option<Vec<_>> = (0..).zip(&self.shards).map(of).collect();
        each.map(VolumeCounters::of_shards)
    }

    /// RAM held, by part.
    pub fn ram_bytes(&self) -> RamBytes {
        self.shards.iter().map(|shard| shard.engine.ram_bytes()).sum()
    }

    /// As [`Engine::tables`].
    pub fn tables(&self) -> Vec<(*const u8, usize)> {
        self.shards.iter().flat_map(|shard| shard.engine.tables()).collect()
    }

    /// Requests under way in shards, parts counted apart, and I/Os under way.
    pub fn in_flight(&self) -> (usize, usize) {
        let each = self.shards.iter().map(|shard| shard.engine.in_flight());
        each.fold((0, self.early.len()), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub const fn router(&self) -> &Router<P> {
        &self.router
    }

    /// The engines, in the order of their shards.
    pub fn engines(&self) -> impl Iterator<Item = &Engine<P>> {
        self.shards.iter().map(|shard| &shard.engine)
    }
}
