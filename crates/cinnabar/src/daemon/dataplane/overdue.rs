//! Operations that take too long: on a backend, guests are answered, and the operation is waited for
//! on; on the cache device, that is given up, for every write that needs a mark would hang with it.
//!
//! Called by the loop. One look at all I/Os under way, at the moment the first of them is due: under
//! a steady load that is once a time-out, and nothing is kept for each I/O but its own deadline.

use super::clock::after;
use super::control::Awaited;
use super::io::Owner;
use super::plane::{Plane, Pool};
use cinnabar_backend::work::What;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Command, Event};
use cinnabar_frontend::nbd::Body;

impl Plane {
    /// Until when an operation that starts now must be done; `None` is the cache device.
    pub(super) fn deadline_of(&mut self, now: Instant, volume: Option<usize>) -> Option<Instant> {
        let bound = match volume {
            Some(key) => self.volumes[key].config.backend_timeout,
            None => self.cache.timeout,
        };
        if bound.is_zero() {
            return None;
        }
        let deadline = after(now, bound);
        let next = self.next_overdue.map_or(deadline, |next| next.min(deadline));
        self.next_overdue = Some(next);
        Some(deadline)
    }

    /// Tells the engine of what is due and not done. It answers whoever waits.
    pub(super) fn tell_overdue(&mut self, now: Instant) {
        if self.next_overdue.is_none_or(|next| next > now) {
            return;
        }
        self.next_overdue = None;
        let mut due = Vec::new();
        for (key, io) in &mut self.ios {
            match io.deadline {
                Some(deadline) if deadline <= now => due.push(key),
                Some(deadline) => {
                    let next = self.next_overdue.map_or(deadline, |next| next.min(deadline));
                    self.next_overdue = Some(next);
                }
                None => {}
            }
        }
        for key in due {
            self.overdue(now, key);
        }
    }

    fn overdue(&mut self, now: Instant, key: usize) {
        let io = &mut self.ios[key];
        io.deadline = None;
        io.overdue = true;
        let (owner, what, volume) = (io.owner, io.what, io.volume);
        if volume.is_none() {
            return self.give_up_hanging_device(what);
        }
        match owner {
            Owner::Engine(id) => self.events.push(Event::Overdue(id)),
            Owner::BlockStatus(ticket) => {
                io.owner = Owner::Nobody;
                // Where it can't be told, everything counts as data.
                self.server.reply(ticket, Ok(Body::Done), &mut Pool);
            }
            Owner::Nobody => {}
        }
        let Some(volume) = volume.map(|key| &mut self.volumes[key]) else { return };
        volume.overdue_now += 1;
        let (name, bound_s) = (&volume.config.name, volume.config.backend_timeout.as_secs_f64());
        if self.warnings.allow(now) {
            tracing::warn!(
                volume = name,
                operation = what.name,
                offset = what.offset,
                len = what.len,
                bound_s,
                "the backend takes too long; the guest is told that it failed"
            );
        }
    }

    /// What is under way on it ends when it ends; nothing new is begun.
    fn give_up_hanging_device(&mut self, what: What) {
        if self.cache.hangs || self.stop.is_some() {
            return;
        }
        self.cache.hangs = true;
        tracing::error!(
            path = %self.cache.path.display(), operation = what.name, offset = what.offset,
            len = what.len, bound_s = self.cache.timeout.as_secs_f64(),
            "the cache device does not answer and is given up"
        );
        self.command(Awaited::Abandon(None), Command::Abandon);
    }

    /// An operation that was overdue has ended after all.
    pub(super) fn no_longer_overdue(&mut self, now: Instant, key: usize) {
        let io = &self.ios[key];
        let took_s = now.since_ns(io.started) as f64 / 1e9;
        let Some(volume) = io.volume.map(|key| &mut self.volumes[key]) else { return };
        volume.overdue_now -= 1;
        if volume.overdue_now == 0 {
            tracing::info!(volume = volume.config.name, took_s, "the backend answers again");
        }
    }
}
