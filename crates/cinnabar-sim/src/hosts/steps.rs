//! The steps of giving and taking, as the daemon carries them out (`dataplane/migrate/steps.rs`).

use crate::hosts::HostFault;
use crate::hosts::image::REGIONS;
use crate::hosts::profile::Storage;
use crate::hosts::world::{Item, Work, World};
use crate::violation::{Kind, Violation};
use cinnabar_driver::ownership::{Action, Event, PeerAnswer, Record, Role, Trust};
use cinnabar_engine::mutant::Mutant;

/// Longest step, in ns.
const STEP_NS_MAX: u64 = 20_000_000;
/// Longest pause after an attempt, in ns.
const PAUSE_NS: u64 = 5_000_000_000;
/// A part of a cluster learns of a map within this time, in ns.
const LEARN_NS_MAX: u64 = 20_000_000_000;

/// A step that ends later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Released,
    Locked,
    Recorded(Record, Trust),
    Prepared(Trust),
    /// The proof of the volume's end.
    Proof,
}

impl World {
    /// Tells a host's rules what happened, and does what they say.
    pub(super) fn rule(&mut self, host: usize, event: Event) -> Result<(), Violation> {
        let actions = self.hosts[host].own.apply(event);
        if let Event::Answered(_, answer) = event
            && actions.contains(&Action::Lock)
        {
            self.hosts[host].by_force = answer == PeerAnswer::Silent;
        }
        if !actions.is_empty() {
            self.note(|| format!("host {host}: {event:?} -> {actions:?}"));
        }
        for action in actions {
            self.act(host, action)?;
        }
        Ok(())
    }

    fn act(&mut self, host: usize, action: Action) -> Result<(), Violation> {
        match action {
            // Requests go by the role.
            Action::Hold => Ok(()),
            Action::Drain => self.drain(host),
            Action::Release => {
                self.check_quiet(host)?;
                self.step_in(host, Step::Released);
                Ok(())
            }
            Action::Answer(reply) => {
                self.answer(host, reply);
                Ok(())
            }
            Action::StandBy => self.admit_waiting(host),
            Action::Ask(attempt, epoch) => {
                self.ask(host, attempt, epoch);
                Ok(())
            }
            Action::Lock => {
                (self.hosts[host].claims, self.hosts[host].waited_for) = (true, None);
                self.step_in(host, Step::Locked);
                Ok(())
            }
            Action::Record(record, trust) => {
                self.hosts[host].recording = Some((record, trust));
                self.step_in(host, Step::Recorded(record, trust));
                Ok(())
            }
            Action::Attach(trust) => {
                self.step_in(host, Step::Prepared(trust));
                Ok(())
            }
            Action::Serve => self.serve(host),
            Action::Retry => {
                self.hosts[host].retries = true;
                self.claim_ends(host);
                let pause = if self.faults_on { PAUSE_NS } else { PAUSE_NS / 10 };
                self.soon_at(host, pause, Work::Again);
                Ok(())
            }
        }
    }

    fn step_in(&mut self, host: usize, step: Step) {
        self.soon_at(host, STEP_NS_MAX, Work::Step(step));
    }

    /// A step has ended.
    pub(super) fn stepped(&mut self, host: usize, step: Step) -> Result<(), Violation> {
        self.end_step(host, step)?;
        // What is recorded by then is not true yet.
        let recorded = matches!(step, Step::Recorded(..));
        let chance = if recorded { self.profile.dies_recorded } else { 0.03 };
        self.disturb_step(host, chance);
        Ok(())
    }

    fn end_step(&mut self, host: usize, step: Step) -> Result<(), Violation> {
        match step {
            Step::Released => self.released(host),
            Step::Locked => self.locked(host),
            Step::Recorded(record, trust) => self.recorded(host, record, trust),
            Step::Prepared(trust) => {
                self.hosts[host].trust = trust;
                if self.options.mutants.is(Mutant::DisownedLate) {
                    self.disown(host, trust);
                }
                if self.faults_on && self.rng.chance(self.profile.open_errors / 2.0) {
                    return self.rule(host, Event::Attached(false));
                }
                self.attach(host)
            }
            Step::Proof => self.seal(host),
        }
    }

