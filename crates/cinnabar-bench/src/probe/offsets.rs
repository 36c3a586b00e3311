//! Where operations go: aligned to their size, never two at a place.

use super::plan::Pattern;
use cinnabar_model::Random;

/// Places of one cell. Two operations under way never overlap: the client of NBD servers counts on
/// that, and a device would serve the second from its cache.
#[derive(Debug)]
pub(super) struct Offsets {
    pattern: Pattern,
    size_bytes: u64,
    places: u64,
    next: u64,
    random: Random,
    taken: Vec<u64>,
}

impl Offsets {
    /// Places of `size_bytes` on a device of `device_bytes`, which has at least one.
    pub(super) fn new(pattern: Pattern, seed: u64, size_bytes: u64, device_bytes: u64) -> Self {
        let places = device_bytes / size_bytes;
        assert!(places > 0, "the device was measured before");
        let random = Random::new(seed ^ size_bytes);
        Self { pattern, size_bytes, places, next: 0, random, taken: Vec::new() }
    }

    /// How many there are.
    pub(super) fn places(&self) -> u64 {
        self.places
    }

    /// Takes one, in bytes.
    ///
    /// # Panics
    /// If all are taken.
    pub(super) fn take(&mut self) -> u64 {
        assert!((self.taken.len() as u64) < self.places, "there are more places than operations");
        let mut place = match self.pattern {
            // The bias of a remainder is below one in a million for anything below 2^44 places.
            Pattern::Random => self.random.bits() % self.places,
            Pattern::Sequential => self.next,
        };
        while self.taken.contains(&place) {
            place = (place + 1) % self.places;
        }
        self.next = (place + 1) % self.places;
        self.taken.push(place);
        place * self.size_bytes
    }

    /// Gives one back.
    pub(super) fn free(&mut self, offset: u64) {
        let place = offset / self.size_bytes;
        self.taken.retain(|taken| *taken != place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_under_way_never_overlap() {
        for pattern in [Pattern::Random, Pattern::Sequential] {
            let mut offsets = Offsets::new(pattern, 1, 65_536, 9 * 65_536 + 4096);
            assert_eq!(offsets.places(), 9);
            let mut held: Vec<u64> = (0..8).map(|_| offsets.take()).collect();
            for round in 0..1000 {
                offsets.free(held.remove(round % 8));
                held.push(offsets.take());
                let mut sorted = held.clone();
                sorted.sort_unstable();
                assert!(sorted.windows(2).all(|two| two[1] - two[0] >= 65_536), "{sorted:?}");
                assert!(sorted.iter().all(|at| at % 65_536 == 0 && *at < 9 * 65_536));
            }
        }
    }

    #[test]
    fn patterns_are_what_they_are_called() {
        let walk = |pattern, seed| -> Vec<u64> {
            let mut offsets = Offsets::new(pattern, seed, 4096, 1 << 30);
            (0..1000)
                .map(|_| {
                    let at = offsets.take();
                    offsets.free(at);
                    at
                })
                .collect()
        };
        let ordered = walk(Pattern::Sequential, 1);
        assert!(ordered.windows(2).all(|two| two[1] == two[0] + 4096));
        assert_eq!(walk(Pattern::Random, 1), walk(Pattern::Random, 1));
        assert_ne!(walk(Pattern::Random, 1), walk(Pattern::Random, 2));
        let mut half = walk(Pattern::Random, 1);
        half.sort_unstable();
        assert!((400 << 20..600 << 20).contains(&half[500]), "spread over the device");
    }
}
