//! Guests and their requests: which wait, which go to the engine, which to the image.

use crate::hosts::HostFault;
use crate::hosts::requests::{Asked, Client, Pending, Wish};
use crate::hosts::world::{Item, Work, World};
use crate::stamp::{BLOCK_SECTORS, Stamp, Stamped};
use crate::violation::Violation;
use cinnabar_driver::VolumeLife;
use cinnabar_driver::ownership::{Event as Owning, Role};
use cinnabar_engine::mutant::Mutant;
use cinnabar_engine::units::{ByteSpan, SECTOR_BYTES};
use cinnabar_engine::{Event, Op, Payload, Request, RequestId};
use std::ops::Range;

/// Longest request, in sectors.
const SECTORS_MAX: u64 = 40;

fn span_of(sectors: &Range<u64>) -> ByteSpan {
    ByteSpan::new(sectors.start * SECTOR_BYTES, (sectors.end - sectors.start) * SECTOR_BYTES)
}

impl World {
    /// A guest begins to work on a host.
    pub(super) fn begin_guest(&mut self, host: usize) -> usize {
        let run = self.hosts[host].run;
        let (begun, stopped, shut_out) = (false, false, false);
        self.clients.push(Client { host, run, begun, stopped, shut_out, waits_for: 0 });
        let client = self.clients.len() - 1;
        self.arm(client);
        client
    }

    /// Gives a guest its request slots.
    pub(super) fn arm(&mut self, client: usize) {
        let host = self.clients[client].host;
        for _ in 0..self.profile.depth {
            self.soon_at(host, self.profile.think_ns_max, Work::Arrive(client));
        }
    }

    /// A guest has a slot free.
    pub(super) fn arrive(&mut self, client: usize) -> Result<(), Violation> {
        if self.clients[client].stopped || self.budget == 0 {
            return Ok(());
        }
        self.budget -= 1;
        let begun = std::mem::replace(&mut self.clients[client].begun, true);
        let wish = self.draw_wish(self.profile.writes_first && !begun);
        self.submit(self.clients[client].host, Some(client), wish)
    }

    fn draw_wish(&mut self, writes: bool) -> Wish {
        let block = BLOCK_SECTORS as u64;
        let first = self.rng.below(self.profile.hot * block);
        let left = self.profile.blocks * block - first;
        let (whole, count) = (self.rng.chance(0.5), self.rng.within(1..1 + left.min(SECTORS_MAX)));
        let sectors = if whole {
            let first = first / block * block;
            first..first + count.next_multiple_of(block).min(self.profile.blocks * block - first)
        } else {
            first..first + count
        };
        if writes {
            return Wish::Write(sectors);
        }
        if self.rng.chance(self.profile.reads) {
            return Wish::Read(sectors);
        }
        match self.rng.below(10) {
            0 | 1 => Wish::Flush,
            2 => Wish::Zero(sectors),
            _ => Wish::Write(sectors),
        }
    }

    /// A request arrives at a host.
    pub(super) fn submit(
        &mut self,
        host: usize,
        client: Option<usize>,
        wish: Wish,
    ) -> Result<(), Violation> {
        let id = self.register(host, client, wish);
        self.admit(host, id)
    }

    /// The oracle hears of a request before anything is done about it.
    pub(super) fn register(&mut self, host: usize, client: Option<usize>, wish: Wish) -> RequestId {
        let (asked, op) = self.asked(host, wish);
        let sectors = match &asked {
            Asked::Read { sectors, .. } | Asked::Breach { sectors } => sectors.clone(),
            Asked::Write { ticket, .. } => ticket.sectors(),
            Asked::Flush { .. } => Range { start: 0, end: 0 },
        };
        let murky: Vec<u64> =
            Self::blocks_of(&sectors).filter(|block| self.judge.murky.contains(block)).collect();
        let born = self.number();
        let id = RequestId(born);
        self.note(|| format!("host {host}, guest {client:?}: request {born} {asked:?}"));
        self.pending.insert(id, Pending { host, client, asked, op: Some(op), murky, born });
        if let Some(client) = client {
            self.clients[client].waits_for += 1;
        }
        id
    }

    fn asked(&mut self, host: usize, wish: Wish) -> (Asked, Op<Stamped>) {
        match wish {
            Wish::Read(sectors) => {
                let (first, count) = (sectors.start, sectors.end - sectors.start);
                let oracle = &mut self.judge.oracle;
                let ticket = match &self.judge.zombies[host] {
                    Some(zombie) if zombie.breach => {
                        oracle.read_submitted_as_of(&zombie.since, 0, first, count)
                    }
                    _ => oracle.read_submitted(0, first, count),
                };
                let span = span_of(&sectors);
                let data = Stamped::alloc(span.blocks() as u32);
                (Asked::Read { ticket, sectors }, Op::Read { span, data })
            }
            Wish::Write(sectors) => {
                self.version += 1;
                let values: Vec<Stamp> =
                    sectors.clone().map(|sector| Stamp::new(0, sector, self.version)).collect();
                let span = span_of(&sectors);
                let data = Stamped::alloc(span.blocks() as u32);
                data.set((span.head_bytes() / SECTOR_BYTES) as usize, &values);
                let fua = self.rng.chance(0.1);
                (self.writes(&sectors, values, fua), Op::Write { span, data, fua })
            }
            Wish::Zero(sectors) => {
                let values = sectors.clone().map(|_| Stamp::ZERO).collect();
                let op = Op::WriteZeroes { span: span_of(&sectors), fua: false, may_punch: true };
                (self.writes(&sectors, values, false), op)
            }
            Wish::Flush => (Asked::Flush { tick: self.judge.oracle.flush_submitted() }, Op::Flush),
        }
    }

