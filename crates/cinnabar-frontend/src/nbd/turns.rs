//! Whose turn it is: exports in deficit round robin.
//!
//! A turn of the loop serves each export that has work once, for 32 requests or 2 MiB of data, whatever number of
//! connections it has; for 4 requests or 256 KiB while others have work, too. A request waits for some two turns:
//! until it is received, until it has been read. So a neighbour's flood delays it by some ten others, not by all
//! that 64 connections may ask for. What a turn costs beyond that is owed: an export that reads 32 MiB at once
//! pays in its next 127 turns, as long as others have work. Clients in the handshake share one turn.

use super::export::ExportId;
use super::mutant::{Mutant, Mutants};
use cinnabar_engine::seam::units::Instant;
use std::collections::{BTreeMap, VecDeque};

/// What an export may have in a turn if no other one has had work lately: turns cost something, too.
const QUANTUM_ALONE: i64 = 32;
/// What each may have if others had.
const QUANTUM: i64 = 4;
/// How long others count that have no work at the moment, in nanoseconds: their next request may be on its way.
const LATELY_NS: u64 = 50_000_000;

/// Whose connections take turns together: an export's, or those in the handshake.
type Tenant = Option<ExportId>;

/// Connections with work, by export.
#[derive(Debug)]
pub(super) struct Turns {
    queues: BTreeMap<Tenant, Queue>,
    /// Exports that have work, the next one first.
    order: VecDeque<Tenant>,
    /// The one that was served last.
    last: Option<Tenant>,
    /// Until when others count, too.
    shared_until: Instant,
    mutants: Mutants,
}

#[derive(Debug, Default)]
struct Queue {
    /// What it may have in this turn; below 0 it owes that.
    credit: i64,
    connections: VecDeque<u64>,
    /// It is in the order already.
    in_order: bool,
}

impl Turns {
    pub(super) const fn new(mutants: Mutants) -> Self {
        Self {
            queues: BTreeMap::new(),
            order: VecDeque::new(),
            last: None,
            shared_until: Instant(0),
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
        let Some(last) = self.order.back().copied() else { return Vec::new() };
        if self.order.len() > 1 || self.last.is_some_and(|earlier| earlier != last) {
            self.shared_until = now.plus_ns(LATELY_NS);
        }
        self.last = Some(last);
        if self.order.len() == 1 {
            let credit = if now < self.shared_until { QUANTUM } else { QUANTUM_ALONE };
            self.queues.retain(|tenant, _| *tenant == last);
            self.queues.entry(last).or_default().credit = credit;
        } else {
            // As many rounds as it takes for one of them to be served.
            let with_work = self.queues.values().filter(|queue| !queue.connections.is_empty());
            let most = with_work.map(|queue| queue.credit).max().unwrap_or_default();
            let rounds = 1 + (-most).max(0) / QUANTUM;
            for queue in self.queues.values_mut() {
                queue.credit = (queue.credit + rounds * QUANTUM).min(QUANTUM);
            }
            self.queues.retain(|_, queue| queue.credit < 0 || !queue.connections.is_empty());
        }
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

    /// An export was served; what is left waits for the next turn, behind others.
    pub(super) fn end(&mut self, tenant: Tenant) {
        let Some(queue) = self.queues.get_mut(&tenant) else { return };
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

    /// A turn in which each connection asks for so many requests of a cost; returns what each export got.
    fn turn(turns: &mut Turns, asks: impl Fn(u64) -> (u32, i64)) -> BTreeMap<Tenant, i64> {
        let mut got = BTreeMap::new();
        for (tenant, connections) in turns.begin(Instant(0)) {
            for _ in 0..connections {
                let Some((key, mut credit)) = turns.next(tenant) else { break };
                let (requests, cost) = asks(key);
                for _ in 0..requests {
                    if credit <= 0 {
                        break;
                    }
                    credit -= cost;
                    *got.entry(tenant).or_default() += cost;
                }
                turns.leave(tenant, credit);
                turns.add(tenant, key);
            }
            turns.end(tenant);
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
        for _ in 0..100 {
            let got = turn(&mut turns, |key| (if key == 64 { 1 } else { 512 }, 1));
            assert_eq!((got[&A], got[&B]), (QUANTUM, 1));
        }
    }

    #[test]
    fn one_alone_owes_nothing() {
        let mut turns = turns();
        for _ in 0..3 {
            assert_eq!(turn(&mut turns, |_| (512, 1))[&A], QUANTUM_ALONE);
            assert_eq!(turn(&mut turns, |_| (1, 512))[&A], 512);
        }
    }

    #[test]
    fn beside_one_that_asks_now_and_then_turns_are_short() {
        let mut turns = turns();
        let credit = |turns: &mut Turns, now| {
            turns.begin(Instant(now));
            let credit = turns.queues[&A].credit;
            turns.end(A);
            credit
        };
        assert_eq!(credit(&mut turns, 0), QUANTUM_ALONE);
        turns.add(B, 64);
        turns.begin(Instant(0));
        assert_eq!(turns.next(B), Some((64, QUANTUM)));
        turns.end(A);
        turns.end(B);
        assert_eq!(credit(&mut turns, LATELY_NS / 2), QUANTUM);
        assert_eq!(credit(&mut turns, LATELY_NS * 2), QUANTUM_ALONE);
    }

    #[test]
    fn what_costs_more_than_a_turn_is_owed() {
        let mut turns = turns();
        turns.add(B, 64);
        let cost = |key| if key == 64 { (32, 1) } else { (1, 512) };
        let (mut of_a, mut of_b) = (0, 0);
        for _ in 0..1280 {
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
        let mut turns = Turns::new(mutants);
        let tenant = |at: usize| Some(ExportId(at as u32));
        turns.add(None, 0);
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
            if got.get(&None) != Some(&1) {
                return Err(format!("in turn {turn_number} it is not served"));
            }
            for (at, (sum, unserved)) in all.iter_mut().enumerate() {
                let (cost, of_turn) = (others[at].2, got.get(&tenant(at)).copied().unwrap_or(0));
                *sum += of_turn;
                *unserved = if of_turn > 0 { 0 } else { *unserved + 1 };
                if of_turn >= QUANTUM + cost || *unserved > cost / QUANTUM + 1 {
                    return Err(format!("{at} has {of_turn} in turn {turn_number}: {unserved}"));
                }
            }
        }
        for ((sum, _), (connections, requests, cost)) in all.into_iter().zip(others) {
            let wants =
                (connections.cast_signed() * i64::from(*requests) * cost).min(QUANTUM) * TURNS;
            if sum < wants - cost || sum > QUANTUM * TURNS + cost {
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
