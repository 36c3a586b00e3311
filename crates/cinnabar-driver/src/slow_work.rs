//! Work that may block (a back end's flush, a file, another host): what of it may begin now. It is
//! carried out by threads of the caller's, never by one that serves guests.
//!
//! # Queues
//! Work that names a queue is done one at a time with the rest of that queue, in order. With a queue
//! for each back end, one that hangs holds one thread, whatever is asked of it meanwhile.
//!
//! # Bounds
//! Each class of work has places. Work that was there at two looks is slow and leaves its place to
//! others, as long as its class has places for slow work, too: 64 back ends that hang do not keep the
//! other ones waiting, and 10,000 that do take no more threads than there are places. What finds none
//! waits. A thread that can't be had is the same: the work goes back to where it was
//! ([`SlowWork::refused`]).

use slab::Slab;
use std::collections::{BTreeSet, VecDeque};

/// Places of a class of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// For work that is not slow.
    pub usual: usize,
    /// For work that is.
    pub slow: usize,
}

/// See the module. `Q` names a queue, `W` is the work.
#[derive(Debug)]
pub struct SlowWork<Q, W> {
    /// Earlier ones go first.
    classes: Vec<Class<Q, W>>,
    /// By ticket.
    under_way: Slab<UnderWay<Q>>,
    /// Queues with work under way.
    taken: BTreeSet<Q>,
}

#[derive(Debug)]
struct Class<Q, W> {
    places: Places,
    waiting: VecDeque<(Option<Q>, W)>,
    /// Under way, and not slow.
    usual: usize,
    /// Under way, and slow.
    slow: usize,
}

#[derive(Debug)]
struct UnderWay<Q> {
    class: usize,
    queue: Option<Q>,
    looked_at: bool,
    slow: bool,
}

impl<Q: Copy + Ord, W> SlowWork<Q, W> {
    /// Classes with these places; those named first go first.
    pub fn new(places: &[Places]) -> Self {
        let class =
            |&places: &Places| Class { places, waiting: VecDeque::new(), usual: 0, slow: 0 };
        let classes = places.iter().map(class).collect();
        Self { classes, under_way: Slab::new(), taken: BTreeSet::new() }
    }

    /// Work to be done.
    pub fn push(&mut self, class: usize, queue: Option<Q>, work: W) {
        self.classes[class].waiting.push_back((queue, work));
    }

    /// Takes what is to begin now, with the ticket that tells of its end.
    pub fn begin(&mut self) -> Option<(usize, W)> {
        let Self { classes, under_way, taken } = self;
        for (number, class) in classes.iter_mut().enumerate() {
            if class.usual >= class.places.usual {
                continue;
            }
            let is_free = |(queue, _): &(Option<Q>, W)| queue.is_none_or(|q| !taken.contains(&q));
            let Some(at) = class.waiting.iter().position(is_free) else { continue };
            let Some((queue, work)) = class.waiting.remove(at) else { continue };
            taken.extend(queue);
            class.usual += 1;
            let begun = UnderWay { class: number, queue, looked_at: false, slow: false };
            return Some((under_way.insert(begun), work));
        }
        None
    }

    /// No thread could be had for it: it is the next of its queue again.
    pub fn refused(&mut self, ticket: usize, work: W) {
        let (class, queue) = self.ended(ticket);
        self.classes[class].waiting.push_front((queue, work));
    }

    /// Work under way has ended; gives its class and queue.
    ///
    /// # Panics
    /// If nothing with this ticket is under way.
    pub fn ended(&mut self, ticket: usize) -> (usize, Option<Q>) {
        let UnderWay { class, queue, slow, .. } = self.under_way.remove(ticket);
        let of = &mut self.classes[class];
        *(if slow { &mut of.slow } else { &mut of.usual }) -= 1;
        if let Some(queue) = queue {
            assert!(self.taken.remove(&queue), "it was under way");
        }
        (class, queue)
    }

    /// A look, at regular times: what is there for the second time is slow.
    pub fn look(&mut self) {
        for (_, one) in &mut self.under_way {
            let class = &mut self.classes[one.class];
            if one.looked_at && !one.slow && class.slow < class.places.slow {
                one.slow = true;
                class.usual -= 1;
                class.slow += 1;
            }
            one.looked_at = true;
        }
    }

