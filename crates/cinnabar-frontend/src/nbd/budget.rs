//! What clients may hold, counted by export.
//!
//! A quarter of everything is never lent: each export has an equal part of it as its floor, 1 MiB and 16
//! requests at most. Beyond its floor it borrows of what the floors leave, and may have half of what is free
//! to it at most, whatever number of connections it has. So n greedy exports leave 1/(n + 1) of that to the
//! next, and those that take as much as they can one after the other leave at least every floor. Example: of
//! 1 GiB for 100 exports 924 MiB can be lent; the first borrows 462 MiB, the second 231 MiB, the tenth 900 KiB, and
//! the hundredth still has its 1 MiB.
//!
//! A large request of an export that has borrowed nothing could wait as long as others borrow by small ones. So
//! the one that has waited longest may have all that is free ([`starved`](crate::starved)), and as long as it
//! waits, exports that have borrowed buffers borrow no more.

use super::export::ExportId;
use super::load::{Load, Rank, Shortage};
use super::mutant::{Mutant, Mutants};
use std::collections::BTreeMap;

/// The most that is an export's own.
const FLOOR: Load = Load { requests: 16, bytes: 1 << 20 };
/// Requests of an export under way, more than any disk needs: the engine looks at all of a volume's for each that
/// comes or goes, in the time of all guests of its thread. Beyond that each connection may have one: guests that share an
/// image, whose back end may hang, go on with what is cached of it.
const DEPTH_MAX: u64 = 1024;

/// What one export holds.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    held: Load,
    /// It has a floor. (What is under way of a removed export is borrowed.)
    is_served: bool,
}

/// What all exports hold, and how much more they may.
#[derive(Debug)]
pub(super) struct Budget {
    total: Load,
    mutants: Mutants,
    accounts: BTreeMap<ExportId, Account>,
    /// Exports with a floor.
    served: u64,
    held: Load,
    /// What exports hold beyond their floors.
    borrowed: Load,
}

impl Budget {
    pub(super) fn new(total: Load, mutants: Mutants) -> Self {
        let (accounts, held, borrowed) = (BTreeMap::new(), Load::default(), Load::default());
        Self { total, mutants, accounts, served: 0, held, borrowed }
    }

    /// What all exports hold.
    pub(super) const fn held(&self) -> Load {
        self.held
    }

    /// An export is served from now on.
    pub(super) fn open(&mut self, export: ExportId) {
        self.set_served(export, true);
    }

    /// An export is removed; what it holds comes back later.
    pub(super) fn close(&mut self, export: ExportId) {
        self.set_served(export, false);
        self.forget_if_over(export);
    }

    fn set_served(&mut self, export: ExportId, is_served: bool) {
        let account = self.accounts.entry(export).or_default();
        if account.is_served == is_served {
            return;
        }
        account.is_served = is_served;
        self.served = if is_served { self.served + 1 } else { self.served - 1 };
        // All floors may have changed.
        let floor = self.floor();
        let beyond = |account: &Account| account.held.beyond(account.floor(floor));
        self.borrowed =
            self.accounts.values().map(beyond).fold(Load::default(), |sum, one| sum + one);
    }

    fn forget_if_over(&mut self, export: ExportId) {
        let is_over = |account: &Account| !account.is_served && account.held == Load::default();
        if self.accounts.get(&export).is_some_and(is_over) {
            self.accounts.remove(&export);
        }
    }

    /// What each export has for itself.
    fn floor(&self) -> Load {
        if self.mutants.is(Mutant::FloorLent) {
            return Load::default();
        }
        let part = |total: u64| total / 4 / self.served.max(1);
        let Load { requests, bytes } = self.total;
        let (requests, bytes) = (part(requests).min(FLOOR.requests), part(bytes).min(FLOOR.bytes));
        Load { requests, bytes }
    }

    /// Adds `more`, one request of a connection that holds `own`, to what its export holds, if there is room.
    pub(super) fn reserve(
        &mut self,
        export: ExportId,
        own: Load,
        more: Load,
        rank: Rank,
    ) -> Result<(), Shortage> {
        self.fits(export, own, more, rank)?;
        self.change(export, |held| *held += more);
        self.held += more;
        Ok(())
    }

