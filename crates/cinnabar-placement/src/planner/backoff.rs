//! Extents whose moves were given up rest for some rounds: the hottest ones would be tried first in each.

use crate::volume::{GivenUp, MoveEnd};
use std::collections::BTreeMap;

/// An extent rests for two rounds, then four, and at most so many as a power of two.
const ROUNDS_LOG2_MAX: u32 = 6;

/// See the module. It knows no more extents than moves can end in 2^7 rounds.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    round: u64,
    /// Moves that were given up in a row, as far as they count, and the round from which on another one is made.
    resting: BTreeMap<u32, (u32, u64)>,
}

impl Backoff {
    /// Whether the extent does not rest.
    pub fn may_move(&self, extent: u32) -> bool {
        self.resting.get(&extent).is_none_or(|(_, until)| *until <= self.round)
    }

    /// A move of the extent has ended.
    pub fn ended(&mut self, extent: u32, outcome: MoveEnd) {
        match outcome {
            MoveEnd::GivenUp(GivenUp::Restart) | MoveEnd::CleanedUp => {}
            MoveEnd::Moved(_) => _ = self.resting.remove(&extent),
            MoveEnd::GivenUp(_) => {
                let (times, until) = self.resting.entry(extent).or_default();
                *times = (*times + 1).min(ROUNDS_LOG2_MAX);
                *until = self.round + (1 << *times);
            }
        }
    }

    /// A round begins.
    pub fn next_round(&mut self) {
        self.round += 1;
        let round = self.round;
        self.resting.retain(|_, (_, until)| *until + (1 << ROUNDS_LOG2_MAX) > round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Pool;

    #[test]
    fn each_failure_doubles_the_rest_and_a_move_ends_it() {
        let mut backoff = Backoff::default();
        let rests = |backoff: &mut Backoff| {
            backoff.ended(7, MoveEnd::GivenUp(GivenUp::Slow));
            (0..1000).take_while(|_| (!backoff.may_move(7), backoff.next_round()).0).count()
        };
        let rested = [(); 7].map(|()| rests(&mut backoff));
        assert_eq!(rested, [2, 4, 8, 16, 32, 64, 64]);
        backoff.ended(7, MoveEnd::Moved(Pool::Fast));
        assert_eq!(rests(&mut backoff), 2);
        (0..100).for_each(|_| backoff.next_round());
        assert!(backoff.resting.is_empty() && backoff.may_move(7));
        backoff.ended(7, MoveEnd::GivenUp(GivenUp::Restart));
        assert!(backoff.may_move(7), "a former owner's failure is none of ours");
    }
}
