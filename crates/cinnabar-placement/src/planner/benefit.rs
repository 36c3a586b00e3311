//! The default planner: the most saved time for each byte of the fast pool, if it pays for its copies.

use super::{First, colder, hotter, streak};
use super::{Gain, Move, Planner, ROUNDS_DOWN, ROUNDS_UP, Rated, Reason, View};
use crate::device::{Devices, Direction};
use crate::geometry::Pool;
use crate::heat::Heat;
use crate::limits::ROUND_MOVES_MAX;
use crate::record::State;

/// A rate at which an extent is forgotten, in scores a second: one small request in a day.
const COLD_RATE: f32 = 1e-5;
/// An extent leaves the fast pool without another one that wants its room at this part of the rate at
/// which one comes there.
const IDLE_PART: f32 = 0.25;

/// An extent displaces another one if its rate is higher by this factor, beyond what the copies cost:
/// of many that are about as hot none gains by taking another one's place.
const CLEARLY: f32 = 1.25;

/// What an operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenefitSettings {
    /// Seconds from round to round.
    pub period_s: f64,
    /// Seconds after which what was seen counts a third.
    pub memory_s: f64,
    /// Seconds within which a move must have saved what its copies cost.
    pub horizon_s: f64,
}

impl Default for BenefitSettings {
    /// A round in 30 s, a memory of 5 minutes, a horizon of 30 minutes.
    fn default() -> Self {
        Self { period_s: 30.0, memory_s: 300.0, horizon_s: 1800.0 }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Benefit {
    settings: BenefitSettings,
    devices: Devices,
    /// Seconds that were seen.
    age_s: f64,
}

/// What a round is decided with.
struct Terms {
    /// What the averages have seen of their memory: rates are too low by this factor.
    seen: f32,
    /// Scores a second at which the copies pay within the horizon.
    pays: f32,
    /// Seconds that both copies cost.
    cost_s: f64,
}

impl Benefit {
    /// With what the pools' devices take.
    pub fn new(settings: BenefitSettings, devices: Devices) -> Self {
        Self { settings, devices, age_s: 0.0 }
    }

    /// Brings the averages up to date, forgets what is cold, and gives the last one of those that pay
    /// and for which there are places.
    fn average(&mut self, heat: &mut Heat, view: &View<'_>) -> (Terms, Option<Rated>) {
        let seconds = view.seconds.max(1e-3);
        self.age_s += seconds;
        let part = |seconds: f64| (1.0 - (-seconds / self.settings.memory_s).exp()) as f32;
        // At first the averages know little, and one request is not to count for many.
        let (new, seen) = (part(seconds), part(self.age_s).max(0.5));
        let cost_s = self.devices.both_copies_ns(view.table.extent_bytes()) / 1e9;
        let pays = cost_s / (self.settings.horizon_s * self.devices.unit_ns() / 1e9);
        let terms = Terms { seen, pays: pays as f32, cost_s };
        // All extents count the same bytes, so the rate ranks them by rate per byte.
        let places = usize::try_from(view.budget_bytes / view.table.extent_bytes());
        let places = places.unwrap_or(usize::MAX);
        let mut paying = First::new(places, hotter);
        heat.each_warm(|extent, cell, _| {
            let now = cell.score / seconds as f32;
            (cell.rate, cell.score) = (cell.rate + new * (now - cell.rate), 0.0);
            let record = view.table.get(extent);
            let rate = cell.rate / seen;
            // One that is in the fast pool keeps its place at half of what brings one there.
            let in_fast = record.occupies(Pool::Fast);
            if rate >= if in_fast { terms.pays / 2.0 } else { terms.pays } {
                paying.offer((rate, extent));
            }
            in_fast || rate >= COLD_RATE
        });
        heat.next_round();
        // With places to spare each one that pays has one.
        let last = paying.last().unwrap_or((f32::NEG_INFINITY, u32::MAX));
        (terms, (places > 0).then_some(last))
    }

    fn gain(&self, rate: f32, terms: &Terms) -> Gain {
        let per_second = f64::from(rate) * self.devices.unit_ns() / 1e9;
        Gain::Time { per_second, cost_s: terms.cost_s }
    }

    /// Extents that are to go up, and down, after as many rounds of the same mind.
    fn tend(
        heat: &mut Heat,
        view: &View<'_>,
        terms: &Terms,
        last: Option<Rated>,
    ) -> (Vec<Rated>, Vec<Rated>) {
        let first = |order| First::new(ROUND_MOVES_MAX, order);
        let (mut up, mut down) = (first(hotter), first(colder));
        let over = view.fast_bytes > view.budget_bytes;
        heat.each_warm(|extent, cell, rounds| {
            let record = view.table.get(extent);
            let in_fast = record.pool == Pool::Fast && record.state != State::Absent;
            let rate = cell.rate / terms.seen;
            let worth = rate >= if in_fast { terms.pays / 2.0 } else { terms.pays };
            let placed = last.is_some_and(|last| hotter((rate, extent), last).is_le());
            *rounds = streak(*rounds, (worth && placed) != in_fast, in_fast);
            if *rounds >= ROUNDS_UP && (view.may_move)(extent) {
                up.offer((rate, extent));
            }
            let leaves = *rounds <= -ROUNDS_DOWN || over && in_fast;
            if leaves && (view.may_move)(extent) {
                down.offer((rate, extent));
            }
            true
        });
        (up.take(ROUND_MOVES_MAX), down.take(ROUND_MOVES_MAX))
    }
}

impl Planner for Benefit {
    fn name(&self) -> &'static str {
        "benefit"
    }

    fn period_s(&self) -> f64 {
        self.settings.period_s
    }

    fn score(&self, direction: Direction, length: u64, sequential: bool) -> f32 {
        self.devices.score(direction, length, sequential)
    }

    fn round(&mut self, heat: &mut Heat, view: &View<'_>, moves: &mut Vec<Move>) {
        let (terms, last) = self.average(heat, view);
        let (up, down) = Self::tend(heat, view, &terms, last);
        let extent_bytes = view.table.extent_bytes();
        let mut over = view.fast_bytes.saturating_sub(view.budget_bytes).div_ceil(extent_bytes);
        let mut room = view.room();
        let (mut down, first) = (down.into_iter().peekable(), moves.len());
        let leave = |rate: f32, extent, reason| Move {
            extent,
            to: Pool::Slow,
            gain: self.gain(-rate, &terms),
            reason,
        };
        while let (1.., Some((rate, extent))) = (over, down.peek().copied()) {
            (over, _) = (over - 1, down.next());
            moves.push(leave(rate, extent, Reason::OverBudget));
        }
        for (rate, extent) in up {
            if moves.len() - first >= ROUND_MOVES_MAX {
                return;
            }
            if room > 0 {
                room -= 1;
                let (to, reason) = (Pool::Fast, Reason::Hot);
                moves.push(Move { extent, to, gain: self.gain(rate, &terms), reason });
                continue;
            }
            // The room of one that leaves is there when its object is deleted: for the next round.
            let better = |cold: f32| rate > cold * CLEARLY + 2.0 * terms.pays;
            let Some((cold, victim)) = down.next_if(|(cold, _)| better(*cold)) else { break };
            moves.push(leave(cold, victim, Reason::Displaced(extent)));
        }
        let idle = terms.pays * IDLE_PART;
        let left = ROUND_MOVES_MAX.saturating_sub(moves.len() - first);
        let idle = down.filter(|(rate, _)| *rate < idle).take(left);
        moves.extend(idle.map(|(rate, extent)| leave(rate, extent, Reason::Cold)));
    }
}
