//! Hosts that freeze and die, and servers that lose power.

use crate::hosts::HostFault;
use crate::hosts::requests::Asked;
use crate::hosts::world::{Item, Work, World};
use crate::oracle::Outcome;
use crate::violation::Violation;
use cinnabar_engine::RequestId;
use cinnabar_engine::mutant::Mutant;

/// A host is frozen for one of these times, in ns.
const FREEZES_NS: &[u64] = &[10_000_000, 500_000_000, 5_000_000_000, 60_000_000_000];
/// An owner, once in some runs, for longer than an hour.
const LONG_FREEZE_NS: u64 = 4_000_000_000_000;
/// Its connections are gone after this time (`ms_connection_idle_timeout`).
const IDLE_NS: u64 = 900_000_000_000;
/// And dead for at most one of these.
const DEATHS_NS: &[u64] = &[10_000_000, 1_000_000_000, 45_000_000_000];

impl World {
    /// A host does nothing for a while.
    pub(super) fn freeze(&mut self, host: usize) {
        if !self.works(host) {
            return;
        }
        let mut ns = self.rng.pick(FREEZES_NS);
        if self.hosts[host].session.is_some() && std::mem::take(&mut self.profile.long_freeze) {
            ns = LONG_FREEZE_NS;
        }
        self.note(|| format!("host {host} is frozen for {ns} ns"));
        self.happened(HostFault::Frozen);
        let now = self.now;
        self.hosts[host].frozen = Some(now.plus_ns(ns));
        if let Some(session) = self.hosts[host].session {
            self.image.sessions[session].silent_since = Some(now);
        }
        let run = self.hosts[host].run;
        self.enter(ns, Item::At(host, run, Work::Thaw));
    }

    /// Between two steps of giving or taking a host may die, or freeze.
    pub(super) fn disturb_step(&mut self, host: usize, chance: f64) {
        if !self.faults_on || !self.hosts[host].up || !self.rng.chance(chance) {
            return;
        }
        let dies = self.profile.dies_briefly || self.rng.chance(0.5);
        if self.profile.crashes && dies {
            let power = self.rng.chance(0.5);
            self.crash(host, power);
        } else if self.profile.freezes {
            self.freeze(host);
        }
    }

    /// A host that was frozen goes on.
    pub(super) fn thaw(&mut self, host: usize) {
        if self.hosts[host].frozen.take().is_some() {
            self.note(|| format!("host {host} goes on"));
            if let Some(session) = self.hosts[host].session {
                let since = self.image.sessions[session].silent_since.take();
                if since.is_some_and(|at| self.now.since_ns(at) > IDLE_NS) {
                    self.send_again(host);
                }
            }
        }
    }

    /// A daemon dies, or its host loses power.
    pub(super) fn crash(&mut self, host: usize, power: bool) {
        self.note(|| format!("host {host} dies, power lost: {power}"));
        self.happened(HostFault::Crash);
        self.count.read_hits += self.hosts[host].read_hits();
        let session = self.hosts[host].session;
        let own = |id: &RequestId| self.pending[id].host == host;
        let gone: Vec<RequestId> = self.pending.keys().copied().filter(own).collect();
        for id in gone {
            let pending = self.pending.remove(&id).expect("just seen");
            match pending.asked {
                Asked::Read { ticket, .. } => self.judge.oracle.read_dropped(&ticket),
                Asked::Write { ticket, .. } if pending.op.is_some() => {
                    self.judge.oracle.write_ended(&ticket, Outcome::Refused);
                }
                Asked::Write { ticket, .. } => self.judge.doubt(session, ticket),
                Asked::Breach { .. } | Asked::Flush { .. } => {}
            }
        }
        self.controls.retain(|_, (of, _)| *of != host);
        self.orphan(host);
        let now = self.now;
        if let Some(session) = session {
            let session = &mut self.image.sessions[session];
            session.over = true;
            session.silent_since.get_or_insert(now);
        }
        // Nothing of a record that was under way, or what comes before it, or both.
        if let Some((record, trust)) = self.hosts[host].recording.filter(|_| self.rng.chance(0.6)) {
            if !self.options.mutants.is(Mutant::DisownedLate) {
                self.disown(host, trust);
            }
            if self.rng.chance(0.6) {
                self.hosts[host].record = record;
            }
        }
        let tick = self.judge.oracle.tick();
        self.hosts[host].media.crash(tick);
        self.image.backend.abandon(tick);
        if power {
            self.hosts[host].media.cache.power_cut(&mut self.rng);
        }
        self.zombie_ends(host);
        self.hosts[host].end();
        self.settle_doubts();
        let briefly = self.fate.over || self.profile.dies_briefly;
        let longest = if briefly { DEATHS_NS[0] } else { self.rng.pick(DEATHS_NS) };
        self.soon(longest, Item::Start(host));
    }

    /// A daemon is started, unless the last one's I/O is still under way.
    pub(super) fn start_again(&mut self, host: usize) -> Result<(), Violation> {
        let lands = self.flights.values().any(|flight| flight.host == host);
        if lands && self.waits_for_the_last() {
            self.enter(100_000_000, Item::Start(host));
            return Ok(());
        }
        self.start(host)?;
        if self.fate.taker == Some(host) { self.take(host) } else { Ok(()) }
    }

    /// Both hosts and the image's server lose power.
    pub(super) fn outage(&mut self) -> Result<(), Violation> {
        if self.judge.breached {
            return Ok(());
        }
        self.happened(HostFault::Outage);
        for host in 0..2 {
            if self.hosts[host].up {
                self.crash(host, true);
            }
        }
        self.flights.clear();
        self.settle_doubts();
        let reverted = self.image.backend.power_cut(&mut self.rng);
        self.note(|| format!("the image's server loses power: {reverted:?} went back"));
        let sectors = self.image.backend.sectors();
        let contents = self.image.backend.sectors_of(0..sectors).to_vec();
        self.judge.oracle.settled(0, &contents, &reverted)
    }
}
