//! Places for connections and what they hold, shared among clients: each has at most as many as it leaves free.
//!
//! One place in 16 is kept for operators: an account may own many others (`subuid`), which together take what is
//! left. Of 256 free places one client gets 120, the next one 60, and so on. A client that has none gets one as
//! long as there is one that is not kept.

use super::peer::Peer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One place in so many is kept for operators: 16 of 256, 4 of 64, 1 of 16.
const KEPT_OF: usize = 16;

/// Places of one kind.
#[derive(Debug)]
pub(crate) struct Places {
    count: usize,
    free: Arc<Semaphore>,
    /// Places taken, of each client that has some.
    taken: Mutex<BTreeMap<Peer, usize>>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// So many places, all free.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            count,
            free: Arc::new(Semaphore::new(count)),
            taken: Mutex::new(BTreeMap::new()),
        })
    }

    /// A place for this client; `None` if it has its part, or there is no place.
    pub(crate) fn take(self: &Arc<Self>, peer: Peer) -> Option<Place> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        self.give(permit, peer)
    }

    /// Waits until there is a free place, for a client that has not come yet.
    ///
    /// # Panics
    /// Never: the places are never closed.
    pub(crate) async fn wait(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        permit.expect("the places are never closed")
    }

    /// The place that was waited for becomes this client's; `None` if the client has its part, or the places
    /// that are left are kept.
    pub(crate) fn give(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        peer: Peer,
    ) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&peer).copied().unwrap_or(0);
        let free = self.free.available_permits();
        let kept = if peer.is_operator() { 0 } else { self.count / KEPT_OF };
        let is_bounded = peer != Peer::Operator && count > 0;
        if free < kept || (is_bounded && count >= free - kept) {
            return None;
        }
        taken.insert(peer, count + 1);
        drop(taken);
        Some(Place { places: Arc::clone(self), peer, _permit: permit })
    }

    /// Whether a place is taken.
    pub(crate) fn is_used(&self) -> bool {
        self.free.available_permits() < self.count
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(places: &Arc<Places>, peer: Peer) -> Vec<Place> {
        std::iter::from_fn(|| places.take(peer)).collect()
    }

    /// An account that is not the daemon's.
    fn ordinary(id: u32) -> Peer {
        Peer::Account(rustix::process::geteuid().as_raw() + 1000 + id)
    }

    /// Nine accounts had all places, and one account may own thousands.
    #[test]
    fn many_accounts_leave_places_to_operators() {
        for (count, kept) in [(256, 16), (64, 4), (16, 1)] {
            let places = Places::new(count);
            let many: Vec<Vec<Place>> = (0..300).map(|id| all_of(&places, ordinary(id))).collect();
            assert_eq!(many.iter().map(Vec::len).sum::<usize>(), count - kept);
            assert!(places.take(Peer::Unknown).is_none());
            let root = places.take(Peer::Account(0)).expect("some are kept");
            let far = Peer::of_address([10, 0, 0, 1].into());
            assert!(places.take(far).is_none());
            drop(root);
        }
    }

    #[test]
    fn a_client_has_as_many_places_as_it_leaves_free() {
        let places = Places::new(256);
        let first = all_of(&places, ordinary(1));
        let second = all_of(&places, ordinary(2));
        assert_eq!((first.len(), second.len()), (120, 60));
        let many: Vec<Vec<Place>> = (3..9).map(|id| all_of(&places, ordinary(id))).collect();
        assert!(many.iter().all(|own| !own.is_empty()), "each has some");
        let newcomer = places.take(ordinary(9)).expect("one more has one");
        assert!(places.take(ordinary(1)).is_none());
        drop((first, second, many, newcomer));
        assert!(!places.is_used());
        assert!(places.taken.lock().expect("no panic").is_empty());
    }

    #[test]
    fn the_last_place_is_for_one_who_has_none() {
        let places = Places::new(1);
        let place = places.take(Peer::Unknown).expect("it is free");
        assert!(places.take(ordinary(1)).is_none() && places.is_used());
        drop(place);
        assert!(places.take(ordinary(1)).is_some());
    }

    #[test]
    fn operators_have_all_of_theirs() {
        let places = Places::new(16);
        assert_eq!(all_of(&places, Peer::Operator).len(), 16);
    }
}
