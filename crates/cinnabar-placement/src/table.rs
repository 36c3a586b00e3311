//! The records of a volume in memory, 8 bytes each, and the room that they take in each pool.

use crate::geometry::{Geometry, Pool};
use crate::limits::GENERATION_MAX;
use crate::record::{Record, State};

/// A record in 64 bits: state 3, pool 1, generation 30, other 30.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Packed(u64);

impl Packed {
    fn of(record: Record) -> Self {
        assert!(record.highest() <= GENERATION_MAX, "generations have 30 bits");
        let low = record.state as u64 | (record.pool as u64) << 3;
        Self(low | u64::from(record.generation) << 4 | u64::from(record.other) << 34)
    }

    fn get(self) -> Record {
        let state = match self.0 & 7 {
            0 => State::Absent,
            1 => State::Fresh,
            2 => State::Stable,
            3 => State::Copying,
            4 => State::Cleaning,
            _ => State::Dropping,
        };
        let pool = if self.0 & 8 == 0 { Pool::Slow } else { Pool::Fast };
        let number = |shift: u32| (self.0 >> shift) as u32 & GENERATION_MAX;
        Record { state, pool, generation: number(4), other: number(34) }
    }
}

/// The records of a volume.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Vec<Packed>,
    extent_bytes: u64,
    /// Objects that may be in the slow and in the fast pool.
    objects: [u32; 2],
    /// Extents that aren't absent.
    present: u32,
    highest: u32,
}

impl Table {
    /// Of a volume that was never written.
    pub fn new(geometry: Geometry) -> Self {
        let entries = vec![Packed::default(); geometry.extents() as usize];
        let extent_bytes = geometry.extent_bytes();
        Self { entries, extent_bytes, objects: [0; 2], present: 0, highest: 0 }
    }

    /// Extents that have an entry.
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is known of an extent.
    ///
    /// # Panics
    /// If the volume has no such extent.
    pub fn get(&self, extent: u32) -> Record {
        self.entries[extent as usize].get()
    }

    /// Bytes that objects may take in `pool`; each counts as a whole extent.
    pub fn used_bytes(&self, pool: Pool) -> u64 {
        u64::from(self.objects[pool as usize]) * self.extent_bytes
    }

    /// Objects that there may be in `pool`.
    pub fn objects(&self, pool: Pool) -> u32 {
        self.objects[pool as usize]
    }

    /// Extents that were written.
    pub fn present(&self) -> u32 {
        self.present
    }

    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// The highest generation of any record.
    pub fn highest(&self) -> u32 {
        self.highest
    }

    /// Notes a record that is durable.
    ///
    /// # Panics
    /// If the volume has no such extent.
    pub fn set(&mut self, extent: u32, record: Record) {
        let entry = &mut self.entries[extent as usize];
        let before = entry.get();
        *entry = Packed::of(record);
        for pool in [Pool::Slow, Pool::Fast] {
            let count = &mut self.objects[pool as usize];
            *count += u32::from(record.occupies(pool));
            let had = u32::from(before.occupies(pool));
            assert!(*count >= had, "an object that goes was counted");
            *count -= had;
        }
        self.present += u32::from(record.state != State::Absent);
        self.present -= u32::from(before.state != State::Absent);
        self.highest = self.highest.max(record.highest());
    }

    /// Another number of extents.
    ///
    /// # Panics
    /// If one that goes is not absent.
    pub fn resize(&mut self, extents: u32) {
        let gone = self.entries.iter().skip(extents as usize);
        assert!(gone.copied().all(|e| e == Packed::default()), "what goes has no record");
        self.entries.resize(extents as usize, Packed::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_count_in_both_pools() {
        let mut table = Table::new(Geometry::new(4 << 22, 22).expect("a size"));
        let stable = Record::ABSENT.allocated(Pool::Slow, GENERATION_MAX - 1).settled();
        let used = |table: &Table| [Pool::Slow, Pool::Fast].map(|p| table.used_bytes(p) >> 22);
        table.set(3, stable);
        assert_eq!((table.get(3), used(&table), table.present()), (stable, [1, 0], 1));
        table.set(3, stable.copying());
        assert_eq!((table.get(3), used(&table)), (stable.copying(), [1, 1]));
        table.set(3, stable.copying().flipped());
        assert_eq!((table.get(3), used(&table)), (stable.copying().flipped(), [1, 1]));
        table.set(3, stable.copying().flipped().cleaned());
        assert_eq!(used(&table), [0, 1]);
        table.set(3, Record::ABSENT);
        assert_eq!((used(&table), table.present(), table.highest()), ([0, 0], 0, GENERATION_MAX));
        table.resize(3);
        assert_eq!((table.len(), std::mem::size_of::<Packed>()), (3, 8));
    }
}
