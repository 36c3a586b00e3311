//! The newest events, for readers that each have a place of their own in them.
//!
//! There is no queue for each reader: one that is slow is overtaken by the end of the log, and
//! learns how many events it has missed.

use crate::history::events::EventReport;
use std::collections::VecDeque;

/// Events kept at most.
pub const EVENTS_MAX: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    events: VecDeque<EventReport>,
    /// Number of the event that comes next; the first one has number 0.
    next: u64,
}

/// What a reader gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events before these that are not kept any more.
    pub skipped: u64,
    /// Number of the first of these.
    pub first: u64,
    /// Events, the newest last.
    pub events: Vec<EventReport>,
}

impl Batch {
    /// Where the reader goes on.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl EventLog {
    /// One more; the oldest one goes for it.
    pub fn push(&mut self, event: EventReport) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.next += 1;
        debug_assert!(self.events.len() <= EVENTS_MAX, "the log is bounded");
    }

    /// Number of the event that comes next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Events from this number on, so many at most. A number that is still to come is taken for the next.
    pub fn from(&self, number: u64, most: usize) -> Batch {
        let oldest = self.next - self.events.len() as u64;
        let number = number.min(self.next);
        let first = number.max(oldest);
        let events = self.events.iter().skip((first - oldest) as usize).take(most).cloned();
        Batch { skipped: first - number, first, events: events.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::events::EventKind;

    #[test]
    fn a_slow_reader_learns_how_many_it_missed() {
        let mut log = EventLog::default();
        assert_eq!(log.from(0, 10), Batch::default());
        let all = EVENTS_MAX as u64 + 7;
        for at_ms in 0..all {
            log.push(EventReport::new(EventKind::PlanMade, at_ms));
        }
        let batch = log.from(3, 10);
        assert_eq!((batch.skipped, batch.first, batch.next()), (4, 7, 17));
        assert_eq!(batch.events[0].at_ms, 7, "the oldest one that is kept");
        let rest = log.from(batch.next(), usize::MAX);
        assert_eq!((rest.skipped, rest.next()), (0, all));
        assert_eq!(log.from(all, 10).events, []);
        assert_eq!(log.from(u64::MAX, 10).next(), all, "of another run");
    }
}
