//! Sets of places of the directory.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places([u64; 4]);

impl Places {
    pub(crate) fn add(&mut self, place: u16) {
        // A place that does not exist is of no command's concern.
        if let Some(word) = self.0.get_mut(usize::from(place / 64)) {
            *word |= 1 << (place % 64);
        }
    }

    pub(crate) fn remove(&mut self, place: u16) {
        if let Some(word) = self.0.get_mut(usize::from(place / 64)) {
            *word &= !(1 << (place % 64));
        }
    }

    /// Those that are in it now, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let mut left = *self;
        std::iter::from_fn(move || left.take_from(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        for (word, other) in self.0.iter_mut().zip(others.0) {
            *word |= other;
        }
    }

    /// Takes out the first one from `start` on, or from the beginning if there is none.
    pub(crate) fn take_from(&mut self, start: u16) -> Option<u16> {
        let (word, bit) = (usize::from(start / 64) % 4, start % 64);
        let masked = |at: usize, mask: u64| {
            let bits = self.0[at] & mask;
            (bits != 0).then(|| at as u16 * 64 + bits.trailing_zeros() as u16)
        };
        let found = masked(word, u64::MAX << bit)
            .or_else(|| (1..=4).find_map(|n| masked((word + n) % 4, u64::MAX)));
        if let Some(place) = found {
            self.remove(place);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_turn() {
        let mut places = Places::default();
        for place in [3, 64, 255, 0, 700] {
            places.add(place);
        }
        let all: Vec<u16> = std::iter::from_fn(|| places.take_from(4)).collect();
        assert_eq!(all, [64, 255, 0, 3]);
        assert!(places.is_empty());
    }
}
