//! Requests under way on one connection: what each may be answered with, and what it has got so far.

use slab::Slab;

/// Stretches of a read that have arrived and do not touch: no honest server cuts one finer.
const STRETCHES_MAX: usize = 1024;
/// Error chunks of a request: servers send one, or one for each bad part of a read.
pub(super) const ERRORS_MAX: u8 = 16;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes.
    Read,
    /// Bytes taken.
    Write,
    /// What was written made durable.
    Flush,
    /// A range given up.
    Trim,
    /// A range zeroed.
    WriteZeroes,
}

/// One request under way.
#[derive(Debug)]
pub struct Flight {
    cookie: u64,
    /// What.
    pub command: Command,
    /// First byte on the disk.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Whose: the caller's own number.
    pub owner: usize,
    /// Where it begins within the owner's range.
    pub at: u64,
    /// The server can have seen all of it.
    pub(super) sent: bool,
    /// Stretches of a read that have arrived: sorted, apart.
    arrived: Vec<(u32, u32)>,
    /// The first error that a chunk told.
    pub(super) error: Option<u32>,
    /// Chunks that told an error.
    errors: u8,
}

/// See the module.
#[derive(Debug, Default)]
pub struct InFlight {
    slots: Slab<Flight>,
    /// Requests ever, so that no cookie comes twice.
    count: u32,
}

impl InFlight {
    /// Takes a request up; its cookie.
    pub fn add(&mut self, command: Command, offset: u64, len: u32, owner: usize, at: u64) -> u64 {
        self.count = self.count.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let cookie = u64::from(self.count) << 32 | entry.key() as u64;
        let arrived = Vec::new();
        entry.insert(Flight {
            cookie,
            command,
            offset,
            len,
            owner,
            at,
            sent: false,
            arrived,
            error: None,
            errors: 0,
        });
        cookie
    }

    /// The request of this cookie, if it is under way.
    pub fn get(&self, cookie: u64) -> Option<&Flight> {
        self.slots.get(cookie as u32 as usize).filter(|flight| flight.cookie == cookie)
    }

    pub(super) fn get_mut(&mut self, cookie: u64) -> Option<&mut Flight> {
        self.slots.get_mut(cookie as u32 as usize).filter(|flight| flight.cookie == cookie)
    }

    /// All of this request has been sent: it may be answered.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn was_sent(&mut self, cookie: u64) {
        self.get_mut(cookie).expect("unanswered before it is sent").sent = true;
    }

    /// Lets go of a request that [`get`](Self::get) finds.
    pub(super) fn remove(&mut self, cookie: u64) -> Flight {
        self.slots.remove(cookie as u32 as usize)
    }

    /// Requests under way.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// None is under way.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Flight {
    /// Notes an error that a chunk tells; the first one is the answer. False if there are too many.
    pub(super) fn fail(&mut self, number: u32) -> bool {
        self.error.get_or_insert(number);
        self.errors += 1;
        self.errors <= ERRORS_MAX
    }

    /// Notes that a stretch of a read arrives. False if it is not inside, was there already, or
    /// leaves too many pieces.
    pub(super) fn arrive(&mut self, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        if len == 0 || end > u64::from(self.len) {
            return false;
        }
        let (at, end) = (at as u32, end as u32);
        let next = self.arrived.partition_point(|stretch| stretch.0 < at);
        let before = next.checked_sub(1).map(|index| self.arrived[index].1);
        let after = self.arrived.get(next).map(|stretch| stretch.0);
        if before.is_some_and(|before| before > at) || after.is_some_and(|after| after < end) {
            return false;
        }
        match (before == Some(at), after == Some(end)) {
            (true, true) => {
                self.arrived[next - 1].1 = self.arrived[next].1;
                self.arrived.remove(next);
            }
            (true, false) => self.arrived[next - 1].1 = end,
            (false, true) => self.arrived[next].0 = at,
            (false, false) => self.arrived.insert(next, (at, end)),
        }
        self.arrived.len() <= STRETCHES_MAX
    }

    /// Nothing of an answer has come yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.arrived.is_empty() && self.error.is_none()
    }

    /// Every byte of a read has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.arrived == [(0, self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(len: u32) -> Flight {
        let mut in_flight = InFlight::default();
        let cookie = in_flight.add(Command::Read, 0, len, 0, 0);
        in_flight.remove(cookie)
    }

    #[test]
    fn cookies_are_those_under_way() {
        let mut in_flight = InFlight::default();
        let first = in_flight.add(Command::Read, 0, 512, 7, 0);
        assert_eq!(in_flight.get(first).map(|flight| flight.owner), Some(7));
        in_flight.remove(first);
        let second = in_flight.add(Command::Read, 0, 512, 8, 0);
        assert_ne!(first, second, "a slot used again has another cookie");
        for stranger in [first, 0, u64::MAX, second ^ 1, second ^ 1 << 40] {
            assert!(in_flight.get(stranger).is_none(), "{stranger:#x}");
        }
    }

    #[test]
    fn pieces_are_bounded() {
        let mut flight = read(1 << 20);
        let refused = (0..1 << 19).find(|piece| !flight.arrive(piece * 2, 1));
        assert_eq!(refused, Some(STRETCHES_MAX as u64));
    }

    proptest! {
        /// Against a map of bytes.
        #[test]
        fn arrivals_never_overlap(stretches in prop::collection::vec((0_u64..40, 0_u64..12), 1..40)) {
            let mut flight = read(32);
            let mut bytes = [false; 32];
            for (at, len) in stretches {
                let range = at as usize..(at + len) as usize;
                let free = len > 0 && range.end <= 32 && !bytes[range.clone()].contains(&true);
                prop_assert_eq!(flight.arrive(at, len), free);
                if free {
                    bytes[range].fill(true);
                }
                prop_assert_eq!(flight.is_whole(), !bytes.contains(&false));
            }
        }
    }
}
