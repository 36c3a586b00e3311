//! What two hosts may show to guests: the oracle, with what docs/design/migration.md excepts.
//!
//! A host that froze as the owner, and goes on when another one has taken the volume, does not know it (a
//! *zombie*). Where the lock fences, its guest's writes are those that reached the image before the fence,
//! and its reads may be as old as the moment at which it was replaced. Where nothing fences it, and the
//! operator has vouched that it is dead (a *breach*), both hosts serve and cache the volume. What a block
//! holds that either has written meanwhile is not known from then on: each cache may hold what the other one
//! has replaced, and is sealed with a proof that holds. All other blocks are judged as ever.

use crate::hosts::HostFault;
use crate::hosts::host::Host;
use crate::hosts::profile::Storage;
use crate::hosts::requests::{Asked, Pending};
use crate::hosts::world::World;
use crate::oracle::{Oracle, Outcome, ReadTicket, WriteTicket};
use crate::stamp::BLOCK_SECTORS;
use crate::violation::{Kind, Violation};
use std::collections::BTreeSet;
use std::ops::Range;

/// A host that has been replaced and does not know it.
#[derive(Debug)]
pub(super) struct Zombie {
    /// A read in flight since the moment of that.
    pub(super) since: ReadTicket,
    pub(super) breach: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) oracle: Oracle,
    pub(super) zombies: [Option<Zombie>; 2],
    /// Blocks of which it is not known what they should hold.
    pub(super) murky: BTreeSet<u64>,
    /// There was a breach.
    pub(super) breached: bool,
    /// Unanswered writes of sessions that are over.
    doubtful: Vec<(Option<usize>, WriteTicket)>,
}

impl Judge {
    pub(super) fn new(sectors: u64) -> Self {
        Self {
            oracle: Oracle::new(&[sectors]),
            zombies: [None, None],
            murky: BTreeSet::new(),
            breached: false,
            doubtful: Vec::new(),
        }
    }

    /// Whether two hosts serve the volume where nothing fences.
    pub(super) fn is_breached(&self) -> bool {
        self.zombies.iter().flatten().any(|zombie| zombie.breach)
    }

    /// What a host writes from now on may replace anything.
    pub(super) fn muddle(&mut self, sectors: &Range<u64>) {
        self.murky.extend(World::blocks_of(sectors));
    }

    /// A write that was never answered, of a session that is over.
    pub(super) fn doubt(&mut self, session: Option<usize>, ticket: WriteTicket) {
        self.doubtful.push((session, ticket));
    }
}

impl World {
    /// A host owns the volume from now on.
    pub(super) fn serve(&mut self, host: usize) -> Result<(), Violation> {
        let other = 1 - host;
        self.happened(HostFault::Taken);
        let by_force = std::mem::take(&mut self.hosts[host].by_force);
        self.hosts[host].claims = false;
        if self.hosts[host].holds {
            // A hand-over has failed: it has owned the volume throughout.
            return self.admit_waiting(host);
        }
        // One that was replaced while it took the volume does not know that either.
        if self.judge.zombies[host].is_none() {
            self.replace(other, by_force)?;
        }
        if by_force && self.profile.storage != Storage::Rbd {
            self.happened(HostFault::Forced);
            let late: Vec<Range<u64>> =
                self.judge.doubtful.iter().map(|(_, ticket)| ticket.sectors()).collect();
            self.judge.breached |= !late.is_empty();
            for sectors in &late {
                self.judge.muddle(sectors);
            }
        }
        self.hosts[host].holds = true;
        self.admit_waiting(host)
    }

    /// An owner, or one that is about to be, that does not know of it is one no more.
    fn replace(&mut self, old: usize, by_force: bool) -> Result<(), Violation> {
        let Host { holds, claims, session, .. } = self.hosts[old];
        let fenced = session.is_some_and(|session| self.image.is_fenced(session));
        let (may, breach) = match self.profile.storage {
            Storage::Rbd => (fenced, false),
            Storage::File => (false, false),
            Storage::FarFile | Storage::Nbd => (by_force && (holds || claims), true),
        };
        if !may && holds {
            let what = format!("host {old} owns the volume, and the other one takes it");
            return Err(Violation::new(Kind::TwoOwners, what));
        }
        if !may {
            return Ok(());
        }
        let since = self.judge.oracle.read_submitted(0, 0, 1);
        self.judge.zombies[old] = Some(Zombie { since, breach });
        if breach {
            self.happened(HostFault::Breach);
            self.judge.breached = true;
            let writes: Vec<Range<u64>> =
                self.pending.values().filter_map(Pending::written).collect();
            for sectors in &writes {
                self.judge.muddle(sectors);
            }
        }
        Ok(())
    }

    /// A host has let go of the volume, or could not take it.
    pub(super) fn claim_ends(&mut self, host: usize) {
        self.hosts[host].claims = false;
        if !self.hosts[host].holds {
            self.zombie_ends(host);
        }
    }

    /// A host that was replaced knows it, or is gone.
    pub(super) fn zombie_ends(&mut self, host: usize) {
        if let Some(zombie) = self.judge.zombies[host].take() {
            self.judge.oracle.read_dropped(&zombie.since);
            self.happened(HostFault::WokenTooLate);
        }
    }

    /// At the end of a run, with nothing under way: the image is the truth.
    pub(super) fn clear_up(&mut self) {
        for block in std::mem::take(&mut self.judge.murky) {
            let first = block * BLOCK_SECTORS as u64;
            for sector in first..first + BLOCK_SECTORS as u64 {
                let value = self.image.backend.sector(sector);
                self.judge.oracle.decided(0, sector, value);
            }
        }
    }

    /// Unanswered writes of which nothing is under way have happened by now, or never will.
    pub(super) fn settle_doubts(&mut self) {
        for (session, ticket) in std::mem::take(&mut self.judge.doubtful) {
            if session.is_some_and(|session| self.is_under_way(session)) {
                self.judge.doubtful.push((session, ticket));
            } else {
                self.judge.oracle.write_ended(&ticket, Outcome::Perhaps);
            }
        }
    }

    /// The guest of an owner looks at these sectors, or changes them: what it finds there of others' writes
    /// is decided. Their sessions can't reach that part of the image behind an operation of this one.
    pub(super) fn decide_doubts(&mut self, host: usize, sectors: &Range<u64>) {
        let meets = |other: &Range<u64>| other.start < sectors.end && sectors.start < other.end;
        let session = self.hosts[host].session;
        for (of, ticket) in &self.judge.doubtful {
            if *of != session && meets(&ticket.sectors()) {
                self.judge.oracle.write_ended(ticket, Outcome::Perhaps);
            }
        }
        let zombie = 1 - host;
        if self.judge.zombies[zombie].as_ref().is_none_or(|zombie| zombie.breach) {
            return;
        }
        // What waits there may be carried out when that host has taken the volume by right.
        let begun = |pending: &&Pending| pending.host == zombie && pending.op.is_none();
        for pending in self.pending.values().filter(begun) {
            if let Asked::Write { ticket, .. } = &pending.asked
                && meets(&ticket.sectors())
            {
                self.judge.oracle.write_ended(ticket, Outcome::Perhaps);
            }
        }
    }
}
