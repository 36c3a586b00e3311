//! Completions that are delivered later: a model of a slow device holds them back, or they came past
//! the port.

use cinnabar_engine::IoError;
use cinnabar_engine::units::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// When.
    pub at: Instant,
    /// The I/O's token.
    pub io: usize,
    /// How it ended.
    pub result: Result<(), IoError>,
}

/// All of them, the earliest first. As many as there are I/Os in flight at most.
#[derive(Default)]
pub struct HeldBack {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
    held: slab::Slab<Held>,
    /// Makes those of one instant come in order.
    sequence: u32,
}

impl HeldBack {
    /// Keeps one until it is due.
    pub fn hold(&mut self, held: Held) {
        let place = self.held.insert(held) as u64;
        self.sequence = self.sequence.wrapping_add(1);
        self.heap.push(Reverse((held.at, u64::from(self.sequence) << 32 | place)));
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes one that is due.
    pub fn due(&mut self, now: Instant) -> Option<Held> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, name)) = self.heap.pop()?;
        Some(self.held.remove((name & u64::from(u32::MAX)) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_in_order_and_not_before_their_time() {
        let mut held_back = HeldBack::default();
        for (at, io) in [(30, 0), (10, 1), (20, 2), (10, 3)] {
            held_back.hold(Held { at: Instant(at), io, result: Ok(()) });
        }
        assert_eq!(held_back.next(), Some(Instant(10)));
        assert_eq!(held_back.due(Instant(9)), None);
        let mut order = Vec::new();
        while let Some(held) = held_back.due(Instant(25)) {
            order.push(held.io);
        }
        assert_eq!(order, [1, 3, 2]);
        assert_eq!(held_back.next(), Some(Instant(30)));
    }
}