    /// Goes through what waits, and keeps what `keep` gives back.
    pub fn sift(&mut self, mut keep: impl FnMut(W) -> Option<W>) {
        for class in &mut self.classes {
            let waiting = std::mem::take(&mut class.waiting);
            class.waiting = waiting
                .into_iter()
                .filter_map(|(queue, work)| Some((queue, keep(work)?)))
                .collect();
        }
    }

    /// How much of a class waits, and how much is under way.
    pub fn count(&self, class: usize) -> (usize, usize) {
        let class = &self.classes[class];
        (class.waiting.len(), class.usual + class.slow)
    }

    /// Whether there is nothing to do or under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.classes.iter().all(|class| class.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Work = SlowWork<u32, u32>;

    fn begun(work: &mut Work) -> Vec<(usize, u32)> {
        std::iter::from_fn(|| work.begin()).collect()
    }

    const ONE_CLASS: &[Places] = &[Places { usual: 4, slow: 3 }];

    #[test]
    fn a_queue_has_one_thread_and_keeps_its_order() {
        let mut work = Work::new(ONE_CLASS);
        for (queue, what) in [(1, 10), (1, 11), (1, 12), (2, 20)] {
            work.push(0, Some(queue), what);
        }
        work.push(0, None, 30);
        work.push(0, None, 31);
        let first = begun(&mut work);
        assert_eq!(first.iter().map(|one| one.1).collect::<Vec<_>>(), [10, 20, 30, 31]);
        assert_eq!(work.ended(first[0].0), (0, Some(1)));
        let second = begun(&mut work);
        assert_eq!(second.iter().map(|one| one.1).collect::<Vec<_>>(), [11]);
        assert_eq!(work.count(0), (1, 4));
    }

    #[test]
    fn what_hangs_takes_no_more_threads_than_there_are_places() {
        let mut work = Work::new(ONE_CLASS);
        (0..4095).for_each(|volume| work.push(0, Some(volume), volume));
        let mut under_way = begun(&mut work);
        assert_eq!(under_way.len(), 4);
        for looks in 0..10 {
            work.look();
            under_way.append(&mut begun(&mut work));
            let bound = if looks == 0 { 4 } else { 7 };
            assert_eq!(under_way.len(), bound, "after {} looks", looks + 1);
        }
        // One of the slow ones answers after all.
        work.ended(under_way[0].0);
        assert_eq!(begun(&mut work), [], "its place is that of slow work");
        work.look();
        assert_eq!(begun(&mut work).len(), 1, "which another one takes");
    }

    #[test]
    fn what_is_quick_goes_on_beside_what_hangs() {
        let mut work = Work::new(ONE_CLASS);
        (0..3).for_each(|volume| work.push(0, Some(volume), volume));
        assert_eq!(begun(&mut work).len(), 3, "these hang");
        work.look();
        work.look();
        for round in 0..100 {
            (10..14).for_each(|volume| work.push(0, Some(volume), volume));
            let quick = begun(&mut work);
            assert_eq!(quick.len(), 4, "in round {round}");
            for (ticket, _) in quick {
                work.ended(ticket);
            }
            work.look();
        }
    }

    #[test]
    fn earlier_classes_go_first_and_have_places_of_their_own() {
        let places = Places { usual: 1, slow: 0 };
        let mut work = Work::new(&[places, places]);
        work.push(1, None, 20);
        work.push(0, None, 10);
        work.push(0, None, 11);
        let both = begun(&mut work);
        assert_eq!(both.iter().map(|one| one.1).collect::<Vec<_>>(), [10, 20]);
        work.ended(both[1].0);
        assert_eq!(begun(&mut work), [], "the place of the second class is not for the first");
    }

    #[test]
    fn what_no_thread_could_be_had_for_is_next() {
        let mut work = Work::new(ONE_CLASS);
        for (queue, what) in [(1, 10), (1, 11), (2, 20)] {
            work.push(0, Some(queue), what);
        }
        let (ticket, what) = work.begin().expect("there is a place");
        work.refused(ticket, what);
        assert_eq!(work.count(0), (3, 0));
        assert_eq!(begun(&mut work).iter().map(|one| one.1).collect::<Vec<_>>(), [10, 20]);
        work.sift(|what| (what != 11).then_some(what));
        assert_eq!(work.count(0), (0, 2));
        assert!(!work.is_empty());
    }
}
