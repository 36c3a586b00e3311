//! What a crash leaves in doubt: regions that were active. None of their copies is believed, whatever
//! their sequence numbers.

use crate::metadata::checkpoint::OpenRegion;
use crate::metadata::journal::Record;
use crate::mix;
use crate::mutant::{Mutant, Mutants};
use crate::regions::{Name, region_of};
use std::collections::{BTreeMap, BTreeSet};

/// The regions, and the newest session whose chunks are meant. Nearly all blocks are in none, so
/// a table of bits is looked at first.
#[derive(Debug)]
pub(crate) struct Doubt {
    regions: BTreeMap<Name, u32>,
    bits: [u64; 64],
}

impl Doubt {
    /// What a checkpoint and the records since say: a region is in doubt if its newest opening has no
    /// end. Openings up to `openings` that the checkpoint does not name have ended, wherever a
    /// journal that was being rewritten repeats them.
    pub(crate) fn new(
        named: &[OpenRegion],
        openings: u64,
        records: &[Record],
        mutants: Mutants,
    ) -> Self {
        let mut newest: BTreeMap<Name, u64> = BTreeMap::new();
        let mut ended = BTreeSet::new();
        let repeated = mutants.is(Mutant::OldOpeningsCount);
        let mut open = |name, opening: u64| {
            let known = newest.entry(name).or_default();
            *known = opening.max(*known);
        };
        for one in named.iter().filter(|_| !mutants.is(Mutant::RegionsNotInCheckpoint)) {
            open((one.incarnation, one.region), one.opening);
        }
        for record in records {
            match record {
                Record::RegionOpened { incarnation, region, opening }
                    if *opening > openings || repeated =>
                {
                    open((*incarnation, *region), *opening);
                }
                Record::RegionClosed(end) => {
                    ended.insert((end.incarnation, end.region, end.opening));
                }
                _ => {}
            }
        }
        let any_end = mutants.is(Mutant::AnyEndCounts);
        let has_ended = |name: &Name, opening: &u64| {
            let (incarnation, region) = *name;
            let of = (incarnation, region, 0)..=(incarnation, region, u64::MAX);
            ended.contains(&(incarnation, region, *opening))
                || any_end && ended.range(of).next().is_some()
        };
        newest.retain(|name, opening| !has_ended(name, opening));
        let mut doubt = Self { regions: BTreeMap::new(), bits: [0; 64] };
        for (name, opening) in newest {
            let bit = bit_of(name);
            doubt.bits[bit / 64] |= 1 << (bit % 64);
            doubt.regions.insert(name, (opening >> 32) as u32);
        }
        doubt
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether a copy in a chunk of this session is in doubt.
    #[inline]
    pub(crate) fn covers(&self, incarnation: u32, block: u64, session: u32) -> bool {
        let name = (incarnation, region_of(block));
        let bit = bit_of(name);
        self.bits[bit / 64] >> (bit % 64) & 1 == 1
            && self.regions.get(&name).is_some_and(|newest| session <= *newest)
    }
}

fn bit_of((incarnation, region): Name) -> usize {
    mix(u64::from(incarnation) << 32 | u64::from(region), 2) as usize % (64 * 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::journal::RegionEnd;

    const SESSION: u64 = 3 << 32;

    fn opened(opening: u64) -> Record {
        Record::RegionOpened { incarnation: 1, region: 2, opening: SESSION + opening }
    }

    fn closed(opening: u64) -> Record {
        let opening = SESSION + opening;
        let end = RegionEnd { incarnation: 1, region: 2, opening, version: 0, stale: [0; 4] };
        Record::RegionClosed(Box::new(end))
    }

    fn is_in_doubt(named: &[u64], openings: u64, records: &[Record]) -> bool {
        let open = |opening| OpenRegion { incarnation: 1, region: 2, opening: SESSION + opening };
        let named: Vec<_> = named.iter().copied().map(open).collect();
        let doubt = Doubt::new(&named, SESSION + openings, records, Mutants::default());
        assert!(!doubt.covers(1, 3 * 256, 3) && !doubt.covers(2, 2 * 256, 3), "another region");
        assert!(!doubt.covers(1, 2 * 256, 4), "a later session's chunk");
        doubt.covers(1, 2 * 256 + 255, 3)
    }

    #[test]
    fn openings_of_before_a_checkpoint_that_count_are_found() {
        let mutants = Mutants::only(Mutant::OldOpeningsCount);
        let doubt = Doubt::new(&[], SESSION + 2, &[opened(1)], mutants);
        assert!(doubt.covers(1, 2 * 256, 3));
    }

    #[test]
    fn a_region_is_in_doubt_if_its_newest_opening_has_no_end() {
        assert!(is_in_doubt(&[], 0, &[opened(1)]));
        assert!(!is_in_doubt(&[], 0, &[opened(1), closed(1)]));
        assert!(!is_in_doubt(&[], 0, &[closed(1), opened(1)]), "in any order");
        assert!(is_in_doubt(&[], 0, &[opened(1), closed(1), opened(2)]));
        assert!(!is_in_doubt(&[], 0, &[opened(2), closed(2), opened(1)]));
        assert!(is_in_doubt(&[1], 1, &[]), "the checkpoint names it");
        assert!(!is_in_doubt(&[1], 1, &[closed(1)]));
        assert!(!is_in_doubt(&[], 2, &[opened(1)]), "it had ended before the checkpoint");
    }
}