    /// Whether there is room, or what is missing.
    pub(super) fn fits(
        &self,
        export: ExportId,
        own: Load,
        more: Load,
        rank: Rank,
    ) -> Result<(), Shortage> {
        let account = self.accounts.get(&export).copied().unwrap_or_default();
        let by_connection = self.mutants.is(Mutant::BudgetByConnection);
        let held = if by_connection { own } else { account.held };
        let floor = account.floor(self.floor());
        let (had, wants) = (held.beyond(floor), (held + more).beyond(floor));
        let free = self.lendable().beyond(self.borrowed.beyond(had));
        let is_eldest = rank == Rank::Starved;
        let fits_requests =
            wants.requests <= free.requests / if is_eldest && had.requests == 0 { 1 } else { 2 };
        let fits_bytes =
            wants.bytes <= free.bytes / if is_eldest && had.bytes == 0 { 1 } else { 2 };
        let is_deep = account.held.requests + more.requests > DEPTH_MAX;
        if is_deep && own.requests > 0 {
            return Err(Shortage::Own);
        }
        let waits = rank == Rank::Behind && had.bytes > 0;
        if wants.requests > 0 && !fits_requests {
            return Err(if had.requests > 0 { Shortage::Own } else { Shortage::Total });
        }
        if more.bytes > 0 && wants.bytes > 0 && (waits || !fits_bytes) {
            return Err(if had.bytes > 0 { Shortage::Own } else { Shortage::Total });
        }
        Ok(())
    }

    /// What the floors leave.
    fn lendable(&self) -> Load {
        let Load { requests, bytes } = self.floor();
        self.total.beyond(Load { requests: requests * self.served, bytes: bytes * self.served })
    }

    /// A request of an export holds nothing any more.
    pub(super) fn release(&mut self, export: ExportId, load: Load) {
        self.change(export, |held| *held -= load);
        self.held -= load;
        self.forget_if_over(export);
    }

    fn change(&mut self, export: ExportId, change: impl FnOnce(&mut Load)) {
        let floor = self.floor();
        let account = self.accounts.entry(export).or_default();
        let floor = account.floor(floor);
        let before = account.held.beyond(floor);
        change(&mut account.held);
        let after = account.held.beyond(floor);
        self.borrowed -= before;
        self.borrowed += after;
    }

    /// Whether ending connections of `holder` may make room for `waiter`: it has borrowed, and holds the
    /// larger part of requests or bytes, or both are one.
    pub(super) fn may_make_room(&self, holder: ExportId, waiter: ExportId) -> bool {
        let floor = self.floor();
        let of = |export| self.accounts.get(&export).copied().unwrap_or_default();
        let (of_holder, of_waiter) = (of(holder), of(waiter));
        let borrowed = of_holder.held.beyond(of_holder.floor(floor));
        borrowed != Load::default()
            && (holder == waiter || self.part(of_holder.held) > self.part(of_waiter.held))
    }

    /// The larger part of requests and bytes, in 1/2^20 of all.
    fn part(&self, held: Load) -> u64 {
        let requests = (held.requests << 20) / self.total.requests.max(1);
        requests.max((held.bytes << 20) / self.total.bytes.max(1))
    }
}

