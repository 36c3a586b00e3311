//! Holds: which blocks of a volume requests are working on, and who waits for whom.
//!
//! A request that writes excludes every other one that overlaps it; readers share. Waiters go in
//! order of arrival. So no fill can land after a newer write, overlapping writes can't differ in
//! order between cache and backend, and a read sees a block before or after a write, never during
//! it.

/// A request's hold on a range of blocks.
#[derive(Clone, Copy, Debug)]
struct Hold {
    request: usize,
    first: u64,
    end: u64,
    exclusive: bool,
    /// Order of arrival.
    order: u64,
    /// Earlier conflicting requests that have not left yet.
    blockers: u32,
}

impl Hold {
    fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.first < other.end && other.first < self.end
    }
}

/// The holds of one volume. A few hundred at most are scanned; they fit the cache.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    holds: Vec<Hold>,
    arrivals: u64,
}

impl Holds {
    /// `request`, which has and wants none so far, wants blocks `first..end`; says whether it has them
    /// at once.
    pub(crate) fn enter(&mut self, request: usize, first: u64, end: u64, exclusive: bool) -> bool {
        assert!(first < end, "a hold is of some blocks");
        debug_assert!(
            self.holds.iter().all(|hold| hold.request != request),
            "a request holds once"
        );
        let order = self.arrivals;
        let mut hold = Hold { request, first, end, exclusive, order, blockers: 0 };
        hold.blockers = self.holds.iter().filter(|other| other.conflicts(&hold)).count() as u32;
        self.arrivals += 1;
        self.holds.push(hold);
        hold.blockers == 0
    }

    /// Whether nobody holds or waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Who holds what or waits for it, oldest first: request, first block, end, exclusive, blockers.
    pub(crate) fn in_order(&self) -> Vec<(usize, u64, u64, bool, u32)> {
        let mut holds = self.holds.clone();
        holds.sort_unstable_by_key(|hold| hold.order);
        holds.iter().map(|h| (h.request, h.first, h.end, h.exclusive, h.blockers)).collect()
    }

    /// `request` is done; `granted` is called for each one that may go on now, oldest first.
    pub(crate) fn leave(&mut self, request: usize, mut granted: impl FnMut(usize)) {
        let index = self.holds.iter().position(|hold| hold.request == request);
        let left = self.holds.swap_remove(index.expect("a request that entered"));
        let mut freed: Vec<(u64, usize)> = Vec::new();
        for hold in &mut self.holds {
            if hold.order > left.order && hold.conflicts(&left) {
                assert!(hold.blockers > 0, "who waits has counted everyone it waits for");
                hold.blockers -= 1;
                if hold.blockers == 0 {
                    freed.push((hold.order, hold.request));
                }
            }
        }
        freed.sort_unstable();
        for (_, request) in freed {
            granted(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(holds: &mut Holds, request: usize) -> Vec<usize> {
        let mut granted = Vec::new();
        holds.leave(request, |request| granted.push(request));
        granted
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut holds = Holds::default();
        assert!(holds.enter(1, 0, 10, false));
        assert!(holds.enter(2, 5, 15, false));
        assert!(!holds.enter(3, 9, 10, true));
        assert!(!holds.enter(4, 9, 10, false), "behind the waiting writer");
        assert!(holds.enter(5, 10, 11, false));
        assert_eq!(leave(&mut holds, 1), []);
        assert_eq!(leave(&mut holds, 2), [3]);
        assert_eq!(leave(&mut holds, 3), [4]);
        assert_eq!(holds.holds.len(), 2);
    }

    #[test]
    fn overlapping_writers_go_in_order_of_arrival() {
        let mut holds = Holds::default();
        assert!(holds.enter(1, 0, 2, true));
        assert!(!holds.enter(2, 1, 3, true));
        assert!(!holds.enter(3, 2, 4, true));
        assert!(holds.enter(4, 4, 5, true));
        assert_eq!(leave(&mut holds, 1), [2]);
        assert_eq!(leave(&mut holds, 2), [3]);
    }
}
