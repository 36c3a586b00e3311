//! Range locks: which blocks of a volume each request works on, and which request waits for which.
//!
//! A request that writes excludes every other one that overlaps it; readers share. Waiters go in
//! order of arrival. So no fill can land after a newer write, overlapping writes can't differ in
//! order between cache and backend, and a read sees a block before or after a write, never during
//! it.

/// A request's lock on a range of blocks.
#[derive(Clone, Copy, Debug)]
struct RangeLock {
    request: usize,
    first: u64,
    end: u64,
    exclusive: bool,
    /// Order of arrival.
    order: u64,
    /// Earlier conflicting requests that have not left yet.
    blockers: u32,
}

impl RangeLock {
    fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.first < other.end && other.first < self.end
    }
}

/// The range locks of one volume. All are scanned: front ends have 1,024 requests of a volume under way at most
/// (and one more of each NBD connection; vhost-user: 1,024 of each connection), which fit the CPU cache.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    locks: Vec<RangeLock>,
    arrivals: u64,
    /// Of all requests so far.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

impl RangeLocks {
    /// Asks for a lock on blocks `first..end` for `request`, which has none yet; returns whether it
    /// has it at once.
    pub(crate) fn enter(&mut self, request: usize, first: u64, end: u64, exclusive: bool) -> bool {
        assert!(first < end, "a lock covers blocks");
        debug_assert!(
            self.locks.iter().all(|lock| lock.request != request),
            "a request has one lock"
        );
        let order = self.arrivals;
        let mut lock = RangeLock { request, first, end, exclusive, order, blockers: 0 };
        lock.blockers = self.locks.iter().filter(|other| other.conflicts(&lock)).count() as u32;
        #[cfg(test)]
        {
            self.looked_at += self.locks.len();
        }
        self.arrivals += 1;
        self.locks.push(lock);
        lock.blockers == 0
    }

    /// Whether no request has a lock or waits for one.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// `request` is done; `granted` is called for each one that may go on now, oldest first.
    pub(crate) fn leave(&mut self, request: usize, mut granted: impl FnMut(usize)) {
        let index = self.locks.iter().position(|lock| lock.request == request);
        #[cfg(test)]
        {
            self.looked_at += 2 * self.locks.len();
        }
        let left = self.locks.swap_remove(index.expect("a request that entered"));
        let mut freed: Vec<(u64, usize)> = Vec::new();
        for lock in &mut self.locks {
            if lock.order > left.order && lock.conflicts(&left) {
                assert!(lock.blockers > 0, "a waiter has counted each request it waits for");
                lock.blockers -= 1;
                if lock.blockers == 0 {
                    freed.push((lock.order, lock.request));
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

    fn leave(locks: &mut RangeLocks, request: usize) -> Vec<usize> {
        let mut granted = Vec::new();
        locks.leave(request, |request| granted.push(request));
        granted
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut locks = RangeLocks::default();
        assert!(locks.enter(1, 0, 10, false));
        assert!(locks.enter(2, 5, 15, false));
        assert!(!locks.enter(3, 9, 10, true));
        assert!(!locks.enter(4, 9, 10, false), "behind the waiting writer");
        assert!(locks.enter(5, 10, 11, false));
        assert_eq!(leave(&mut locks, 1), []);
        assert_eq!(leave(&mut locks, 2), [3]);
        assert_eq!(leave(&mut locks, 3), [4]);
        assert_eq!(locks.locks.len(), 2);
    }

    #[test]
    fn overlapping_writers_go_in_order_of_arrival() {
        let mut locks = RangeLocks::default();
        assert!(locks.enter(1, 0, 2, true));
        assert!(!locks.enter(2, 1, 3, true));
        assert!(!locks.enter(3, 2, 4, true));
        assert!(locks.enter(4, 4, 5, true));
        assert_eq!(leave(&mut locks, 1), [2]);
        assert_eq!(leave(&mut locks, 2), [3]);
    }
}
