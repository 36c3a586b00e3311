//! Which halves count, by their marks.

use super::mark::{Mark, MarkState};
use crate::mutant::{Mutant, Mutants};
use crate::recover::OpenError;

/// What a half is in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfState {
    /// It holds everything that counts.
    Member,
    /// It gets all writes, and does not count before it has everything.
    Filling,
    /// It is not there, or has failed.
    Gone,
}

/// What was found on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    /// No write log, and nothing else that counts.
    Blank,
    /// A half of the log; one without a mark says [`Mark::NEVER`].
    Log(Mark),
}

/// What each half is to be. Of two that go on as members, the marks agree.
pub(super) fn plan(found: [Found; 2], mutants: Mutants) -> Result<[HalfState; 2], OpenError> {
    use HalfState::{Filling, Gone, Member};
    let swap = |states: [HalfState; 2]| [states[1], states[0]];
    match found {
        [Found::Log(a), Found::Log(b)]
            // Both were a whole log, or the same half.
            if a.half == b.half && !mutants.is(Mutant::CopyBelieved) =>
        {
            Err(OpenError::Copies)
        }
        [Found::Log(a), Found::Log(b)] => {
            let same = (a.generation, a.pair) == (b.generation, b.pair);
            let both = |mark: &Mark| mark.state == MarkState::Both;
            if both(&a) && both(&b) && same
                || mutants.is(Mutant::GenerationIgnored)
                    && [a, b].iter().all(|mark| mark.state != MarkState::Filling)
            {
                return Ok([Member, Member]);
            }
            match (is_before(&b, &a), is_before(&a, &b)) {
                (true, false) => Ok([Member, Filling]),
                (false, true) => Ok([Filling, Member]),
                _ if [a, b].iter().all(|mark| mark.state == MarkState::Alone) => {
                    Err(OpenError::Split)
                }
                _ if [a, b].iter().all(|mark| mark.state == MarkState::Filling) => {
                    Err(OpenError::Incomplete)
                }
                _ => Err(OpenError::HalfMissing),
            }
        }
        [Found::Log(mark), other] => {
            match mark.state {
                MarkState::Both if !mutants.is(Mutant::HalfBelieved) => {
                    return Err(OpenError::HalfMissing);
                }
                MarkState::Filling if !mutants.is(Mutant::FillingBelieved) => {
                    return Err(OpenError::Incomplete);
                }
                _ => {}
            }
            Ok([Member, if other == Found::Blank { Filling } else { Gone }])
        }
        [other, Found::Log(mark)] => plan([Found::Log(mark), other], mutants).map(swap),
        // An empty device beside one that is not there may be what has taken the log's place.
        _ => Err(OpenError::HalfMissing),
    }
}

/// Whether a half counts beside another one, which is to be filled from it.
fn is_before(other: &Mark, counts: &Mark) -> bool {
    match (counts.state, other.state) {
        (MarkState::Alone, MarkState::Filling) => other.generation <= counts.generation,
        (MarkState::Alone, MarkState::Both) => other.generation < counts.generation,
        // One that was never marked is as it was before there was a mirror.
        (MarkState::Alone, MarkState::Alone) => *other == Mark::NEVER && *counts != Mark::NEVER,
        // The other one had become complete, and did not get to say so.
        (MarkState::Both, MarkState::Filling) => other.pair == counts.pair,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HalfState::{Filling, Gone, Member};
    use MarkState::{Alone, Both};

    fn log(state: MarkState, generation: u64, pair: u64) -> Found {
        Found::Log(Mark { state, generation, pair, half: 1 })
    }

    /// The same of another half.
    fn other(found: Found) -> Found {
        match found {
            Found::Log(mark) if mark.half != 0 => Found::Log(Mark { half: 2, ..mark }),
            found => found,
        }
    }

    fn planned(a: Found, b: Found) -> Option<[HalfState; 2]> {
        let of = |a, b| plan([a, b], Mutants::default()).ok();
        let b = other(b);
        let (one, swapped) = (of(a, b), of(b, a));
        assert_eq!(one, swapped.map(|[a, b]| [b, a]), "the order says nothing");
        one
    }

    #[test]
    fn the_half_that_went_on_alone_counts() {
        assert_eq!(planned(log(Both, 4, 1), log(Both, 4, 1)), Some([Member, Member]));
        assert_eq!(planned(log(Alone, 5, 1), log(Both, 4, 1)), Some([Member, Filling]));
        assert_eq!(planned(log(Alone, 5, 1), Found::Blank), Some([Member, Filling]));
        assert_eq!(planned(log(Alone, 5, 1), Found::Absent), Some([Member, Gone]));
        assert_eq!(planned(log(Alone, 1, 1), Found::Log(Mark::NEVER)), Some([Member, Filling]));
        let filling = log(MarkState::Filling, 5, 1);
        assert_eq!(planned(log(Alone, 5, 1), filling), Some([Member, Filling]));
        assert_eq!(planned(log(Both, 6, 1), filling), Some([Member, Filling]));
    }

    #[test]
    fn a_copy_of_a_half_is_not_the_other_half() {
        let copies = |mark| plan([mark; 2], Mutants::default());
        for state in [Both, Alone, MarkState::Filling] {
            assert!(matches!(copies(log(state, 4, 1)), Err(OpenError::Copies)), "{state:?}");
        }
        assert!(matches!(copies(Found::Log(Mark::NEVER)), Err(OpenError::Copies)));
    }

    #[test]
    fn what_may_be_stale_is_refused() {
        for other in [Found::Absent, Found::Blank, log(Both, 4, 2), log(Both, 6, 1)] {
            assert_eq!(planned(log(Both, 4, 1), other), None, "{other:?}");
        }
        // Its other half is a third device.
        assert_eq!(planned(log(Both, 6, 1), log(MarkState::Filling, 5, 2)), None);
        assert_eq!(planned(log(Alone, 5, 1), log(Both, 7, 2)), None);
        assert_eq!(planned(log(MarkState::Filling, 5, 1), Found::Absent), None);
        assert_eq!(planned(log(Alone, 5, 1), log(Alone, 9, 1)), None, "two histories");
        assert_eq!(planned(Found::Log(Mark::NEVER), Found::Log(Mark::NEVER)), None);
        assert_eq!(planned(Found::Blank, Found::Absent), None);
    }
}
