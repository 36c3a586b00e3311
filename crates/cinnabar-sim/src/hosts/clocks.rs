//! Each host's own clock, and what is counted by it: for how long an owner serves what it has cached without a
//! look at its lock, and how long a host waits that takes over from one that may serve still
//! (docs/design/migration.md, "An owner that loses the lock").
//!
//! Where the lock fences, the lease takes the place of what the operator would have to know: a host that was cut
//! off or frozen answers nothing that is older than the next owner's first write.

use crate::hosts::HostFault;
use crate::hosts::profile::Storage;
use crate::hosts::world::{Item, Work, World};
use crate::rng::Rng;
use crate::violation::Violation;
use cinnabar_driver::ownership::{Event, Role};
use cinnabar_engine::mutant::Mutant;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Failure, IoError, RequestId};

/// As `cinnabar-hybrid` has them (`librados/lock_state.rs`): the lease, the wait of a host that takes over, and by
/// how much a clock runs slow or fast, in millionths.
const LEASE_NS: u64 = 10_000_000_000;
const TAKE_AFTER_NS: u64 = 12_500_000_000;
const SLEW_PPM: u64 = 83_334;
/// An owner that has requests looks so often.
const LOOK_NS: u64 = 3_000_000_000;
/// Clocks of hosts are apart by up to this.
const APART_NS_MAX: u64 = 100_000_000_000;
/// A host is cut off for at most this time.
const CUT_NS_MAX: u64 = 40_000_000_000;
const MILLION: u64 = 1_000_000;

/// A clock that runs on while its host is frozen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ahead_ns: u64,
    /// What it counts in a million.
    rate: u64,
}

impl Clock {
    /// One that is corrected as fast as it may be, or less.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let (slow, fast) = (MILLION - SLEW_PPM, MILLION + SLEW_PPM);
        let between = rng.within(slow..fast + 1);
        Self { ahead_ns: rng.below(APART_NS_MAX), rate: rng.pick(&[slow, fast, between]) }
    }

    fn at(self, now: Instant) -> u64 {
        self.ahead_ns + (u128::from(now.0) * u128::from(self.rate) / u128::from(MILLION)) as u64
    }

    /// How long a time by this clock truly lasts.
    fn lasts_ns(self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(MILLION)).div_ceil(u128::from(self.rate)) as u64
    }
}

impl World {
    /// A host has just got the lock.
    pub(super) fn sees_lock(&mut self, host: usize) {
        self.hosts[host].looked_ns = self.hosts[host].clock.at(self.now);
        self.hosts[host].seen_ns = self.time_of_look(host);
    }

    /// What a host takes for the time at which it sees its lock.
    fn time_of_look(&self, host: usize) -> u64 {
        let time = |host: usize| self.hosts[host].clock.at(self.now);
        let by_other = self.options.mutants.is(Mutant::LeaseByOtherClock);
        if by_other { time(host).max(time(1 - host)) } else { time(host) }
    }

    /// Whether an owner has seen its lock within the lease. Looks again in good time.
    pub(super) fn is_confirmed(&mut self, host: usize) -> bool {
        let Some(session) = self.hosts[host].session.filter(|_| self.fences()) else { return true };
        let (now, seen) = (self.hosts[host].clock.at(self.now), self.hosts[host].seen_ns);
        let due = now - self.hosts[host].looked_ns >= LOOK_NS;
        if due && !std::mem::replace(&mut self.hosts[host].looks, true) {
            self.hosts[host].looked_ns = now;
            let began = self.time_of_look(host);
            let lasts = self.profile.backend_latency.sample(&mut self.rng);
            self.enter(lasts, Item::LookAtLock(session, began));
        }
        now.saturating_sub(seen) < LEASE_NS
    }

    fn fences(&self) -> bool {
        self.profile.storage == Storage::Rbd
    }

    /// A look reaches the image's header.
    pub(super) fn look_at_lock(&mut self, session: usize, began: u64) {
        let host = self.image.sessions[session].host;
        if let Some(until) = self.cut_until(host) {
            return self.enter(until.since_ns(self.now), Item::LookAtLock(session, began));
        }
        let held = self.image.shows_lock(session, self.now);
        self.soon_at(host, 100_000, Work::SawLock(session, began, held));
    }

    /// What the look has shown.
    pub(super) fn saw_lock(
        &mut self,
        host: usize,
        session: usize,
        began: u64,
        held: bool,
    ) -> Result<(), Violation> {
        if self.hosts[host].session != Some(session) {
            return Ok(());
        }
        self.hosts[host].looks = false;
        if !held {
            return self.lost(host);
        }
        let seen = &mut self.hosts[host].seen_ns;
        *seen = (*seen).max(began);
        if self.faults_on && self.profile.cuts && self.rng.chance(self.profile.cut_at_look) {
            self.cut_off(host);
        }
        let owner = self.hosts[host].own.role() == Role::Owner;
        if owner && self.hosts[host].serves() { self.admit_waiting(host) } else { Ok(()) }
    }

    /// An owner finds that its lock was broken: it becomes a standby, and guests that are connected get errors.
    fn lost(&mut self, host: usize) -> Result<(), Violation> {
        let own = &self.hosts[host].own;
        if own.role() != Role::Owner || !self.hosts[host].serves() {
            // It hears of that when it serves, or never gets so far.
            return Ok(());
        }
        self.happened(HostFault::LockLost);
        let run = self.hosts[host].run;
        for client in self.clients.iter_mut().filter(|one| one.host == host && one.run == run) {
            (client.stopped, client.shut_out) = (true, true);
        }
        let waiting: Vec<RequestId> = self.hosts[host].waiting.drain(..).collect();
        for id in waiting {
            self.done(id, Err(Failure::Io(IoError::Io)))?;
        }
        self.rule(host, Event::Lost)
    }

    /// For how long a host has to wait that would break this session's lock, unless it has: what the former
    /// owner has cached may be served until its lease is over.
    pub(super) fn outwait_ns(&mut self, host: usize, session: usize) -> Option<u64> {
        if self.hosts[host].waited_for.replace(session) == Some(session) {
            return None;
        }
        let margin = !self.options.mutants.is(Mutant::TakenWithoutMargin);
        let ns = if margin { TAKE_AFTER_NS } else { LEASE_NS };
        Some(self.hosts[host].clock.lasts_ns(ns))
    }

    /// A host reaches neither the image nor the other host for a while. Its guests do not notice.
    pub(super) fn cut_off(&mut self, host: usize) {
        if !self.works(host) {
            return;
        }
        self.happened(HostFault::CutOff);
        let (now, run) = (self.now, self.hosts[host].run);
        let ns = self.rng.below(CUT_NS_MAX);
        self.note(|| format!("host {host} is cut off for {ns} ns"));
        self.hosts[host].cut = Some(now.plus_ns(ns));
        if let Some(session) = self.hosts[host].session {
            self.image.sessions[session].silent_since = Some(now);
        }
        self.enter(ns, Item::Rejoin(host, run));
    }

    /// Until when it is cut off, if it is.
    pub(super) fn cut_until(&self, host: usize) -> Option<Instant> {
        self.hosts[host].cut.filter(|until| *until > self.now)
    }

    pub(super) fn rejoin(&mut self, host: usize, run: u64) {
        if self.hosts[host].run == run && self.hosts[host].cut.take().is_some() {
            self.note(|| format!("host {host} is reached again"));
            let frozen = self.hosts[host].frozen.is_some();
            if let Some(session) = self.hosts[host].session.filter(|_| !frozen) {
                self.image.sessions[session].silent_since = None;
            }
        }
    }
}
