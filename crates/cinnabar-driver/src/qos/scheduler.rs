//! The scheduler of a group (mClock, section 3.1, "request scheduling").

mod choose;
mod clients;

use crate::qos::capacity::{Capacity, Reservations};
use crate::qos::cost::{Cost, Op};
use crate::qos::heap::Heap;
use crate::qos::limits::{CLIENTS_MAX, DEPTH_MAX};
use crate::qos::mutant::Mutant;
use crate::qos::queue::{NewEntry, Table, Ticket};
use crate::qos::report::{ClientReport, GroupReport};
use crate::qos::settings::{Config, ConfigError, Settings, SettingsError};
pub use crate::qos::tags::Phase;
use clients::Clients;
use thiserror::Error;

/// Who asks. Tags belong to this name: whatever connection, queue, thread or shard a request comes from,
/// a volume has one set of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// The volume, by a number of the caller's.
    pub volume: u64,
    /// What of the volume's work it is.
    pub work: Work,
}

/// The kinds of work that compete at a back end, each a client of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Requests of guests: misses, write-through, flushes.
    Guest,
    /// What the write log brings to the back end.
    Destage,
    /// Reads that no guest has asked for.
    Prefetch,
}

/// Names a client of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId {
    index: u32,
    /// How often the place was used before.
    turn: u32,
}

/// A request that wants to go to the back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose it is.
    pub client: ClientId,
    /// What it does.
    pub op: Op,
    /// The caller's name for it; comes back with its [`Dispatch`].
    pub token: u64,
}

/// What became of a request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It waits; [`Scheduler::take`] says when it begins.
    Waits(Ticket),
    /// It is exempt: the caller begins it now, and reports no completion.
    Exempt,
}

/// A request that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// For [`Scheduler::complete`].
    pub ticket: Ticket,
    /// Whose it is.
    pub client: ClientId,
    /// The caller's name for it.
    pub token: u64,
    /// What it counts.
    pub cost: Cost,
    /// Why it was chosen.
    pub phase: Phase,
    /// When it begins, in ns. The back end's time-out counts from here: a wait for its turn is no
    /// fault of the back end's.
    pub dispatched_ns: u64,
    /// How long its client's limit held it back, in ns.
    pub held_ns: u64,
    /// How long it waited for its turn beyond that, in ns.
    pub queued_ns: u64,
}

/// Why something was refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The caller keeps the request and tries again when one of this client's has begun.
    #[error("the client has {0} waiting requests, as many as it may have")]
    Full(usize),
    /// It was removed, or never was.
    #[error("there is no such client")]
    UnknownClient,
    /// A client has one set of tags.
    #[error("the client is there already")]
    Known,
    /// The group has as many as it can have.
    #[error("a group has at most {CLIENTS_MAX} clients")]
    TooManyClients,
    /// The settings can't hold.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// A group: the volumes on one server or device, and the requests that its back end gets.
///
/// One for all threads, behind a lock of the caller's; each turn completes, submits and takes a
/// batch. Calls give the time in ns; a time before that of an earlier call counts as that one's.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    clients: Clients,
    requests: Table,
    /// Clients whose first request may not begin before its L.
    held: Heap<u64>,
    /// All others that have a request, by P.
    ready: Heap<u128>,
    /// Those of `ready` with a reservation, by R.
    reserved: Heap<u64>,
    /// The lowest P of `ready` when the last request began: where new and idle clients begin.
    lowest: u128,
    now_ns: u64,
    under_way: usize,
    waiting: usize,
    /// Dispatches for reservations in a row while another client was ready.
    reserved_run: u32,
    turns_by_weight: u64,
    capacity: Capacity,
}

