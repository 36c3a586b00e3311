//! Which request begins next: due reservations first, then the lowest proportional tag.

use super::{ClientId, Dispatch, Phase, Scheduler};
use crate::qos::limits::RESERVED_RUN_MAX;
use crate::qos::mutant::Mutant;
use crate::qos::tags::Served;

impl Scheduler {
    /// Appends the requests that begin now, as many as depth and limits allow, in their order.
    pub fn take(&mut self, now_ns: u64, begin: &mut Vec<Dispatch>) {
        self.pass(now_ns);
        let unbounded = self.config.mutants.is(Mutant::DepthIgnored);
        while self.under_way < self.config.depth || unbounded {
            self.promote();
            let Some((client, phase)) = self.choose() else { break };
            begin.push(self.begin(client, phase));
        }
    }

    /// Clients whose limit lets them through now are ready.
    fn promote(&mut self) {
        let mutants = self.config.mutants;
        while let Some((limit_ns, client)) = self.held.first() {
            if limit_ns > self.now_ns {
                break;
            }
            self.take_out(client);
            // Held back by its own limit is as good as idle: it catches nothing up by its weight.
            let start = self.start();
            if !mutants.is(Mutant::HeldCredit) {
                self.clients.at_mut(client).tags.lift(start);
            }
            self.put_in(client);
        }
    }

    /// The client whose first request begins, and why.
    fn choose(&mut self) -> Option<(u32, Phase)> {
        let mutants = self.config.mutants;
        let lowest = self.ready.first().map(|(_, client)| client);
        let due = self.reserved.first().filter(|(due_ns, _)| *due_ns <= self.now_ns);
        let (Some((_, due)), Some(lowest)) = (due, lowest) else {
            self.reserved_run = 0;
            let beyond = due.map(|(_, client)| (client, Phase::Reservation));
            return lowest.map(|client| (client, Phase::Weight)).or(beyond);
        };
        if mutants.is(Mutant::ReservationsByWeight) {
            return Some((lowest, Phase::Reservation));
        }
        if mutants.is(Mutant::WeightsFirst) {
            return Some((lowest, Phase::Weight));
        }
        if self.is_due(lowest) {
            return Some((due, Phase::Reservation));
        }
        // A client without a due reservation is ready. It gets a turn now and then even if reservations
        // take all the back end can do: a volume that stands still would never time out.
        if self.reserved_run >= RESERVED_RUN_MAX && !mutants.is(Mutant::NoTurnByWeight) {
            self.reserved_run = 0;
            self.turns_by_weight += 1;
            return Some((lowest, Phase::Weight));
        }
        self.reserved_run += 1;
        Some((due, Phase::Reservation))
    }

    fn is_due(&mut self, client: u32) -> bool {
        let head = self.clients.at_mut(client).head(&self.requests, self.config.mutants);
        head.and_then(|head| head.reservation_ns).is_some_and(|due_ns| due_ns <= self.now_ns)
    }

    /// The first request of a client begins.
    fn begin(&mut self, client: u32, phase: Phase) -> Dispatch {
        let mutants = self.config.mutants;
        self.lowest = self.lowest_ready();
        self.take_out(client);
        let now_ns = self.now_ns;
        let slot = self.clients.at_mut(client);
        let head =
            slot.head(&self.requests, self.config.mutants).expect("a ready client has a request");
        let last = mutants.is(Mutant::LastInFirstOut);
        let ticket = self.requests.ticket(&slot.line, last).expect("so its line has one");
        let entry = self.requests.begin(&mut slot.line, ticket);
        let served = Served { cost: entry.cost, phase, now_ns, lowest: self.lowest };
        slot.tags.serve(&head, &slot.settings, &served, mutants);
        slot.under_way += 1;

        let waited_ns = now_ns.saturating_sub(entry.arrival_ns);
        let held_ns = head.limit_ns.saturating_sub(entry.arrival_ns).min(waited_ns);
        let queued_ns = waited_ns - held_ns;
        let counters = &mut slot.counters;
        let (count, queued) = match phase {
            Phase::Reservation => {
                (&mut counters.by_reservation, &mut counters.reservation_queued_ns)
            }
            Phase::Weight => (&mut counters.by_weight, &mut counters.weight_queued_ns),
        };
        *count += 1;
        *queued = queued.saturating_add(queued_ns);
        counters.cost += entry.cost;
        counters.held_ns = counters.held_ns.saturating_add(held_ns);
        counters.waited_ns_max = counters.waited_ns_max.max(waited_ns);

        self.waiting -= 1;
        self.under_way += 1;
        self.put_in(client);
        Dispatch {
            ticket,
            client: ClientId { index: client, turn: entry.client_turn },
            token: entry.token,
            cost: entry.cost,
            phase,
            dispatched_ns: now_ns,
            held_ns,
            queued_ns,
        }
    }

    /// The lowest proportional tag of those that are ready. Those held back by a limit don't count, for
    /// their tags lag. It never falls, and stays while nothing waits.
    fn lowest_ready(&self) -> u128 {
        self.ready.first().map_or(self.lowest, |(share, _)| self.lowest.max(share))
    }

    /// Where new and idle clients begin: the lowest proportional tag when the last request began. Not the
    /// lowest that waits now: a client with one request at a time would be put behind those that
    /// waited meanwhile, whatever its weight.
    pub(super) fn start(&self) -> u128 {
        let waiting = self.config.mutants.is(Mutant::StartBehindWaiting);
        if waiting { self.lowest_ready() } else { self.lowest }
    }

    /// Puts a client where its first waiting request belongs, if it has one.
    pub(super) fn put_in(&mut self, client: u32) {
        let mutants = self.config.mutants;
        let slot = self.clients.at_mut(client);
        let Some(head) = slot.head(&self.requests, self.config.mutants) else { return };
        let held = head.limit_ns > self.now_ns && !mutants.is(Mutant::LimitIgnored);
        if held {
            self.held.insert(client, head.limit_ns);
        } else {
            self.ready.insert(client, head.share);
        }
        if let Some(due_ns) = head.reservation_ns
            && (!held || mutants.is(Mutant::ReservationBeyondLimit))
        {
            self.reserved.insert(client, due_ns);
        }
    }

    /// Takes a client out, wherever it is.
    pub(super) fn take_out(&mut self, client: u32) {
        self.held.remove(client);
        self.ready.remove(client);
        self.reserved.remove(client);
    }
}