    fn writes(&mut self, sectors: &Range<u64>, values: Vec<Stamp>, fua: bool) -> Asked {
        if self.judge.is_breached() {
            self.judge.muddle(sectors);
            return Asked::Breach { sectors: sectors.clone() };
        }
        let ticket = self.judge.oracle.write_submitted(0, sectors.start, values);
        Asked::Write { ticket, fua }
    }

    /// A request goes to the engine, or to the image, or waits.
    pub(super) fn admit(&mut self, host: usize, id: RequestId) -> Result<(), Violation> {
        let cached = self.options.mutants.is(Mutant::StandbyServesCache);
        let own = &self.hosts[host].own;
        let (role, reads) = (own.role(), own.reads_through());
        let serves = role == Role::Owner && self.hosts[host].serves();
        if serves && !self.is_confirmed(host) {
            self.happened(HostFault::LeaseOver);
            self.hosts[host].waiting.push_back(id);
            return Ok(());
        }
        let request = &self.pending[&id];
        let is_read = matches!(request.asked, Asked::Read { .. });
        if serves || reads && is_read && cached && self.hosts[host].serves() {
            return self.pass_on(host, id);
        }
        match &request.asked {
            Asked::Read { .. } if reads => {
                self.happened(HostFault::EarlyRead);
                let lasts = self.profile.backend_latency.sample(&mut self.rng);
                self.enter(lasts, Item::Look(id));
                Ok(())
            }
            _ => {
                let wants = request.needs_owner() && role == Role::Standby;
                self.happened(HostFault::Held);
                self.hosts[host].waiting.push_back(id);
                if wants { self.rule(host, Owning::Want) } else { Ok(()) }
            }
        }
    }

    fn pass_on(&mut self, host: usize, id: RequestId) -> Result<(), Violation> {
        let pending = self.pending.get_mut(&id).expect("it is under way");
        let op = pending.op.take().expect("the engine gets it once");
        let sectors = match &pending.asked {
            Asked::Read { sectors, .. } | Asked::Breach { sectors } => Some(sectors.clone()),
            Asked::Write { ticket, .. } => Some(ticket.sectors()),
            Asked::Flush { .. } => None,
        };
        if let Some(sectors) = sectors.filter(|_| self.judge.zombies[host].is_none()) {
            self.decide_doubts(host, &sectors);
        }
        let volume = self.hosts[host].life.as_ref().and_then(VolumeLife::serving);
        let volume = volume.expect("it serves");
        self.tell(host, Event::Submit(Request { id, volume, op }))
    }

    /// Requests that have waited are looked at once more, in order.
    pub(super) fn admit_waiting(&mut self, host: usize) -> Result<(), Violation> {
        let mut waiting = std::mem::take(&mut self.hosts[host].waiting);
        if self.options.mutants.is(Mutant::HeldOvertaken) {
            waiting = waiting.into_iter().rev().collect();
        }
        for id in waiting {
            self.admit(host, id)?;
        }
        Ok(())
    }

    /// A standby's read sees what the image holds now.
    pub(super) fn look(&mut self, id: RequestId) {
        // Its host is gone.
        let Some(pending) = self.pending.get(&id) else { return };
        let Asked::Read { sectors, .. } = &pending.asked else { unreachable!("it reads") };
        let (host, sectors) = (pending.host, sectors.clone());
        if let Some(until) = self.cut_until(host) {
            return self.enter(until.since_ns(self.now), Item::Look(id));
        }
        let values = self.image.backend.sectors_of(sectors).to_vec();
        self.soon_at(host, 100_000, Work::Looked(id, values));
    }

    /// Earlier requests of the same guest that this write has overtaken, and that change some of the same
    /// sectors: they are carried out in the order of their arrival.
    pub(super) fn overtake(&mut self, by: &Pending) {
        let Asked::Write { ticket: later, .. } = &by.asked else { return };
        let sectors = later.sectors();
        for pending in self.pending.values() {
            if let Asked::Write { ticket, .. } = &pending.asked
                && pending.host == by.host
                && pending.born < by.born
                && ticket.sectors().start < sectors.end
                && sectors.start < ticket.sectors().end
            {
                self.judge.oracle.overtaken(ticket, later);
            }
        }
    }
}
