//! Distances counted, and what they say about every size of cache.
//!
//! Made by the analyses.

/// How many reuses had each distance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances(Vec<u64>);

impl Distances {
    /// Reuses at this distance, in blocks.
    pub fn at(&self, distance: u32) -> u64 {
        self.0.get(distance as usize).copied().unwrap_or(0)
    }

    /// All reuses.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The largest distance. A cache of one block more has every hit there is.
    pub fn max(&self) -> Option<u32> {
        self.0.iter().rposition(|count| *count > 0).map(|distance| distance as u32)
    }

    /// The smallest distance that at least `part` (0 to 1) of the reuses do not exceed; `None`
    /// without reuses. The maximum hangs on single outliers, this does not.
    pub fn percentile(&self, part: f64) -> Option<u32> {
        // At least one, or 0 % would be a distance that never occurred.
        let wanted = (self.total() as f64 * part).max(1.0);
        let mut seen = 0;
        let reached = self.0.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        reached.map(|distance| distance as u32)
    }

    /// The smallest size at which at least `part` (0 to 1) of the reuses are hits, in blocks; 0 without
    /// reuses.
    pub fn reaches(&self, part: f64) -> u64 {
        self.percentile(part).map_or(0, |distance| u64::from(distance) + 1)
    }

    /// Reuses that are hits, by size.
    pub fn hits(&self) -> Curve {
        Curve::sums(self.0.iter().map(|count| count.cast_signed()))
    }

    pub(crate) fn count(&mut self, distance: u32) {
        let distance = distance as usize;
        if distance >= self.0.len() {
            self.0.resize((distance + 1).next_power_of_two(), 0);
        }
        self.0[distance] += 1;
    }

    /// Drops the room for distances that did not occur.
    pub(crate) fn trimmed(mut self) -> Self {
        self.0.truncate(self.max().map_or(0, |max| max as usize + 1));
        self.0.shrink_to_fit();
        self
    }
}

/// A count for every size of cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// By size; from its end on it stays as it is.
    values: Vec<u64>,
}

impl Curve {
    /// The count for a cache of so many blocks.
    pub fn at(&self, size_blocks: u64) -> u64 {
        let last = self.values.len() - 1;
        self.values[usize::try_from(size_blocks).map_or(last, |size| size.min(last))]
    }

    /// The smallest size from which on it stays the same, in blocks.
    pub fn flat_from(&self) -> u64 {
        let last = self.values[self.values.len() - 1];
        self.values.iter().rposition(|value| *value != last).map_or(0, |size| size as u64 + 1)
    }

    /// What it is the sums of: 0 for no cache, then each size adds the next step.
    pub(crate) fn sums(steps: impl Iterator<Item = i64>) -> Self {
        let mut sum = 0;
        let mut values = vec![0];
        values.extend(steps.map(|step| {
            sum += step;
            u64::try_from(sum).expect("a count is never below zero")
        }));
        Self { values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_hits_of_larger_caches() {
        let mut distances = Distances::default();
        for distance in [0, 2, 2, 5] {
            distances.count(distance);
        }
        let distances = distances.trimmed();
        let hits: Vec<u64> = (0..8).map(|size| distances.hits().at(size)).collect();
        assert_eq!(hits, [0, 1, 1, 3, 3, 3, 4, 4]);
        assert_eq!((distances.max(), distances.hits().flat_from()), (Some(5), 6));
        assert_eq!(distances.percentile(0.75), Some(2));
        assert_eq!(distances.percentile(0.76), Some(5));
        assert_eq!(distances.percentile(0.0), Some(0));
        assert_eq!((distances.reaches(0.75), distances.reaches(1.0)), (3, 6));
    }

    #[test]
    fn nothing_is_no_hits() {
        let none = Distances::default();
        assert_eq!((none.max(), none.percentile(0.5)), (None, None));
        assert_eq!((none.hits().at(u64::MAX), none.hits().flat_from()), (0, 0));
    }
}
