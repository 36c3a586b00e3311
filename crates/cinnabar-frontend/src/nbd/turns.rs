//! Whose turn it is: exports in deficit round robin.
//!
//! A turn of the loop serves each export that has work once, for 32 requests or 2 MiB of data, whatever number of
//! connections it has; for 4 requests or 256 KiB in a [short turn](crate::turn_length). What a turn costs beyond that
//! is owed: an export that reads 32 MiB at once pays in its next 127 short turns, as long as others have work.
//! Clients in the handshake share one turn. Of replies, each export sends up to 64 KiB in a short turn.

use super::export::ExportId;
use super::mutant::{Mutant, Mutants};
use crate::turn_length::{COST_BYTES, SHORT, TurnLength};
use cinnabar_engine::seam::units::Instant;
use std::collections::{BTreeMap, VecDeque};

/// What an export may have in a turn: 1 for a request or 64 KiB.
const QUANTUM: i64 = 32;

/// Whose connections take turns together: an export's, or those in the handshake.
type Tenant = Option<ExportId>;

/// Connections with work, by export.
#[derive(Debug)]
pub(super) struct Turns {
    queues: BTreeMap<Tenant, Queue>,
    /// Exports that have work, the next one first.
    order: VecDeque<Tenant>,
    pub(super) length: TurnLength,
    /// When this turn began, and what each export may have in it.
    now: Instant,
    quantum: i64,
    /// What each has sent in this turn, in bytes.
    sent: BTreeMap<Tenant, u64>,
    mutants: Mutants,
}

#[derive(Debug, Default)]
struct Queue {
    /// What it may have in this turn; below 0 it owes that.
    credit: i64,
    connections: VecDeque<u64>,
    /// It is in the order already.
    in_order: bool,
    /// Until when it counts as asking for much.
    much_until: Instant,
}

impl Turns {
    pub(super) fn new(mutants: Mutants) -> Self {
        Self {
            queues: BTreeMap::new(),
            order: VecDeque::new(),
            length: TurnLength::default(),
            now: Instant::default(),
            quantum: QUANTUM,
            sent: BTreeMap::new(),
            mutants,
        }
    }

    /// Whether no connection has work.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// A connection has work. It must not be here already.
    pub(super) fn add(&mut self, tenant: Tenant, key: u64) {
        let queue = self.queues.entry(tenant).or_default();
        queue.connections.push_back(key);
        if !std::mem::replace(&mut queue.in_order, true) {
            self.order.push_back(tenant);
        }
    }

    /// Begins a turn; those that are to be served, and how many connections each has.
    pub(super) fn begin(&mut self, now: Instant) -> Vec<(Tenant, usize)> {
        self.now = now;
        self.quantum = if self.length.is_short(now) { SHORT } else { QUANTUM };
        // As many rounds as it takes for one of them to be served.
        let with_work = self.queues.values().filter(|queue| !queue.connections.is_empty());
        let most = with_work.map(|queue| queue.credit).max().unwrap_or_default();
        let rounds = 1 + (-most).max(0) / self.quantum;
        for queue in self.queues.values_mut() {
            queue.credit = (queue.credit + rounds * self.quantum).min(self.quantum);
        }
        let lasts = |queue: &Queue| queue.credit < 0 || queue.much_until > now;
        self.queues.retain(|_, queue| lasts(queue) || !queue.connections.is_empty());
        let all = std::mem::take(&mut self.order);
        let begin = |tenant| {
            let queue = self.queues.entry(tenant).or_default();
            queue.in_order = false;
            (tenant, queue.connections.len())
        };
        all.into_iter().map(begin).collect()
    }

    /// The next connection of an export, with what is left of its turn.
    pub(super) fn next(&mut self, tenant: Tenant) -> Option<(u64, i64)> {
        let queue = self.queues.get_mut(&tenant).filter(|queue| queue.credit > 0)?;
        let key = queue.connections.pop_front()?;
        Some((key, queue.credit))
    }

    /// This is left when the connection was served.
    pub(super) fn leave(&mut self, tenant: Tenant, credit: i64) {
        if let Some(queue) = self.queues.get_mut(&tenant)
            && !self.mutants.is(Mutant::TurnByConnection)
        {
            queue.credit = credit;
        }
    }

    /// A turn's replies are to be sent.
    pub(super) fn begin_sending(&mut self) {
        self.sent.clear();
    }

    /// How many bytes an export that has replies may still send.
    pub(super) fn may_send(&self, now: Instant, tenant: Tenant) -> usize {
        if !self.length.is_short(now) {
            return usize::MAX;
        }
        let sent = self.sent.get(&tenant).copied().unwrap_or_default();
        COST_BYTES.saturating_sub(sent) as usize
    }

    /// An export has sent so many bytes.
    pub(super) fn has_sent(&mut self, tenant: Tenant, bytes: u64) {
        *self.sent.entry(tenant).or_default() += bytes;
    }

