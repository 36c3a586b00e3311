//! Hot blocks that become others: how long it takes until throughput is what it was, and what writes wait
//! longer while extents move.

use super::Bench;
use super::load::{Figures, Load, Trace, figures};
use super::side::{Cell, Kind, Look};
use crate::bench::median;
use crate::table::Table;
use anyhow::Result;

const THETA: f64 = 1.5;
const BLOCK: u64 = 4096;
const KINDS: [Kind; 2] = [Kind::Benefit, Kind::Mobbs];
/// Of the steady throughput.
const BACK: f64 = 0.9;
/// Seconds over which throughput is averaged for that, and in which it is looked for.
const WINDOW_S: f64 = 1.0;
const STEP_S: f64 = 0.1;
/// Seconds until fio has connected.
const CONNECTED_S: f64 = 0.5;

/// Seconds by which a move may be told of late, or may have begun earlier.
const TOLD_S: f64 = 1.2;
/// From this part of the time until moves settled on, few hot blocks are on HDD: writes wait for what moves, not
/// for where they go.
const LATE: f64 = 0.75;

/// Latencies of all shifts of a side, in ms.
#[derive(Default)]
struct Seen {
    /// After the shift, before anything moved.
    before: Vec<f64>,
    /// While the new hot blocks came to the SSDs.
    during: Vec<f64>,
    /// Later, while further extents moved, and while none did.
    moving: Vec<f64>,
    quiet: Vec<f64>,
    back_s: Vec<f64>,
    never: usize,
    moved: u64,
    settled: usize,
}

impl Bench<'_> {
    pub(super) fn adapt(&mut self, shifts: u64) -> Result<String> {
        let mut table = Table::new(&[
            "zipf:1.5, 4 KiB",
            "shifts",
            "back at 90 % after, s (median)",
            "longest",
            "moves",
            "p99 ms before moves",
            "while hot extents come",
            "x",
            "later, while extents move",
            "later, while none does",
            "x (asked: 1.2)",
        ]);
        for kind in KINDS {
            eprintln!("hot blocks become others: {}", kind.name());
            let load = |shift: u64| Load::zipf(THETA, BLOCK, self.depth, self.seed + shift * 101);
            let loads: Vec<Load> = (0..=shifts).map(load).collect();
            self.cell(kind, &loads[0])?;
            let mut seen = Seen::default();
            for load in &loads[1..] {
                seen.add(&self.go_on(kind, load)?);
            }
            table.row(seen.row(kind));
        }
        Ok(format!("\n{}", table.render()))
    }
}

impl Seen {
    fn add(&mut self, cell: &Cell) {
        match back_s(&cell.trace, cell.steady.iops) {
            Some(seconds) => self.back_s.push(seconds),
            None => self.never += 1,
        }
        self.settled += usize::from(cell.settled_s.is_some());
        self.moved += cell.last.moved - cell.looks[0].1.moved;
        let mut any = false;
        for (at, pair) in cell.looks.windows(2).enumerate() {
            let (from, to) = (pair[0].0, pair[1].0);
            let moving = is_moving(&cell.looks, at);
            any |= moving;
            let latencies = cell.trace.part(from.max(CONNECTED_S), to);
            let latencies = latencies.iter().map(|write| write.latency_ms);
            match (moving, from >= cell.from_s * LATE) {
                (false, false) if !any => self.before.extend(latencies),
                (true, false) => self.during.extend(latencies),
                (true, true) => self.moving.extend(latencies),
                (false, true) => self.quiet.extend(latencies),
                (false, false) => {}
            }
        }
    }

    fn row(self, kind: Kind) -> Vec<String> {
        let longest = self.back_s.iter().copied().fold(f64::NAN, f64::max);
        let shifts = self.back_s.len() + self.never;
        let [before, during, moving, quiet] =
            [self.before, self.during, self.moving, self.quiet].map(figures);
        let ms = |of: Figures| match of.writes {
            0 => "-".into(),
            writes => format!("{:.1} ({writes} writes)", of.p99_ms),
        };
        let times = |of: f64| if of.is_nan() { "-".into() } else { format!("{of:.2}") };
        vec![
            kind.name().to_owned(),
            format!("{shifts}, {} settled", self.settled),
            format!("{:.1}", median(self.back_s)),
            if self.never > 0 { "never".into() } else { format!("{longest:.1}") },
            self.moved.to_string(),
            ms(before),
            ms(during),
            times(during.p99_ms / before.p99_ms),
            ms(moving),
            ms(quiet),
            times(moving.p99_ms / quiet.p99_ms),
        ]
    }
}

/// Whether extents move between a look and the next one: the status is a second old.
fn is_moving(looks: &[(f64, Look)], at: usize) -> bool {
    let (from, to) = (looks[at].0 - TOLD_S, looks[at + 1].0 + TOLD_S);
    let mut near =
        looks.iter().filter(|(second, _)| (from..=to).contains(second)).map(|(_, look)| look);
    let ended = |look: &Look| look.moved + look.given_up;
    let first = ended(&looks[at].1);
    near.any(|look| look.moving > 0 || ended(look) != first)
}

/// The second of a load from which on it had most of its steady throughput for the first time.
fn back_s(trace: &Trace, steady_iops: f64) -> Option<f64> {
    let last = trace.0.last()?.end_s;
    let starts = (0..).map(|step| CONNECTED_S + f64::from(step) * STEP_S);
    starts
        .take_while(|from| from + WINDOW_S <= last)
        .find(|from| trace.figures(*from, from + WINDOW_S).iops >= BACK * steady_iops)
}
