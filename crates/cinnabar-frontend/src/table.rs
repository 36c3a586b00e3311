//! A table whose keys are never mixed up: each carries the generation of its place.

/// Generations have 30 bits, so that a key's two highest bits are free for its user.
const GENERATION_MASK: u32 = u32::MAX >> 2;

/// Values by key.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Stores a value; its key is not 0, and is not used again until its place was reused 2^30
    /// times.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, value: None });
            u32::try_from(self.places.len() - 1).expect("tables are bounded far below")
        });
        let place = &mut self.places[index as usize];
        place.generation = ((place.generation + 1) & GENERATION_MASK).max(1);
        place.value = Some(value);
        u64::from(place.generation) << 32 | u64::from(index)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let place = self.places.get(key as u32 as usize)?;
        if u64::from(place.generation) == key >> 32 { place.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let place = self.places.get_mut(key as u32 as usize)?;
        if u64::from(place.generation) == key >> 32 { place.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let place = self.places.get_mut(key as u32 as usize)?;
        if u64::from(place.generation) != key >> 32 {
            return None;
        }
        let value = place.value.take()?;
        self.free.push(key as u32);
        Some(value)
    }

    /// Keys and values, in the order of places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let key = u64::from(place.generation) << 32 | index as u64;
            place.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_stays_dead_when_its_place_is_reused() {
        let mut table = Table::new();
        let first = table.insert("a");
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b");
        assert_eq!(first as u32, second as u32, "the place is reused");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!((table.get(second), table.len()), (Some(&"b"), 1));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(second, &"b")]);
    }
}