    /// An export was served; what is left waits for the next turn, behind others.
    pub(super) fn end(&mut self, tenant: Tenant) {
        let Some(queue) = self.queues.get_mut(&tenant) else { return };
        // Nobody waits for clients in the handshake.
        if tenant.is_some() {
            let much = !queue.connections.is_empty() || queue.credit < self.quantum - SHORT;
            self.length.note(self.now, &mut queue.much_until, much);
        }
        if !queue.connections.is_empty() && !std::mem::replace(&mut queue.in_order, true) {
            self.order.push_back(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Tenant = Some(ExportId(1));
    const B: Tenant = Some(ExportId(2));

    /// A turn in which each connection asks for so many requests of a cost, and again behind it; returns what each
    /// export got.
    fn turn(turns: &mut Turns, asks: impl Fn(u64) -> (u32, i64)) -> BTreeMap<Tenant, i64> {
        let mut got = BTreeMap::new();
        for (tenant, connections) in turns.begin(Instant(0)) {
            let mut whole = Vec::new();
            for _ in 0..connections {
                let Some((key, mut credit)) = turns.next(tenant) else { break };
                let (requests, cost) = asks(key);
                let served = (0..requests).take_while(|_| {
                    let goes_on = credit > 0;
                    if goes_on {
                        credit -= cost;
                        *got.entry(tenant).or_default() += cost;
                    }
                    goes_on
                });
                if served.count() as u32 == requests {
                    whole.push(key);
                } else {
                    turns.add(tenant, key);
                }
                turns.leave(tenant, credit);
            }
            turns.end(tenant);
            for key in whole {
                turns.add(tenant, key);
            }
        }
        got
    }

    fn turns() -> Turns {
        let mut turns = Turns::new(Mutants::NONE);
        (0..64).for_each(|key| turns.add(A, key));
        turns
    }

    #[test]
    fn many_connections_get_what_one_gets() {
        let mut turns = turns();
        turns.add(B, 64);
        for at in 0..100 {
            let got = turn(&mut turns, |key| (if key == 64 { 1 } else { 512 }, 1));
            let most = if at == 0 { QUANTUM } else { SHORT };
            assert_eq!((got[&A], got[&B]), (most, 1));
        }
    }

    #[test]
    fn one_alone_owes_nothing() {
        let mut turns = turns();
        for _ in 0..3 {
            assert_eq!(turn(&mut turns, |_| (512, 1))[&A], QUANTUM);
            assert_eq!(turn(&mut turns, |_| (1, 512))[&A], 512);
        }
    }

    #[test]
    fn those_that_ask_for_much_have_long_turns() {
        let mut turns = turns();
        turns.add(B, 64);
        for _ in 0..100 {
            let got = turn(&mut turns, |_| (33, 1));
            assert_eq!((got[&A], got[&B]), (QUANTUM, QUANTUM));
        }
    }

    #[test]
    fn what_costs_more_than_a_turn_is_owed() {
        let mut turns = turns();
        turns.add(B, 64);
        let cost = |key| if key == 64 { (33, 1) } else { (1, 512) };
        let (mut of_a, mut of_b) = (0, 0);
        for _ in 0..160 {
            let got = turn(&mut turns, cost);
            of_a += got.get(&A).copied().unwrap_or_default();
            of_b += got.get(&B).copied().unwrap_or_default();
        }
        assert_eq!((of_a, of_b), (5120, 5120), "in the long run both get the same");
    }

    #[test]
    fn where_all_owe_one_is_served_all_the_same() {
        let mut turns = turns();
        turns.add(B, 64);
        for _ in 0..20 {
            assert!(!turn(&mut turns, |_| (1, 5000)).is_empty());
        }
    }

    /// Counts for a while what a tenant with one request a turn waits for, beside others that have as many
    /// connections, and requests each, of this cost.
    fn waits(others: &[(u64, u32, i64)], mutants: Mutants) -> Result<(), String> {
        const TURNS: i64 = 100;
        const EACH: i64 = SHORT;
        const QUIET: Tenant = Some(ExportId(u32::MAX));
        let mut turns = Turns::new(mutants);
        turns.length.follow(Instant(1));
        let tenant = |at: usize| Some(ExportId(at as u32));
        turns.add(QUIET, 0);
        for (at, (connections, ..)) in others.iter().enumerate() {
            (1..=*connections).for_each(|key| turns.add(tenant(at), (at as u64) << 8 | key));
        }
        let asks = |key: u64| {
            let (_, requests, cost) = if key == 0 { (1, 1, 1) } else { others[key as usize >> 8] };
            (requests, cost)
        };
        let mut all = vec![(0, 0); others.len()];
        for turn_number in 0..TURNS {
            let got = turn(&mut turns, asks);
            if got.get(&QUIET) != Some(&1) {
                return Err(format!("in turn {turn_number} it is not served"));
            }
            for (at, (sum, unserved)) in all.iter_mut().enumerate() {
                let (cost, of_turn) = (others[at].2, got.get(&tenant(at)).copied().unwrap_or(0));
                *sum += of_turn;
                *unserved = if of_turn > 0 { 0 } else { *unserved + 1 };
                if of_turn >= EACH + cost || *unserved > cost / EACH + 1 {
                    return Err(format!("{at} has {of_turn} in turn {turn_number}: {unserved}"));
                }
            }
        }
        for ((sum, _), (connections, requests, cost)) in all.into_iter().zip(others) {
            let wants = (connections.cast_signed() * i64::from(*requests) * cost).min(EACH) * TURNS;
            if sum < wants - cost || sum > EACH * TURNS + cost {
                return Err(format!("of {wants} one has had {sum}"));
            }
        }
        Ok(())
    }

    proptest! {
        /// With any others that ask for anything: one that owes nothing is served in each turn, behind
        /// a turn and one request of each other; one that owes waits until that is paid; in the long run all
        /// have the same.
        #[test]
        fn drawn_tenants_wait_for_a_turn_of_each_other(
            others in prop::collection::vec((1_u64..65, 1_u32..600, 1_i64..513), 1..12),
        ) {
            prop_assert_eq!(waits(&others, Mutants::NONE), Ok(()));
        }
    }

    #[test]
    fn a_turn_for_each_connection_is_found() {
        let found = waits(&[(8, 100, 1)], Mutants::only(Mutant::TurnByConnection));
        assert!(found.is_err());
    }
}
