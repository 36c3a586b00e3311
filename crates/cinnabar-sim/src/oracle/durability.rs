//! What a successful FLUSH promises: every write answered before it arrived is durable.
//!
//! Zeros are left out: they have many writers, so that a sector of zeros that the backend could lose
//! need not be those that were answered for.

use crate::stamp::Stamp;
use crate::violation::{Kind, Violation};
use std::collections::VecDeque;

/// Answered writes of one backend that no flush has covered, oldest first.
#[derive(Debug, Default)]
pub(super) struct Durability {
    owed: VecDeque<Owed>,
}

#[derive(Debug)]
struct Owed {
    first: u64,
    values: Vec<Stamp>,
    answered: u64,
}

impl Durability {
    pub(super) fn acknowledged(&mut self, first: u64, values: &[Stamp], answered: u64) {
        self.owed.push_back(Owed { first, values: values.to_vec(), answered });
    }

    /// Another has written these sectors, durably: what was answered before is not owed any more.
    /// A guest may bring it back, by writing a part of a block whose change the cache could not
    /// notice; that is another write, which no earlier flush covers.
    pub(super) fn overwritten(&mut self, sectors: std::ops::Range<u64>) {
        for owed in &mut self.owed {
            for (sector, value) in (owed.first..).zip(&mut owed.values) {
                if sectors.contains(&sector) {
                    *value = Stamp::ZERO;
                }
            }
        }
    }

    pub(super) fn flushed(
        &mut self,
        backend: usize,
        submitted: u64,
        not_durable: impl Fn(u64) -> Option<Stamp>,
    ) -> Result<(), Violation> {
        while self.owed.front().is_some_and(|owed| owed.answered < submitted) {
            let owed = self.owed.pop_front().expect("there is a first");
            check_durable(backend, owed.first, &owed.values, &not_durable)?;
        }
        Ok(())
    }
}

/// Fails if the backend could still lose one of these values.
pub(super) fn check_durable(
    backend: usize,
    first: u64,
    values: &[Stamp],
    not_durable: impl Fn(u64) -> Option<Stamp>,
) -> Result<(), Violation> {
    for (sector, &value) in (first..).zip(values) {
        if value != Stamp::ZERO && not_durable(sector) == Some(value) {
            let what = format!("{value:?} was answered for as durable, but can still be lost");
            return Err(Violation::at(Kind::NotDurable, backend, sector, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_overwrote_is_owed_no_more_and_what_lies_beside_it_is() {
        let values: Vec<Stamp> = (8..16).map(|sector| Stamp::new(0, sector, 1)).collect();
        let owed = || {
            let mut owed = Durability::default();
            owed.acknowledged(8, &values, 1);
            owed
        };
        let volatile = |lost: u64| move |sector| (sector == lost).then(|| Stamp::new(0, sector, 1));
        owed().flushed(0, 2, volatile(9)).expect_err("answered before the flush");

        let mut other = owed();
        other.overwritten(9..10);
        other.flushed(0, 2, volatile(9)).expect("a later write brought it back");
        let mut other = owed();
        other.overwritten(9..10);
        other.flushed(0, 2, volatile(10)).expect_err("nothing was written there");
    }
}
