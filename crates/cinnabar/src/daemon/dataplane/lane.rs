//! What one data thread does beside talking: its engines and its desk.

use super::clock::Clock;
use super::desk::{Desk, ShardDoors, Told};
use super::idle::Idle;
use cinnabar_backend::Memory;
use cinnabar_backend::port::{Port, PortEvent};
use cinnabar_driver::{Binding, Shard};
use cinnabar_engine::units::{ByteSpan, Instant, VolumeId};
use cinnabar_engine::{Event, Reply};
use std::time::Duration;

/// See the module.
pub(super) struct Lane {
    pub(super) clock: Clock,
    pub(super) desk: Desk,
    pub(super) shards: Vec<Shard<Memory, usize>>,
    idle: Idle,
}

/// What is for others to hear.
pub(super) enum Said {
    /// An engine has answered.
    Reply(u32, Reply<Memory>),
    /// The desk can't settle it.
    Told(Told),
}

impl Lane {
    pub(super) fn new(clock: Clock, desk: Desk, poll_max: Duration) -> Self {
        Self { clock, desk, shards: Vec::new(), idle: Idle::new(poll_max) }
    }

    /// A shard that is served here.
    pub(super) fn shard(&mut self, number: u32) -> &mut Shard<Memory, usize> {
        shard_of(&mut self.shards, number)
    }

    /// The engine's I/O to a volume of its own goes to the plane's volume `key`.
    pub(super) fn bind(&mut self, now: Instant, number: u32, volume: VolumeId, key: usize) {
        let mut said = Vec::new();
        let Self { shards, desk, clock, .. } = self;
        let mut doors = ShardDoors { now, clock: *clock, desk, said: &mut said };
        shard_of(shards, number).bind(volume, Binding::Volume(key), &mut doors);
        debug_assert!(said.is_empty(), "only the engine answers");
    }

    /// Lets go of all engines, and of what was for them.
    pub(super) fn unseat(&mut self) {
        self.shards.clear();
        self.desk.told.clear();
    }

    /// When something is due here; at once if an engine has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.shards.iter().any(|shard| !shard.events.is_empty()) || !self.desk.told.is_empty() {
            return Some(Instant::default());
        }
        let wakes = self.shards.iter().filter_map(|shard| shard.wake);
        wakes.chain(self.desk.deadline()).min()
    }

    /// Waits for whatever comes first: the port, what `others` looks for while this thread does not
    /// sleep, or the time. `sleeps` is called before it does, and may say that it must not.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        others: impl FnMut(Instant) -> bool,
        sleeps: impl FnOnce() -> bool,
        events: &mut Vec<PortEvent>,
    ) -> rustix::io::Result<()> {
        let Self { idle, desk, clock, .. } = self;
        idle.wait(*clock, &mut **desk.port, until, others, sleeps, events)
    }

    /// Whether the next wait begins with looking.
    pub(super) fn looks(&self) -> bool {
        self.idle.looks()
    }

    /// The server of the volume of this key may have lost these ranges: what the engines here have of
    /// them goes before they hear of anything that the server has done since.
    pub(super) fn drop_lost(&mut self, key: usize, ranges: &[ByteSpan]) {
        self.shards.iter_mut().for_each(|shard| shard.drop_lost(key, ranges));
    }

    /// Takes note of the time, after everything that the port brought. The engines hear of that
    /// before they are told of a request that its time is over: a process that was stopped for longer
    /// has answers for its guests.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        self.desk.look_at_time(now);
        let mut rest = Vec::new();
        self.deliver(|told| rest.push(told));
        self.desk.told.append(&mut rest);
        self.shards.iter_mut().for_each(|shard| shard.look_at_time(now));
    }

    /// Lets the engines take what there is, until there is nothing; gives what is for others.
    pub(super) fn apply(&mut self, now: Instant, said: &mut Vec<Said>) {
        loop {
            self.deliver(|told| said.push(Said::Told(told)));
            let Self { shards, desk, clock, .. } = self;
            let mut quiet = true;
            for shard in shards.iter_mut().filter(|shard| !shard.events.is_empty()) {
                quiet = false;
                shard.apply(now, &mut ShardDoors { now, clock: *clock, desk, said });
            }
            if quiet {
                return;
            }
        }
    }

    /// Gives the engines what the desk has for them, and the rest to `others`.
    fn deliver(&mut self, mut others: impl FnMut(Told)) {
        let mut told = std::mem::take(&mut self.desk.told);
        for one in told.drain(..) {
            match one {
                Told::Done(shard, done) => self.shard(shard).events.push(Event::IoDone(done)),
                Told::Overdue(shard, id) => self.shard(shard).events.push(Event::Overdue(id)),
                other => others(other),
            }
        }
        self.desk.told = told;
    }

    /// What the port is called.
    pub(super) fn port(&mut self) -> &mut dyn Port {
        &mut **self.desk.port
    }

    /// Lets go of everything.
    pub(super) fn end(self) {
        drop(self.shards);
        self.desk.end();
    }
}

fn shard_of(shards: &mut [Shard<Memory, usize>], number: u32) -> &mut Shard<Memory, usize> {
    let found = shards.iter_mut().find(|shard| shard.number == number);
    found.expect("what is for a shard goes to its thread")
}
