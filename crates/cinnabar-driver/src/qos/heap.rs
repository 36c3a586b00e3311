//! A binary heap of clients by a tag, from which any of them can be taken out.

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Clients by their keys, the lowest first; equal keys by the client's number, so that the order never
/// depends on history.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    order: Vec<(K, u32)>,
    /// Where each client stands in `order`.
    places: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    /// An empty one.
    pub(crate) const fn new() -> Self {
        Self { order: Vec::new(), places: Vec::new() }
    }

    /// The lowest key and its client.
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.order.first().copied()
    }

    pub(crate) fn contains(&self, client: u32) -> bool {
        self.places.get(client as usize).is_some_and(|&place| place != NOWHERE)
    }

    /// Puts a client in that is not in.
    pub(crate) fn insert(&mut self, client: u32, key: K) {
        assert!(!self.contains(client), "a client stands in a heap once");
        if self.places.len() <= client as usize {
            self.places.resize(client as usize + 1, NOWHERE);
        }
        self.order.push((key, client));
        self.places[client as usize] = self.order.len() as u32 - 1;
        self.rise(self.order.len() - 1);
    }

    /// Takes a client out; nothing if it is not in.
    pub(crate) fn remove(&mut self, client: u32) {
        if !self.contains(client) {
            return;
        }
        let place = self.places[client as usize] as usize;
        let last = self.order.len() - 1;
        self.swap(place, last);
        self.order.pop();
        self.places[client as usize] = NOWHERE;
        if place < self.order.len() {
            self.rise(place);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.order[parent] <= self.order[place] {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let child = 2 * place + 1;
            if child >= self.order.len() {
                break;
            }
            let other = child + 1;
            let right = other < self.order.len() && self.order[other] < self.order[child];
            let lower = if right { other } else { child };
            if self.order[place] <= self.order[lower] {
                break;
            }
            self.swap(place, lower);
            place = lower;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.order.swap(a, b);
        self.places[self.order[a].1 as usize] = a as u32;
        self.places[self.order[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::Heap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn does_what_a_sorted_list_does(steps in prop::collection::vec((0u32..40, 0u64..20), 1..300)) {
            let mut heap = Heap::new();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (client, key) in steps {
                if model.remove(&client).is_some() {
                    heap.remove(client);
                } else {
                    model.insert(client, key);
                    heap.insert(client, key);
                }
                let lowest = model.iter().map(|(client, key)| (*key, *client)).min();
                prop_assert_eq!(heap.first(), lowest);
                prop_assert_eq!(heap.contains(client), model.contains_key(&client));
            }
        }
    }
}
