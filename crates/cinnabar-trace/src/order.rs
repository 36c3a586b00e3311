//! Puts requests in order of time, within a window, and counts time from the first one.
//!
//! Some traces are out of order: rows of Systor '17 are in order of their response, Tencent's come
//! from many machines. A window of requests is kept back and the earliest of them given out; of
//! requests of the same time the one that came first. A request that is earlier than one already
//! given out is an error: order is never guessed.

use crate::error::Problem;
use crate::record::Record;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Default number of requests kept back: five times a second of the busiest public trace. 12 MiB.
pub(crate) const WINDOW_DEFAULT: usize = 1 << 18;

#[derive(Debug)]
pub(crate) struct Order {
    window: usize,
    /// Those that came in order, which mostly is all of them.
    run: VecDeque<Entry>,
    late: BinaryHeap<Reverse<Entry>>,
    arrivals: u64,
    /// Time of the first request given out: the origin.
    origin_us: Option<u64>,
    /// Time of the last one given out.
    given_us: u64,
}

impl Order {
    /// A window of so many requests; 0 demands a trace in order.
    pub(crate) fn new(window: usize) -> Self {
        Self {
            window,
            run: VecDeque::new(),
            late: BinaryHeap::new(),
            arrivals: 0,
            origin_us: None,
            given_us: 0,
        }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// [`Problem::Late`] if it belongs before one that was given out.
    pub(crate) fn push(&mut self, record: Record) -> Result<(), Problem> {
        if record.ts_us < self.given_us {
            let by_us = self.given_us - record.ts_us;
            return Err(Problem::Late { by_us, window: self.window });
        }
        let entry = Entry { ts_us: record.ts_us, arrival: self.arrivals, record };
        self.arrivals += 1;
        if self.run.back().is_some_and(|last| entry.ts_us < last.ts_us) {
            self.late.push(Reverse(entry));
        } else {
            self.run.push_back(entry);
        }
        Ok(())
    }

    /// More in it than it keeps back?
    pub(crate) fn is_over_full(&self) -> bool {
        self.run.len() + self.late.len() > self.window
    }

    /// The earliest request, its time counted from the first one's.
    pub(crate) fn pop(&mut self) -> Option<Record> {
        let late = match (self.run.front(), self.late.peek()) {
            (Some(run), Some(Reverse(late))) => late < run,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let entry =
            if late { self.late.pop().map(|Reverse(entry)| entry) } else { self.run.pop_front() }?;
        self.given_us = entry.ts_us;
        let origin_us = *self.origin_us.get_or_insert(entry.ts_us);
        Some(Record { ts_us: entry.ts_us - origin_us, ..entry.record })
    }
}

/// Ordered by time, then by arrival; no two have the same arrival.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ts_us: u64,
    arrival: u64,
    record: Record,
}

impl Entry {
    const fn key(&self) -> (u64, u64) {
        (self.ts_us, self.arrival)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
