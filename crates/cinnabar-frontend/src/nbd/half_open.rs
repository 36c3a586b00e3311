//! Connections in their handshake, by whom they come from.
//!
//! A connection costs its client nothing, and nothing is known of it before it has entered an export. So when
//! there is no place left it is not the newcomer that goes, but the oldest connection of the origin that has
//! most: an honest handshake takes a few round trips.

use super::limits::Limits;
use super::mutant::Mutant;
use super::peer::Origin;
use std::collections::{BTreeMap, VecDeque};

/// Keys of the connections, the oldest of each origin first.
#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    by_origin: BTreeMap<Origin, VecDeque<u64>>,
    all: usize,
}

impl HalfOpen {
    /// One has come.
    pub(super) fn enter(&mut self, origin: Origin, key: u64) {
        self.by_origin.entry(origin).or_default().push_back(key);
        self.all += 1;
    }

    /// One has entered an export, or ended.
    pub(super) fn leave(&mut self, origin: Origin, key: u64) {
        let Some(keys) = self.by_origin.get_mut(&origin) else { return };
        let Some(at) = keys.iter().position(|other| *other == key) else { return };
        keys.remove(at);
        self.all -= 1;
        if keys.is_empty() {
            self.by_origin.remove(&origin);
        }
    }

    /// One goes on under another key; it is as old as before.
    pub(super) fn rename(&mut self, origin: Origin, key: u64, new: u64) {
        let mut keys = self.by_origin.get_mut(&origin).into_iter().flatten();
        if let Some(key) = keys.find(|other| **other == key) {
            *key = new;
        }
    }

    /// The one that has to end before one more of this origin may come.
    pub(super) fn in_the_way(&self, origin: Origin, limits: &Limits) -> Option<u64> {
        let own = self.by_origin.get(&origin);
        let most = self.by_origin.values().max_by_key(|keys| keys.len());
        let keys = if own.is_some_and(|keys| keys.len() >= limits.origin_handshakes_max) {
            own
        } else if self.all >= limits.handshakes_max {
            most
        } else {
            None
        };
        let newest = limits.mutants.is(Mutant::NewestEnded);
        keys.and_then(|keys| if newest { keys.back() } else { keys.front() }).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (usize, usize) = (8, 4);

    fn limits() -> Limits {
        let (handshakes_max, origin_handshakes_max) = LIMITS;
        Limits { handshakes_max, origin_handshakes_max, ..Limits::default() }
    }

    #[test]
    fn the_origin_with_most_makes_room_with_its_oldest() {
        let (mut half_open, limits) = (HalfOpen::default(), limits());
        let user = Origin::User;
        (0..4).for_each(|key| half_open.enter(user(1), key));
        assert_eq!(half_open.in_the_way(user(1), &limits), Some(0), "it has its part");
        assert_eq!(half_open.in_the_way(user(2), &limits), None);
        (4..7).for_each(|key| half_open.enter(user(2), key));
        half_open.enter(user(3), 7);
        assert_eq!(half_open.in_the_way(user(3), &limits), Some(0));
        half_open.rename(user(1), 0, 10);
        assert_eq!(half_open.in_the_way(user(3), &limits), Some(10), "it is as old as before");
        half_open.leave(user(1), 10);
        assert_eq!(half_open.in_the_way(user(3), &limits), None);
        half_open.leave(user(1), 1);
        half_open.enter(user(3), 8);
        half_open.enter(user(3), 9);
        let next = half_open.in_the_way(user(4), &limits);
        assert!([Some(4), Some(7)].contains(&next), "the oldest of one that has most: {next:?}");
    }
}
