//! How hot each extent is: 9.25 bytes an extent, and a round looks only at those that are not cold.
//!
//! With the table's 8 bytes a volume of 4 Mi extents (16 TiB) takes 69 MiB. While a round ranks them it
//! takes up to 16 bytes more for each extent for which the budget has room.

use crate::geometry::Pool;
use crate::table::Table;

/// What a planner knows of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// What a planner made of the rounds before: scores a second, or another measure of its own.
    pub rate: f32,
    /// Sum of the scores since the last round.
    pub score: f32,
}

/// How hot each extent is.
#[derive(Clone, Debug)]
pub struct Heat {
    cells: Vec<Cell>,
    /// Rounds in a row in which the extent tended to the other pool: up to the fast one if positive.
    streaks: Vec<i8>,
    /// Extents that a round looks at, a bit each.
    warm: Vec<u64>,
    /// Extents with a request since the last round, a bit each.
    touched: Vec<u64>,
    active: u32,
}

impl Heat {
    /// Nothing is known; extents in the fast pool are looked at, so that they can leave it.
    pub fn new(table: &Table) -> Self {
        let (extents, words) = (table.len() as usize, (table.len() as usize).div_ceil(64));
        let mut heat = Self {
            cells: vec![Cell::default(); extents],
            streaks: vec![0; extents],
            warm: vec![0; words],
            touched: vec![0; words],
            active: 0,
        };
        for extent in (0..table.len()).filter(|e| table.get(*e).occupies(Pool::Fast)) {
            heat.warm[extent as usize / 64] |= 1 << (extent % 64);
        }
        heat
    }

    /// Another number of extents.
    pub fn resize(&mut self, extents: u32) {
        let words = (extents as usize).div_ceil(64);
        self.cells.resize(extents as usize, Cell::default());
        self.streaks.resize(extents as usize, 0);
        for bits in [&mut self.warm, &mut self.touched] {
            bits.resize(words, 0);
            // What is cut off must not be there when the volume grows.
            if let (Some(last), rest @ 1..) = (bits.last_mut(), extents % 64) {
                *last &= (1 << rest) - 1;
            }
        }
        self.active = self.touched.iter().map(|word| word.count_ones()).sum();
    }

    /// Bytes that the tables take.
    pub fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
            + self.streaks.len()
            + (self.warm.len() + self.touched.len()) * size_of::<u64>()
    }

    /// Notes a request of an extent.
    ///
    /// # Panics
    /// If the volume has no such extent.
    pub fn note(&mut self, extent: u32, score: f32) {
        let (word, bit) = (extent as usize / 64, 1 << (extent % 64));
        let first = self.touched[word] & bit == 0;
        self.active += u32::from(first);
        self.touched[word] |= bit;
        if score > 0.0 {
            self.warm[word] |= bit;
            self.cells[extent as usize].score += score;
        }
    }

    /// Extents with a request since the last round.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// What is known of an extent.
    pub fn cell(&self, extent: u32) -> Cell {
        self.cells[extent as usize]
    }

    /// Looks at each warm extent, in order; the function says whether it stays warm.
    pub fn each_warm(&mut self, mut look: impl FnMut(u32, &mut Cell, &mut i8) -> bool) {
        for (index, word) in self.warm.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                let at = index * 64 + bit as usize;
                if !look(at as u32, &mut self.cells[at], &mut self.streaks[at]) {
                    *word &= !(1 << bit);
                    (self.cells[at], self.streaks[at]) = (Cell::default(), 0);
                }
            }
        }
    }

    /// A round is over: requests count for the next one.
    pub fn next_round(&mut self) {
        self.touched.fill(0);
        self.active = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;
    use crate::record::Record;

    fn table(extents: u64) -> Table {
        Table::new(Geometry::new(extents << 22, 22).expect("a size"))
    }

    #[test]
    fn a_round_looks_at_what_is_warm_alone() {
        let mut with_fast = table(200);
        let stable = Record::ABSENT.allocated(Pool::Slow, 1).settled();
        with_fast.set(77, stable.copying().flipped().cleaned());
        let mut heat = Heat::new(&with_fast);
        heat.note(3, 0.5);
        heat.note(3, 0.5);
        heat.note(150, 0.0);
        let seen = |heat: &mut Heat| {
            let mut seen = Vec::new();
            heat.each_warm(|extent, cell, _| {
                seen.push((extent, cell.score));
                extent == 77
            });
            seen
        };
        assert_eq!((seen(&mut heat), heat.active()), (vec![(3, 1.0), (77, 0.0)], 2));
        assert_eq!(seen(&mut heat), [(77, 0.0)]);
        heat.next_round();
        assert_eq!((heat.active(), heat.cell(3)), (0, Cell::default()));
    }

    #[test]
    fn what_is_cut_off_is_cold_when_it_comes_back() {
        let mut heat = Heat::new(&table(130));
        for extent in [1, 70, 129] {
            heat.note(extent, 1.0);
        }
        heat.resize(70);
        assert_eq!(heat.active(), 1);
        heat.resize(130);
        let mut seen = Vec::new();
        heat.each_warm(|extent, _, _| {
            seen.push(extent);
            true
        });
        assert_eq!(seen, [1]);
    }

    #[test]
    fn an_extent_takes_less_than_ten_bytes() {
        let table = table(1 << 20);
        let bytes = Heat::new(&table).bytes();
        assert!(bytes * 4 <= (1 << 20) * 37, "{bytes}");
    }
}
