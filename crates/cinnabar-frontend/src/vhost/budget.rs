//! What front-ends' memory takes of this process: addresses, and places in the guard's table.
//!
//! Both are bounded a process: when its addresses are used up the next allocation aborts the daemon,
//! and with it the disks of all guests. Sparse memory costs a front-end nothing, so the bound of one
//! table is not enough; and tables that are replaced, or whose connection is gone, are pinned by
//! their slow requests. So every mapping is charged to its export from before it is made until after
//! it is unmapped. An export has room for a guest of ordinary size as long as there is any; more
//! than that it may have up to half of what two thirds of the process have left.

use super::limits::{MEMORY_BYTES_MAX, PLACES_MAX, REGIONS_MAX};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of addresses that guests' memory may take in this process (96 TiB), of the 128 TiB that
/// processes have on x86-64, where that is the least of all machines with addresses of 48 bits.
const PROCESS_BYTES_MAX: u64 = 96 << 40;
/// What a connection may take whatever the others have: 256 GiB in ten mappings.
const SMALL_BYTES: u64 = 256 << 30;
const SMALL_PLACES: u64 = 10;
/// What one connection of an export may take: a table and the one that takes its place.
const CONNECTION_BYTES_MAX: u64 = 2 * MEMORY_BYTES_MAX;
/// Likewise, with the notes of requests under way and the log of dirty pages.
const CONNECTION_PLACES_MAX: u64 = 2 * (REGIONS_MAX as u64 + 2);

/// Mappings and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    places: u64,
}

/// Of the whole process.
static PROCESS: Mutex<Usage> = Mutex::new(Usage { bytes: 0, places: 0 });

/// What one export's front-ends have mapped, those of the past included.
#[derive(Debug, Default)]
pub(super) struct Account {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    usage: Usage,
    /// Front-ends connected now.
    connections: u64,
}

/// A mapping that is paid for. To be dropped when it is unmapped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// A front-end has come.
    pub(super) fn enter(&self) {
        self.state().connections += 1;
    }

    /// One is gone.
    pub(super) fn leave(&self) {
        self.state().connections -= 1;
    }

    /// Pays for a mapping of `bytes` bytes; `None`: there is no room for it.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let connections = state.connections.max(1);
        let bytes_bound =
            Bound { own: CONNECTION_BYTES_MAX, small: SMALL_BYTES, process: process_bytes_max() };
        let places_bound =
            Bound { own: CONNECTION_PLACES_MAX, small: SMALL_PLACES, process: PLACES_MAX as u64 };
        let own = state.usage;
        if !bytes_bound.fits(own.bytes, bytes, connections, process.bytes)
            || !places_bound.fits(own.places, 1, connections, process.places)
        {
            return None;
        }
        for usage in [&mut *process, &mut state.usage] {
            usage.bytes += bytes;
            usage.places += 1;
        }
        drop(state);
        Some(Charge { account: Arc::clone(self), bytes })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may be taken of one resource.
struct Bound {
    /// By one connection.
    own: u64,
    /// By one connection, whatever the others have.
    small: u64,
    /// Bytes that all connections of the process may use.
    process: u64,
}

impl Bound {
    fn fits(&self, own: u64, more: u64, connections: u64, all: u64) -> bool {
        let own_after = own.saturating_add(more);
        let all_after = all.saturating_add(more);
        let small = self.small.min(self.process / 64).saturating_mul(connections);
        let half = (self.process / 3 * 2).saturating_sub(all) / 2;
        own_after <= self.own.saturating_mul(connections)
            && all_after <= self.process
            && own_after <= small.max(half)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        for usage in [&mut *process, &mut self.account.state().usage] {
            usage.bytes -= self.bytes;
            usage.places -= 1;
        }
    }
}

/// An operator may have given the process fewer addresses (`RLIMIT_AS`).
fn process_bytes_max() -> u64 {
    let given = rustix::process::getrlimit(rustix::process::Resource::As).current;
    given.map_or(PROCESS_BYTES_MAX, |given| PROCESS_BYTES_MAX.min(given / 4 * 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn an_account_has_room_for_two_tables_a_connection_and_gets_it_back() {
        let account = Arc::new(Account::default());
        account.enter();
        let one = account.charge(10 * TIB).expect("a table");
        let two = account.charge(10 * TIB).expect("and the next");
        assert!(account.charge(10 * TIB).is_none(), "more is pinned than it needs");
        drop((one, two));
        assert_eq!(account.state().usage, Usage::default());
    }

    #[test]
    fn the_greedy_leave_room_for_ordinary_guests() {
        let bound = Bound { own: 32 * TIB, small: TIB / 4, process: 96 * TIB };
        let (mut all, mut step) = (0, 32 * TIB);
        // Each takes as much as it may, of ever smaller sizes.
        while step > TIB / 4 {
            if bound.fits(0, step, 1, all) {
                all += step;
            } else {
                step /= 2;
            }
        }
        assert!(all <= 65 * TIB, "{all}");
        assert!(bound.fits(0, TIB / 4, 1, all), "an ordinary guest comes along");
        assert!(!bound.fits(TIB / 4, 1, 1, all), "but no more than that");
        assert!(bound.fits(TIB / 4, 1, 2, all), "another connection does");
    }

    #[test]
    fn places_are_bounded_too() {
        let account = Arc::new(Account::default());
        let all: Vec<_> = std::iter::from_fn(|| account.charge(4096)).collect();
        assert_eq!(all.len() as u64, CONNECTION_PLACES_MAX);
    }
}
