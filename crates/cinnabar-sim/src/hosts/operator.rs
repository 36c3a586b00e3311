//! The operator and fate: guests that move or are started elsewhere, hosts that are taken for dead, and what
//! goes wrong when.

use crate::hosts::HostFault;
use crate::hosts::aims;
use crate::hosts::profile::Storage;
use crate::hosts::requests::Wish;
use crate::hosts::world::{Item, World};
use crate::violation::Violation;
use cinnabar_driver::ownership::{Event, Role};
use cinnabar_engine::RequestId;

/// What goes on beside guests' requests.
#[derive(Debug)]
pub(super) struct Fate {
    /// So much may still go wrong.
    pub(super) acts: u64,
    /// The operator wants the volume there.
    pub(super) taker: Option<usize>,
    /// The guest is about to move there.
    pub(super) moving: Option<usize>,
    /// The last flush before that, and whether it was good.
    flush: Option<(RequestId, Option<bool>)>,
    pub(super) over: bool,
}

impl Fate {
    pub(super) const fn new(acts: u64) -> Self {
        Self { acts, taker: None, moving: None, flush: None, over: false }
    }

    /// A request has ended.
    pub(super) fn answered(&mut self, id: RequestId, good: bool) {
        if let Some((flush, result)) = &mut self.flush
            && *flush == id
        {
            *result = Some(good);
        }
    }
}

impl World {
    fn is_frozen(&self, host: usize) -> bool {
        self.hosts[host].frozen.is_some_and(|until| until > self.now)
    }

    pub(super) fn works(&self, host: usize) -> bool {
        self.hosts[host].up && !self.is_frozen(host) && self.cut_until(host).is_none()
    }

    /// The operator looks after the guest; something may go wrong.
    pub(super) fn operate(&mut self) -> Result<(), Violation> {
        if self.fate.over {
            return Ok(());
        }
        self.soon(self.profile.act_ns_max, Item::Operate);
        self.look_after_guest()?;
        if self.fate.acts == 0 {
            return Ok(());
        }
        self.fate.acts -= 1;
        let host = self.rng.below(2) as usize;
        let act = match self.profile.favours {
            [] => self.rng.below(12),
            some if self.rng.chance(0.5) => self.rng.pick(some),
            _ => self.rng.below(12),
        };
        match act {
            aims::MOVE..=3 => self.begin_to_move(),
            aims::TAKE => self.take(host)?,
            5 => self.read_early()?,
            6 | 7 if self.profile.freezes => self.freeze(host),
            aims::CRASH if self.profile.crashes && self.hosts[host].up => {
                let power = self.rng.chance(0.5);
                self.crash(host, power);
            }
            9 if self.profile.outages => self.outage()?,
            10 if self.judge.zombies[host].is_some() => self.crash(host, false),
            aims::CUT if self.profile.cuts => self.cut_off(host),
            _ => {}
        }
        Ok(())
    }

    fn look_after_guest(&mut self) -> Result<(), Violation> {
        let client = &self.clients[self.guest];
        let (host, run) = (client.host, client.run);
        let other = 1 - host;
        if !self.hosts[host].up || self.hosts[host].run != run || client.shut_out {
            self.fate.moving = None;
            let here = self.works(host) && (!self.works(other) || self.rng.chance(0.5));
            if here {
                self.guest = self.begin_guest(host);
            } else if self.works(other) {
                self.happened(HostFault::FailedOver);
                self.guest = self.begin_guest(other);
            }
            return Ok(());
        }
        if !self.works(host) {
            if self.works(other) && self.rng.chance(self.profile.fails_over) {
                self.happened(HostFault::FailedOver);
                self.fate.moving = None;
                self.guest = self.begin_guest(other);
                if self.profile.cuts && self.rng.chance(0.5) {
                    return self.rule(other, Event::Force);
                }
            }
            return Ok(());
        }
        self.move_on(host)?;
        let waits = !self.hosts[host].waiting.is_empty() && self.works(host);
        let standby = matches!(self.hosts[host].own.role(), Role::Standby | Role::Taking);
        if waits && standby && !self.works(other) {
            self.vouch(host)?;
        }
        let ends = self.judge.zombies[other].is_some() || waits && self.is_stuck(other);
        if ends && self.works(other) && self.rng.chance(0.05) {
            self.crash(other, false);
        }
        Ok(())
    }

    /// The other host does not answer, and the volume is wanted here.
    fn vouch(&mut self, host: usize) -> Result<(), Violation> {
        let other = 1 - host;
        if self.profile.storage == Storage::Rbd {
            // The lock fences, whether that is true or not.
            let force = self.profile.cuts && self.rng.chance(0.3);
            return if force { self.rule(host, Event::Force) } else { Ok(()) };
        }
        if self.hosts[other].up && !self.profile.rash {
            if self.rng.chance(0.3) {
                self.crash(other, true);
            }
            return Ok(());
        }
        // What the dead host has sent has landed by then, if the operator waits.
        let landing = self.flights.values().any(|flight| flight.dead);
        if landing && !self.profile.rash {
            return Ok(());
        }
        self.note(|| format!("the operator vouches that host {other} is dead"));
        self.rule(host, Event::Force)
    }

    /// The guest is to move with its memory.
    fn begin_to_move(&mut self) {
        let host = self.clients[self.guest].host;
        if self.fate.moving.is_none() && self.works(host) && self.works(1 - host) {
            self.clients[self.guest].stopped = true;
            // QEMU flushes an NBD disk before, and no other.
            let flushed = self.rng.chance(0.5).then_some((RequestId(0), Some(true)));
            (self.fate.moving, self.fate.flush) = (Some(1 - host), flushed);
        }
    }

    /// It is stopped, all that it has asked for is answered, and its last flush, if there is one, was good:
    /// then it goes on over there.
    fn move_on(&mut self, host: usize) -> Result<(), Violation> {
        let Some(to) = self.fate.moving else { return Ok(()) };
        if self.clients[self.guest].waits_for > 0 {
            return Ok(());
        }
        match self.fate.flush {
            None => {
                let id = self.register(host, None, Wish::Flush);
                self.fate.flush = Some((id, None));
                self.admit(host, id)
            }
            Some((_, None)) => Ok(()),
            Some((_, Some(good))) => {
                self.fate.moving = None;
                let to = if good && self.works(to) { to } else { host };
                if to != host {
                    self.note(|| format!("the guest moves to host {to}"));
                    self.happened(HostFault::Moved);
                }
                self.guest = self.begin_guest(to);
                if to != host && self.rng.chance(0.5) { self.take(to) } else { Ok(()) }
            }
        }
    }

    /// The operator wants the volume on a host.
    pub(super) fn take(&mut self, host: usize) -> Result<(), Violation> {
        if self.works(host) { self.rule(host, Event::Want) } else { Ok(()) }
    }

    /// The destination looks at the disk before the guest is there.
    fn read_early(&mut self) -> Result<(), Violation> {
        let host = 1 - self.clients[self.guest].host;
        if !self.works(host) {
            return Ok(());
        }
        let sectors = self.image.backend.sectors();
        let first = self.rng.below(sectors);
        let count = self.rng.within(1..1 + (sectors - first).min(32));
        self.submit(host, None, Wish::Read(first..first + count))
    }
}
