//! A set of positions that knows its highest.

/// A set of positions: words of 64 bits, and above them levels that say which words have any.
#[derive(Debug)]
pub(crate) struct BitSet {
    levels: Vec<Vec<u64>>,
}

impl BitSet {
    /// An empty set of positions below `positions`.
    pub(crate) fn new(positions: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = positions.max(1);
        loop {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
            if bits == 1 {
                return Self { levels };
            }
        }
    }

    pub(crate) fn insert(&mut self, position: u32) {
        let mut at = position as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let had_any = *word != 0;
            *word |= 1 << (at % 64);
            if had_any {
                return;
            }
            at /= 64;
        }
    }

    pub(crate) fn remove(&mut self, position: u32) {
        let mut at = position as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    pub(crate) fn last(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.ilog2() as usize;
        }
        Some(at as u32)
    }

    pub(crate) fn take_last(&mut self) -> Option<u32> {
        let last = self.last()?;
        self.remove(last);
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;
    use std::collections::BTreeSet;

    #[test]
    fn knows_its_highest_like_an_ordered_set() {
        for positions in [1, 63, 64, 65, 4_096, 5_000, 300_000] {
            let (mut set, mut model) = (BitSet::new(positions), BTreeSet::new());
            let mut position = 1_u64;
            for step in 0..3_000 {
                position = position * 48_271 % 0x7FFF_FFFF;
                let at = (position % positions as u64) as u32;
                match step % 3 {
                    0 | 1 => {
                        set.insert(at);
                        model.insert(at);
                    }
                    _ if step % 2 == 0 => {
                        set.remove(at);
                        model.remove(&at);
                    }
                    _ => assert_eq!(set.take_last(), model.pop_last()),
                }
                assert_eq!(set.last(), model.last().copied());
            }
        }
    }
}
