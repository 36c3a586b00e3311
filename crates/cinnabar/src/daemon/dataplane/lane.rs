//! What one data thread does beside talking: its engines and its desk.

use super::clock::Clock;
use super::desk::{Desk, Told};
use super::idle::Idle;
use super::unit::Unit;
use cinnabar_backend::Memory;
use cinnabar_backend::port::{Port, PortEvent};
use cinnabar_engine::units::{ByteSpan, Instant};
use cinnabar_engine::{Event, Reply};
use std::time::Duration;

/// See the module.
pub(super) struct Lane {
    pub(super) clock: Clock,
    pub(super) desk: Desk,
    pub(super) units: Vec<Unit>,
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
        Self { clock, desk, units: Vec::new(), idle: Idle::new(poll_max) }
    }

    /// The engine of a shard that is served here.
    pub(super) fn unit(&mut self, shard: u32) -> &mut Unit {
        let mut units = self.units.iter_mut();
        units.find(|unit| unit.shard == shard).expect("events go to the thread of their shard")
    }

    /// The same, with the desk.
    pub(super) fn unit_and_desk(&mut self, shard: u32) -> (&mut Unit, &mut Desk) {
        let mut units = self.units.iter_mut();
        let unit = units.find(|unit| unit.shard == shard);
        (unit.expect("a shard that is served here"), &mut self.desk)
    }

    /// Lets go of all engines, and of what was for them.
    pub(super) fn unseat(&mut self) {
        self.units.clear();
        self.desk.told.clear();
    }

    /// When something is due here; at once if an engine has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.units.iter().any(|unit| !unit.events.is_empty()) || !self.desk.told.is_empty() {
            return Some(Instant::default());
        }
        let wakes = self.units.iter().filter_map(|unit| unit.wake);
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
        self.units.iter_mut().for_each(|unit| unit.drop_lost(key, ranges));
    }

    /// Takes note of the time.
    pub(super) fn look_at_time(&mut self, now: Instant) {
        self.desk.look_at_time(now);
        self.units.iter_mut().for_each(|unit| unit.look_at_time(now));
    }

    /// Lets the engines take what there is, until there is nothing; gives what is for others.
    pub(super) fn apply(&mut self, now: Instant, said: &mut Vec<Said>) {
        loop {
            let mut told = std::mem::take(&mut self.desk.told);
            for one in told.drain(..) {
                match one {
                    Told::Done(shard, done) => self.unit(shard).events.push(Event::IoDone(done)),
                    Told::Overdue(shard, id) => self.unit(shard).events.push(Event::Overdue(id)),
                    other => said.push(Said::Told(other)),
                }
            }
            if self.desk.told.is_empty() {
                self.desk.told = told;
            }
            let Self { units, desk, clock, .. } = self;
            let mut quiet = true;
            for unit in units.iter_mut().filter(|unit| !unit.events.is_empty()) {
                quiet = false;
                let shard = unit.shard;
                unit.apply(now, *clock, desk, |reply| said.push(Said::Reply(shard, reply)));
            }
            if quiet {
                return;
            }
        }
    }

    /// What the port is called.
    pub(super) fn port(&mut self) -> &mut dyn Port {
        &mut **self.desk.port
    }

    /// Lets go of everything.
    pub(super) fn end(self) {
        drop(self.units);
        self.desk.end();
    }
}
