//! The end of a run: nothing goes wrong any more, all comes to rest, and all is read from both hosts.

use crate::hosts::host::Host;
use crate::hosts::requests::Wish;
use crate::hosts::world::{Item, World};
use crate::violation::{Kind, Violation};
use cinnabar_driver::ownership::{Event, Role};

/// The operator looks at hosts that can't go on after this time, in ns, so many times.
const HEAL_NS: u64 = 20_000_000_000;
const HEALS_MAX: u32 = 300;
/// Sectors read at a time when all is read.
const SWEEP_SECTORS: u64 = 64;

impl World {
    /// Nothing goes wrong any more: all is answered in the end, and all that is read on either host is right.
    pub(super) fn end_well(&mut self) -> Result<(), Violation> {
        (self.faults_on, self.fate.over, self.fate.moving) = (false, true, None);
        self.clients.iter_mut().for_each(|client| client.stopped = true);
        self.heal_until(Self::is_calm)?;
        for host in [0, 1, 0] {
            self.sweep(host)?;
        }
        let sectors = self.image.backend.sectors();
        self.clear_up();
        let contents = self.image.backend.sectors_of(0..sectors).to_vec();
        self.judge.oracle.settled(0, &contents, &[])
    }

    /// Lets things go on until `done`. The operator ends daemons that can't let go of the volume by
    /// themselves: their flush has failed, or another one has taken it.
    fn heal_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        for _ in 0..HEALS_MAX {
            for host in 0..2 {
                let ends = self.is_stuck(host) || self.judge.zombies[host].is_some();
                if self.works(host) && ends {
                    self.crash(host, false);
                }
            }
            let until = self.now.plus_ns(HEAL_NS);
            self.enter(HEAL_NS, Item::Operate);
            self.pump(|world| done(world) || world.now >= until)?;
            if done(self) {
                return Ok(());
            }
        }
        Err(self.stuck("it does not come to rest"))
    }

    /// A flush of its has failed, so it can't hand the volume over.
    pub(super) fn is_stuck(&self, host: usize) -> bool {
        self.hosts[host].session.is_some_and(|one| self.image.sessions[one].sync_failed)
    }

    fn is_calm(&self) -> bool {
        let calm = |host: &Host| {
            let at_rest = matches!(host.own.role(), Role::Owner | Role::Standby);
            host.up && at_rest && !host.retries && host.frozen.is_none()
        };
        let zombies = self.judge.zombies.iter().any(Option::is_some);
        self.pending.is_empty() && !zombies && self.hosts.iter().all(calm)
    }

    /// A host takes the volume, and reads all of it.
    fn sweep(&mut self, host: usize) -> Result<(), Violation> {
        self.fate.taker = Some(host);
        self.rule(host, Event::Want)?;
        self.heal_until(|world| {
            world.hosts[host].up && world.hosts[host].own.role() == Role::Owner
        })?;
        self.fate.taker = None;
        let sectors = self.image.backend.sectors();
        for first in (0..sectors).step_by(SWEEP_SECTORS as usize) {
            let end = sectors.min(first + SWEEP_SECTORS);
            self.submit(host, None, Wish::Read(first..end))?;
        }
        self.pump(|world| world.pending.is_empty())
    }

    /// A run that does not go on.
    pub(super) fn stuck(&self, why: &str) -> Violation {
        let host = |host: &Host| {
            let (role, held) = (host.own.role(), host.waiting.len());
            format!("up {}, {role:?}, holds {}, {held} wait", host.up, host.holds)
        };
        let hosts = self.hosts.each_ref().map(host);
        let left = (self.pending.len(), self.budget, self.now.0);
        Violation::new(Kind::NoReply, format!("{why}; {hosts:?}; {left:?}"))
    }
}
