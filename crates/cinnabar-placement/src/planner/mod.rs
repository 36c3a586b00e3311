//! Which extents move: planners behind one trait.

mod backoff;
mod benefit;
mod mobbs;

pub use backoff::Backoff;
pub use benefit::{Benefit, BenefitSettings};
pub use mobbs::{Mobbs, MobbsSettings};

use crate::device::Direction;
use crate::geometry::Pool;
use crate::heat::Heat;
use crate::table::Table;
use std::cmp::Ordering;
use std::fmt;

/// Rounds in a row in which an extent tends to the fast pool before it goes there.
pub const ROUNDS_UP: i8 = 3;
/// Rounds in a row in which an extent does not before it leaves.
pub const ROUNDS_DOWN: i8 = 5;

/// What a planner sees of a volume.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Where extents are.
    pub table: &'a Table,
    /// Whether an extent may move now.
    pub may_move: &'a dyn Fn(u32) -> bool,
    /// Bytes of the fast pool that the volume may take.
    pub budget_bytes: u64,
    /// Bytes that it takes, copies under way included.
    pub fast_bytes: u64,
    /// Seconds since the last round.
    pub seconds: f64,
}

impl View<'_> {
    /// Extents for which the fast pool has room.
    fn room(&self) -> u64 {
        self.budget_bytes.saturating_sub(self.fast_bytes) / self.table.extent_bytes()
    }
}

/// A move, with what it is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    pub extent: u32,
    /// Where it goes.
    pub to: Pool,
    /// What is gained.
    pub gain: Gain,
    /// Why.
    pub reason: Reason,
}

/// What a move gains; below zero what it loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// Time of the devices.
    Time {
        /// Seconds that are saved each second.
        per_second: f64,
        /// Seconds that the copies cost, there and back.
        cost_s: f64,
    },
    /// Load in equal shares of what the slow pool can serve.
    Shares(f32),
}

/// Why an extent moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Small and random requests, often.
    Hot,
    /// Too few of them.
    Cold,
    /// Its room is worth more to this extent.
    Displaced(u32),
    /// The volume takes more of the fast pool than its budget.
    OverBudget,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {} to {}: ", self.extent, self.to)?;
        match self.reason {
            Reason::Hot => f.write_str("hot"),
            Reason::Cold => f.write_str("cold"),
            Reason::Displaced(by) => write!(f, "extent {by} is hotter"),
            Reason::OverBudget => f.write_str("above the budget"),
        }?;
        match self.gain {
            Gain::Time { per_second, cost_s } => {
                let (ms, cost_ms) = (per_second * 1e3, cost_s * 1e3);
                write!(f, ", saves {ms:.2} ms a second, copies cost {cost_ms:.0} ms")
            }
            Gain::Shares(shares) => write!(f, ", {shares:.2} of an equal share of the slow pool"),
        }
    }
}

/// Decides which extents move.
pub trait Planner {
    /// As an operator writes it.
    fn name(&self) -> &'static str;

    /// Seconds from round to round.
    fn period_s(&self) -> f64;

    /// What a request counts for its extent; [`Heat::note`] takes it.
    fn score(&self, direction: Direction, length: u64, sequential: bool) -> f32;

    /// A round: appends at most [`ROUND_MOVES_MAX`](crate::limits::ROUND_MOVES_MAX) moves, the most
    /// urgent first, and begins the next round of `heat`.
    fn round(&mut self, heat: &mut Heat, view: &View<'_>, moves: &mut Vec<Move>);
}

/// A rate and its extent.
type Rated = (f32, u32);

/// Hottest first; of equally hot ones the lower extent, so that each run gives the same order.
fn hotter(a: Rated, b: Rated) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The first so many of what is offered, without a list of all.
struct First {
    count: usize,
    list: Vec<Rated>,
    order: fn(Rated, Rated) -> Ordering,
    /// The last one that is among the first so far; what comes behind it is not kept.
    bar: Option<Rated>,
}

impl First {
    fn new(count: usize, order: fn(Rated, Rated) -> Ordering) -> Self {
        Self { count, list: Vec::new(), order, bar: None }
    }

    fn offer(&mut self, rated: Rated) {
        if self.count == 0 || self.bar.is_some_and(|bar| (self.order)(rated, bar).is_gt()) {
            return;
        }
        self.list.push(rated);
        if self.list.len() > self.count.saturating_mul(2) {
            self.bar = self.last();
        }
    }

    /// The last one of the first so many, if as many were offered; drops those behind it.
    fn last(&mut self) -> Option<Rated> {
        let last = self.count.checked_sub(1)?;
        if last >= self.list.len() {
            return None;
        }
        let order = self.order;
        self.list.select_nth_unstable_by(last, |a, b| order(*a, *b));
        self.list.truncate(self.count);
        self.list.last().copied()
    }

    /// In order, at most `count` of them.
    fn take(mut self, count: usize) -> Vec<Rated> {
        let order = self.order;
        self.list.sort_unstable_by(|a, b| order(*a, *b));
        self.list.truncate(count.min(self.count));
        self.list
    }
}

/// Coldest first.
fn colder(a: Rated, b: Rated) -> Ordering {
    hotter(b, a)
}

/// The streak after a round in which the extent tends to the other pool, or does not.
fn streak(before: i8, away: bool, in_fast: bool) -> i8 {
    match (away, in_fast) {
        (false, _) => 0,
        (true, false) => before.max(0).saturating_add(1).min(ROUNDS_UP),
        (true, true) => before.min(0).saturating_sub(1).max(-ROUNDS_DOWN),
    }
}

#[cfg(test)]
mod tests;