impl Scheduler {
    /// A group without clients.
    ///
    /// # Errors
    /// When the configuration is out of its bounds.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            clients: Clients::default(),
            requests: Table::default(),
            held: Heap::new(),
            ready: Heap::new(),
            reserved: Heap::new(),
            lowest: 0,
            now_ns: 0,
            under_way: 0,
            waiting: 0,
            reserved_run: 0,
            turns_by_weight: 0,
            capacity: Capacity::default(),
        })
    }

    /// Adds a client.
    ///
    /// # Errors
    /// When it is there already, the settings can't hold, or the group is full.
    pub fn add(
        &mut self,
        now_ns: u64,
        client: Client,
        settings: Settings,
    ) -> Result<ClientId, Refusal> {
        self.pass(now_ns);
        settings.check()?;
        let id = self.clients.add(client, settings, self.now_ns)?;
        if self.config.mutants.is(Mutant::NewBeginsLast) {
            let highest = self.clients.highest_share();
            self.clients.at_mut(id.index).tags.lift(highest);
        }
        Ok(id)
    }

    /// The client with this name.
    pub fn find(&self, client: Client) -> Option<ClientId> {
        self.clients.find(client)
    }

    /// Changes a client's settings; they count from its first waiting request on.
    ///
    /// # Errors
    /// When there is no such client, or the settings can't hold.
    pub fn change(&mut self, now_ns: u64, id: ClientId, settings: Settings) -> Result<(), Refusal> {
        self.pass(now_ns);
        settings.check()?;
        let now_ns = self.now_ns;
        let slot = self.clients.get_mut(id).ok_or(Refusal::UnknownClient)?;
        if slot.settings == settings {
            return Ok(());
        }
        slot.tags.change(&slot.settings, &settings, now_ns, self.config.mutants);
        slot.settings = settings;
        self.take_out(id.index);
        let start = self.start();
        self.clients.at_mut(id.index).tags.lift(start);
        self.put_in(id.index);
        Ok(())
    }

    /// Removes a client. The tokens of its waiting requests are appended to `given_back` in order of
    /// arrival: they belong to the caller again. Requests under way stay so until they are completed.
    ///
    /// # Errors
    /// When there is no such client.
    pub fn remove(
        &mut self,
        now_ns: u64,
        id: ClientId,
        given_back: &mut Vec<u64>,
    ) -> Result<(), Refusal> {
        self.pass(now_ns);
        let slot = self.clients.get_mut(id).ok_or(Refusal::UnknownClient)?;
        while let Some(ticket) = self.requests.ticket(&slot.line, false) {
            given_back.push(self.requests.drop_waiting(&mut slot.line, ticket).token);
            self.waiting -= 1;
        }
        self.take_out(id.index);
        self.clients.remove(id);
        Ok(())
    }

    /// A request arrives.
    ///
    /// # Errors
    /// When its client's queue is full, or there is no such client; the request stays with the caller.
    pub fn submit(&mut self, now_ns: u64, request: Request) -> Result<Admitted, Refusal> {
        self.pass(now_ns);
        let mutants = self.config.mutants;
        let start = self.start();
        let Request { client: id, op, token } = request;
        let slot = self.clients.get_mut(id).ok_or(Refusal::UnknownClient)?;
        let cost = match op.cost() {
            None if mutants.is(Mutant::ProofWaits) => Cost::of_length(0),
            Some(_) if op == Op::Flush && mutants.is(Mutant::FlushFree) => Cost::ZERO,
            Some(_) if mutants.is(Mutant::LengthIgnored) => Cost::of_length(0),
            Some(cost) => cost,
            None => {
                slot.counters.exempt += 1;
                return Ok(Admitted::Exempt);
            }
        };
        let shared = mutants.is(Mutant::SharedQueue);
        let queued = if shared { self.waiting } else { slot.line.count };
        if queued >= self.config.waiting_max {
            slot.counters.refused += 1;
            return Err(Refusal::Full(self.config.waiting_max));
        }
        let (client, client_turn) = (id.index, id.turn);
        let entry = NewEntry { token, client, client_turn, cost, arrival_ns: self.now_ns };
        let ticket = self.requests.push(&mut slot.line, entry);
        self.waiting += 1;
        if slot.line.count == 1 {
            slot.wake(self.now_ns, start, mutants);
            self.put_in(id.index);
        }
        Ok(Admitted::Waits(ticket))
    }

    /// Takes a waiting request back; gives its token, or nothing if it does not wait any more.
    pub fn withdraw(&mut self, now_ns: u64, ticket: Ticket) -> Option<u64> {
        self.pass(now_ns);
        let entry = self.requests.waiting(ticket)?;
        let now_ns = self.now_ns;
        let slot = self.clients.at_mut(entry.client);
        self.requests.drop_waiting(&mut slot.line, ticket);
        slot.rest(now_ns);
        slot.counters.withdrawn += 1;
        self.waiting -= 1;
        self.take_out(entry.client);
        if !self.config.mutants.is(Mutant::WithdrawnTakesAll) {
            self.put_in(entry.client);
        }
        Some(entry.token)
    }

    /// Requests have been completed by the back end, or given up.
    ///
    /// # Panics
    /// When one of them is not under way.
    pub fn complete(&mut self, now_ns: u64, tickets: &[Ticket]) {
        self.pass(now_ns);
        for &ticket in tickets {
            let entry = self.requests.finish(ticket);
            self.capacity.complete(entry.cost);
            let id = ClientId { index: entry.client, turn: entry.client_turn };
            if let Some(slot) = self.clients.get_mut(id) {
                slot.under_way -= 1;
                slot.rest(self.now_ns);
            } else if self.config.mutants.is(Mutant::RemovedKeepsDepth) {
                continue;
            }
            self.under_way -= 1;
        }
    }

    /// Other numbers of requests under way at most; what is beyond ends first.
    ///
    /// # Errors
    /// When it is zero or above [`DEPTH_MAX`].
    pub fn set_depth(&mut self, now_ns: u64, depth: usize) -> Result<(), ConfigError> {
        self.pass(now_ns);
        Config { depth, ..self.config }.check()?;
        self.config.depth = depth;
        Ok(())
    }

    /// When to call [`take`](Self::take) again at the latest, in ns: a limit lets a request through
    /// then. None if nothing is held back, or if a completion has to come first.
    pub fn wake_at(&self) -> Option<u64> {
        if self.under_way >= self.config.depth || self.config.mutants.is(Mutant::NoWakeUp) {
            return None;
        }
        match self.ready.first() {
            Some(_) => Some(self.now_ns),
            None => self.held.first().map(|(limit_ns, _)| limit_ns),
        }
    }

    pub fn report(&self) -> GroupReport {
        GroupReport {
            depth: self.config.depth,
            under_way: self.under_way,
            waiting: self.waiting,
            clients: self.clients.len(),
            reservations: Reservations {
                reserved_iops: self.clients.reserved_iops(),
                capacity_iops: self.capacity.iops(),
            },
            turns_by_weight: self.turns_by_weight,
        }
    }

    /// A client as it is; none if there is no such client.
    pub fn client(&self, id: ClientId) -> Option<ClientReport> {
        let slot = self.clients.get(id)?;
        let head = slot.head(&self.requests, self.config.mutants);
        let due_ns = head.and_then(|head| head.reservation_ns);
        let arrival_ns = self.requests.first(&slot.line).map_or(0, |first| first.arrival_ns);
        let behind_ns = due_ns.map_or(0, |due| self.now_ns.saturating_sub(due.max(arrival_ns)));
        Some(ClientReport {
            settings: slot.settings,
            waiting: slot.line.count,
            under_way: slot.under_way,
            behind_ns,
            ..slot.report()
        })
    }

    /// Time goes on, never back.
    fn pass(&mut self, now_ns: u64) {
        let back = self.config.mutants.is(Mutant::ClockBack);
        self.now_ns = if back { now_ns } else { self.now_ns.max(now_ns) };
        self.capacity.pass(self.now_ns, self.under_way >= self.config.depth);
        debug_assert!(self.under_way <= DEPTH_MAX || self.config.mutants.is(Mutant::DepthIgnored));
    }
}
