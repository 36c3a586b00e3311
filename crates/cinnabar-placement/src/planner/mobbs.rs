//! The planner of MOBBS as its authors coded it, with their constants.
//!
//! X. Ma, K. Chen, W. Shen, Q. Lu, Q. Wei, H. He: *MOBBS: A Multi-tier Block Storage System for Virtual
//! Machines using Object-based Storage*, ICPADS 2014; constants and rules from the authors' public
//! source. Two things are not as they are there: scores are added as floating-point numbers (their
//! integer lost all that is below one), and no promotion goes beyond the budget (they had none).

use super::{
    First, Gain, Move, Planner, ROUNDS_DOWN, ROUNDS_UP, Reason, View, colder, hotter, streak,
};
use crate::device::Direction;
use crate::geometry::Pool;
use crate::heat::Heat;
use crate::limits::ROUND_MOVES_MAX;
use crate::record::State;

/// Rounds of which the one with most active extents counts.
const ACTIVE_ROUNDS: usize = 10;
/// Requests up to these lengths count in full.
const READ_BYTES: u64 = 128 << 10;
const WRITE_BYTES: u64 = 64 << 10;

/// The constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MobbsSettings {
    /// Seconds from round to round.
    pub period_s: f64,
    /// The part of the slow pool's rate that is counted with.
    pub slackness: f64,
    /// Reads a second of one disk of the slow pool.
    pub read_iops: f64,
    /// Writes a second of one disk of the slow pool.
    pub write_iops: f64,
    /// Disks of the slow pool.
    pub disks: f64,
}

impl Default for MobbsSettings {
    /// The authors': 100 s, 0.4, and three disks with 170 reads and 140 writes a second.
    fn default() -> Self {
        Self { period_s: 100.0, slackness: 0.4, read_iops: 170.0, write_iops: 140.0, disks: 3.0 }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Mobbs {
    settings: MobbsSettings,
    /// Active extents of the last rounds.
    active: [u32; ACTIVE_ROUNDS],
    rounds: usize,
}

impl Mobbs {
    /// With these constants.
    pub fn new(settings: MobbsSettings) -> Self {
        Self { settings, active: [0; ACTIVE_ROUNDS], rounds: 0 }
    }
}

impl Planner for Mobbs {
    fn name(&self) -> &'static str {
        "mobbs"
    }

    fn period_s(&self) -> f64 {
        self.settings.period_s
    }

    /// The beneficial score over what the slow pool serves in a period.
    fn score(&self, direction: Direction, length: u64, sequential: bool) -> f32 {
        let MobbsSettings { period_s, slackness, read_iops, write_iops, disks } = self.settings;
        let (small, iops) = match direction {
            Direction::Read => (READ_BYTES, read_iops),
            Direction::Write => (WRITE_BYTES, write_iops),
        };
        let score = if sequential { 0.0 } else { 1.0 / (length / small).max(1) as f64 };
        (score / slackness / (iops * slackness * period_s * disks)) as f32
    }

    fn round(&mut self, heat: &mut Heat, view: &View<'_>, moves: &mut Vec<Move>) {
        self.active[self.rounds % ACTIVE_ROUNDS] = heat.active();
        self.rounds += 1;
        let most = self.active.iter().copied().max().unwrap_or(0) as f32;
        let first = |order| First::new(ROUND_MOVES_MAX, order);
        let (mut up, mut down) = (first(hotter), first(colder));
        heat.each_warm(|extent, cell, rounds| {
            let record = view.table.get(extent);
            let in_fast = record.pool == Pool::Fast && record.state != State::Absent;
            (cell.rate, cell.score) = (cell.score * most, 0.0);
            *rounds = streak(*rounds, (cell.rate >= 1.0) != in_fast, in_fast);
            if *rounds >= ROUNDS_UP && (view.may_move)(extent) {
                up.offer((cell.rate, extent));
            }
            if *rounds <= -ROUNDS_DOWN && (view.may_move)(extent) {
                down.offer((cell.rate, extent));
            }
            in_fast || *rounds != 0
        });
        heat.next_round();
        let down = down.take(ROUND_MOVES_MAX);
        let room = usize::try_from(view.room()).unwrap_or(usize::MAX);
        let up = up.take(room.min(ROUND_MOVES_MAX - down.len()));
        let of = |to, reason| {
            move |(rate, extent): (f32, u32)| Move { extent, to, gain: Gain::Shares(rate), reason }
        };
        moves.extend(down.into_iter().map(of(Pool::Slow, Reason::Cold)));
        moves.extend(up.into_iter().map(of(Pool::Fast, Reason::Hot)));
    }
}