    fn released(&mut self, host: usize) -> Result<(), Violation> {
        if let Some(session) = self.hosts[host].session.take() {
            if self.is_under_way(session) {
                let what = format!("host {host} lets go of the image beside its I/O");
                return Err(Violation::new(Kind::BadIo, what));
            }
            self.image.close(session);
        }
        self.hosts[host].holds = false;
        self.claim_ends(host);
        self.rule(host, Event::Released)
    }

    fn locked(&mut self, host: usize) -> Result<(), Violation> {
        let fails = self.faults_on && self.rng.chance(self.profile.open_errors);
        let fails = fails || self.cut_until(host).is_some();
        let (now, by_word) = (self.now, self.hosts[host].own.may_break());
        if !fails && let Some((holder, may_live)) = self.image.breakable(host, now, by_word) {
            self.fence(holder);
            let wait_ns = may_live.then(|| self.outwait_ns(host, holder)).flatten();
            if let Some(ns) = wait_ns {
                self.happened(HostFault::Outwaited);
                let run = self.hosts[host].run;
                self.enter(ns, Item::At(host, run, Work::Step(Step::Locked)));
                return Ok(());
            }
        }
        let flights = &self.flights;
        let busy = |session| flights.values().any(|flight| flight.session == Some(session));
        let opened = if fails { None } else { self.image.open(host, now, by_word, busy) };
        let Some((session, broken)) = opened else {
            self.happened(HostFault::OpenFailed);
            return self.rule(host, Event::Locked(false));
        };
        self.note(|| format!("host {host} opens the image: session {session}, broke {broken}"));
        (self.hosts[host].session, self.hosts[host].looks) = (Some(session), false);
        self.sees_lock(host);
        self.hosts[host].proof = self.image.proof(session);
        self.rule(host, Event::Locked(true))
    }

    /// A client is fenced off: parts of the image learn of that by and by.
    fn fence(&mut self, session: usize) {
        self.note(|| format!("session {session} is fenced off"));
        self.image.fence(session, self.now);
        let map = self.image.map();
        for region in 0..REGIONS {
            self.soon(LEARN_NS_MAX, Item::Learn(region, map));
        }
    }

    fn recorded(&mut self, host: usize, record: Record, trust: Trust) -> Result<(), Violation> {
        self.hosts[host].recording = None;
        if !self.options.mutants.is(Mutant::DisownedLate) {
            self.disown(host, trust);
        }
        let fails = self.faults_on && self.rng.chance(self.profile.open_errors / 2.0);
        // One that is said to have failed may be durable all the same.
        if !fails || self.rng.chance(0.5) {
            self.hosts[host].record = record;
        }
        if fails {
            self.happened(HostFault::RecordFailed);
        }
        self.rule(host, Event::Recorded(!fails))
    }

    /// The pause after an attempt is over.
    pub(super) fn again(&mut self, host: usize) -> Result<(), Violation> {
        self.hosts[host].retries = false;
        let wanted = self.hosts[host].own.role() == Role::Giving
            || self.hosts[host].waiting.iter().any(|id| self.pending[id].needs_owner())
            || self.fate.taker == Some(host);
        self.rule(host, if wanted { Event::Again } else { Event::Unwanted })
    }

    /// A host lets go of the image: nothing of it may be under way, and all that it acknowledged is durable.
    fn check_quiet(&mut self, host: usize) -> Result<(), Violation> {
        let Some(session) = self.hosts[host].session else { return Ok(()) };
        let served = self.hosts[host].life.is_some();
        if served && !self.options.mutants.is(Mutant::StandbyServesCache) {
            let what = format!("host {host} releases a volume that its engine has");
            return Err(Violation::new(Kind::BadIo, what));
        }
        if self.is_under_way(session) {
            let what = format!("host {host} lets go of the image beside its I/O");
            return Err(Violation::new(Kind::BadIo, what));
        }
        let alone = self.judge.zombies.iter().all(Option::is_none);
        let lost = self.hosts[host].own.is_lost();
        if self.hosts[host].holds && alone && !lost { self.check_durable() } else { Ok(()) }
    }

    /// Nothing that was acknowledged can still be lost.
    fn check_durable(&mut self) -> Result<(), Violation> {
        let tick = self.judge.oracle.flush_submitted();
        self.flush_done(tick)
    }

    /// Whether what a dead daemon has sent ends before its host can start another one: files and servers of
    /// which nothing else keeps it away.
    pub(super) fn waits_for_the_last(&self) -> bool {
        matches!(self.profile.storage, Storage::FarFile | Storage::Nbd)
    }
}