impl Account {
    fn floor(&self, floor: Load) -> Load {
        if self.is_served { floor } else { Load::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOTAL: Load = Load { requests: 8192, bytes: 1 << 30 };
    const NONE: Load = Load { requests: 0, bytes: 0 };

    fn budget(exports: u32) -> Budget {
        let mut budget = Budget::new(TOTAL, Mutants::NONE);
        (0..exports).for_each(|export| budget.open(ExportId(export)));
        budget
    }

    const fn bytes(bytes: u64) -> Load {
        Load { requests: 1, bytes }
    }

    /// Takes as much as an export may, in ever smaller requests.
    fn take_all(budget: &mut Budget, export: u32, rank: Rank) -> u64 {
        let (mut taken, mut size) = (0, 32 << 20);
        while size >= 4096 {
            match budget.reserve(ExportId(export), NONE, bytes(size), rank) {
                Ok(()) => taken += size,
                Err(_) => size /= 2,
            }
        }
        taken
    }

    #[test]
    fn the_greedy_leave_each_floor() {
        let mut budget = budget(100);
        let taken: Vec<u64> =
            (0..99).map(|one| take_all(&mut budget, one, Rank::Free) >> 10).collect();
        assert_eq!(taken[..3], [462 * 1024 + 1024, 231 * 1024 + 1024, 115 * 1024 + 512 + 1024]);
        assert!(taken.iter().all(|taken| *taken >= 1024), "{taken:?}");
        assert_eq!(take_all(&mut budget, 99, Rank::Behind), 1 << 20, "it has its floor");
        assert!(budget.held().bytes <= TOTAL.bytes);
    }

    #[test]
    fn an_export_has_a_bounded_depth_whatever_is_free() {
        let mut budget = budget(2);
        let one = Load { requests: 1, bytes: 0 };
        let reserve = |budget: &mut Budget, own| budget.reserve(ExportId(0), own, one, Rank::Free);
        let count = std::iter::from_fn(|| reserve(&mut budget, one).ok()).count() as u64;
        assert_eq!((count, reserve(&mut budget, one)), (DEPTH_MAX, Err(Shortage::Own)));
        assert_eq!(reserve(&mut budget, NONE), Ok(()), "of a connection that has none");
    }

    #[test]
    fn who_has_waited_longest_gets_all_that_is_free_and_those_that_borrowed_wait() {
        let mut budget = budget(3);
        let (first, second) = (ExportId(0), ExportId(1));
        take_all(&mut budget, 0, Rank::Free);
        // 1021 MiB are lent, 510 of them borrowed: half of 510 is free to others.
        let fits = |export, mib: u64, rank| budget.fits(export, NONE, bytes(mib << 20), rank);
        assert_eq!(fits(second, 256, Rank::Free), Ok(()));
        assert_eq!(fits(second, 257, Rank::Free), Err(Shortage::Total));
        assert_eq!(fits(second, 511, Rank::Starved), Ok(()));
        assert_eq!(fits(second, 513, Rank::Starved), Err(Shortage::Total));
        assert_eq!(fits(first, 1, Rank::Free), Err(Shortage::Own), "it borrowed");
        assert_eq!(fits(first, 0, Rank::Behind), Ok(()), "no buffer");
        budget.release(first, bytes(32 << 20));
        assert_eq!(budget.fits(first, NONE, bytes(1), Rank::Free), Ok(()));
        assert_eq!(budget.fits(first, NONE, bytes(1), Rank::Behind), Err(Shortage::Own));
        assert_eq!(budget.fits(second, NONE, bytes(2 << 20), Rank::Behind), Ok(()));
    }

    #[test]
    fn what_a_removed_export_holds_is_borrowed() {
        let mut budget = budget(1);
        budget.reserve(ExportId(0), NONE, bytes(1 << 20), Rank::Free).expect("its floor");
        assert_eq!(budget.borrowed, NONE);
        budget.close(ExportId(0));
        assert_eq!(budget.borrowed, bytes(1 << 20));
        // One of the same name goes on with it.
        budget.open(ExportId(0));
        assert_eq!(budget.borrowed, NONE);
        budget.close(ExportId(0));
        budget.release(ExportId(0), bytes(1 << 20));
        assert!(budget.accounts.is_empty() && budget.held() == NONE && budget.borrowed == NONE);
    }

    #[test]
    fn only_who_holds_more_makes_room() {
        let mut budget = budget(3);
        take_all(&mut budget, 0, Rank::Free);
        take_all(&mut budget, 1, Rank::Free);
        let may = |holder, waiter| budget.may_make_room(ExportId(holder), ExportId(waiter));
        assert!(may(0, 1) && may(0, 2) && may(1, 2) && may(0, 0));
        assert!(!may(1, 0) && !may(2, 0) && !may(2, 2), "it has borrowed nothing");
    }

    proptest! {
        /// Whatever exports do, all of them together hold what there is at most, none that is within its
        /// floor waits, and none has more than half of what is free to it.
        #[test]
        fn floors_are_kept(
            exports in 1_u32..40,
            asks in prop::collection::vec((0_u32..40, 0_u64..40_000_000, 0_u32..4, any::<bool>()), 1..300),
        ) {
            let mut budget = budget(exports);
            let mut held: Vec<(ExportId, Load)> = Vec::new();
            for (export, size, rank, gives) in asks {
                let export = ExportId(export % exports);
                if gives && let Some((export, load)) = held.pop() {
                    budget.release(export, load);
                    continue;
                }
                let rank = [Rank::Free, Rank::Starved, Rank::Behind, Rank::Free][rank as usize];
                let own = budget.accounts[&export].held;
                let granted = budget.reserve(export, NONE, bytes(size), rank);
                let floor = budget.floor();
                let is_within = (own + bytes(size)).beyond(floor) == NONE;
                prop_assert!(granted.is_ok() || !is_within);
                if granted.is_ok() {
                    held.push((export, bytes(size)));
                }
                let sum = budget.accounts.values().fold(NONE, |sum, account| sum + account.held);
                prop_assert_eq!(sum, budget.held());
                prop_assert!(sum.bytes <= TOTAL.bytes && sum.requests <= TOTAL.requests);
            }
        }
    }
}
