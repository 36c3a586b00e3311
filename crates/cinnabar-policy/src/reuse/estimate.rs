//! Weights by size of cache, and their sums: what a sampled curve is made of.
//!
//! Distances of a sample are scaled up and may come from different rates, so counts are no whole
//! numbers and sizes no dense ones: sizes up to 8192 blocks have a bin each, larger ones share bins
//! that are narrower than 1/4096 of the size.

use std::ops::Range;

const NARROW_BITS: u32 = 12;
const NARROW: u32 = 1 << NARROW_BITS;

/// What each size of cache adds to the next smaller one.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(Vec<f64>);

impl Steps {
    /// Adds `weight` for sizes from `first` on, in blocks.
    pub(super) fn add_from(&mut self, first: u32, weight: f64) {
        let bin = bin(first);
        if bin >= self.0.len() {
            self.0.resize((bin + 1).next_power_of_two(), 0.0);
        }
        self.0[bin] += weight;
    }

    /// The same, unless it is for sizes above `most` only.
    pub(super) fn add_up_to(&mut self, most: u32, first: u32, weight: f64) {
        if first <= most {
            self.add_from(first, weight);
        }
    }

    /// Adds `weight` for sizes within `range`; those above `most` are not told apart.
    pub(super) fn add(&mut self, range: Range<u32>, weight: f64, most: u32) {
        self.add_up_to(most, range.start, weight);
        self.add_up_to(most, range.end, -weight);
    }

    /// Forgets what is for sizes above `most` only, but for those that share its bin.
    pub(super) fn truncate(&mut self, most: u32) {
        if self.0.len() > bin(most) + 1 {
            self.0.truncate(bin(most) + 1);
            self.0.shrink_to_fit();
        }
    }

    /// Bytes of RAM it takes.
    pub(super) const fn ram_bytes(&self) -> usize {
        self.0.capacity() * size_of::<f64>()
    }

    /// Makes everything so far count less, or more.
    pub(super) fn scale(&mut self, factor: f64) {
        self.0.iter_mut().for_each(|step| *step *= factor);
    }

    /// The sums, times `factor`.
    pub(super) fn estimate(&self, factor: f64) -> Estimate {
        let used = self.0.iter().rposition(|step| *step != 0.0).map_or(0, |last| last + 1);
        let mut sum = 0.0;
        let sums = self.0[..used].iter().map(|step| {
            sum += step * factor;
            // Sums of steps up and down may end a hair below zero.
            sum.max(0.0)
        });
        Estimate(sums.collect())
    }
}

/// A count for every size of cache, estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate(Vec<f64>);

impl Estimate {
    /// The count for a cache of so many blocks.
    pub fn at(&self, size_blocks: u64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0.0 };
        let size = u32::try_from(size_blocks).unwrap_or(u32::MAX);
        self.0[bin(size).min(last)]
    }

    /// A size from which on it stays the same, in blocks.
    pub fn flat_from(&self) -> u64 {
        self.0.len().checked_sub(1).map_or(0, first_size)
    }

    /// The smallest size at which at least `part` (0 to 1) of the largest size's count is reached, in
    /// blocks; 0 if there is nothing to reach. For curves that do not fall.
    pub fn reaches(&self, part: f64) -> u64 {
        let Some(&most) = self.0.last() else { return 0 };
        // Sums are rounded: without the last bits' grace, 100 % might be missed by one of them.
        let wanted = most * part * (1.0 - 1e-12);
        let bin = self.0.iter().position(|sum| *sum >= wanted).unwrap_or(self.0.len() - 1);
        first_size(bin)
    }
}

fn bin(size: u32) -> usize {
    if size < NARROW * 2 {
        return size as usize;
    }
    let shift = size.ilog2() - NARROW_BITS;
    ((shift << NARROW_BITS) + (size >> shift)) as usize
}

/// The smallest size of a bin.
fn first_size(bin: usize) -> u64 {
    let (bin, narrow) = (bin as u64, u64::from(NARROW));
    if bin < narrow * 2 {
        return bin;
    }
    let shift = bin / narrow - 1;
    (bin - shift * narrow) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_exact_then_narrow_and_in_order() {
        let mut last = None;
        for size in (0..20_000).chain((0..u32::MAX).step_by(99_991)).chain([u32::MAX]) {
            let bin = bin(size);
            let first = first_size(bin);
            assert!(first <= u64::from(size), "{size}");
            assert!(u64::from(size) - first <= u64::from(size / NARROW), "{size} in {first}");
            assert!(size >= NARROW * 2 || bin == size as usize);
            if size > last.map_or(0, |(other, _)| other) {
                assert!(last.is_none_or(|(_, other)| other <= bin), "{size}");
                last = Some((size, bin));
            }
        }
    }

    #[test]
    fn an_estimate_sums_its_steps() {
        let mut steps = Steps::default();
        steps.add_from(1, 0.5);
        steps.add(3..1_000_000, 2.0, u32::MAX);
        steps.add_from(5, 1.5);
        steps.scale(0.5);
        let sums = steps.estimate(10.0);
        let found = [0, 1, 2, 3, 5, 900_000, 1_000_000, u64::MAX].map(|size| sums.at(size));
        let tenths = found.map(|sum| (sum * 10.0) as i64);
        assert_eq!(tenths, [0, 25, 25, 125, 200, 200, 100, 100]);
        assert!(sums.0.len() < 40_000, "bins, not sizes");
    }

    #[test]
    fn a_part_is_reached_where_it_is() {
        let mut steps = Steps::default();
        for (size, weight) in [(2, 3.0), (7, 0.1), (50, 0.9)] {
            steps.add_from(size, weight);
        }
        let sums = steps.estimate(1.0);
        assert_eq!([0.5, 0.75, 0.76, 0.99, 1.0].map(|part| sums.reaches(part)), [2, 2, 7, 50, 50]);
        assert_eq!((sums.flat_from(), Estimate::default().flat_from()), (50, 0));
        assert_eq!(Estimate::default().reaches(1.0), 0);
        assert!(Estimate::default().at(9).abs() < f64::EPSILON);
    }
}
