//! The requests that wait, in order of arrival for each client, and those that are under way.
//!
//! The table holds what the tags need: cost and arrival. The request itself stays with the caller,
//! who knows it by its token.

use crate::qos::cost::Cost;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// Names a request of a scheduler from its submission to its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    /// How often the place was used before: a ticket that is used twice is found out.
    turn: u32,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    UnderWay,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The caller's.
    pub(crate) token: u64,
    /// Its client's place.
    pub(crate) client: u32,
    /// The client's use of that place.
    pub(crate) client_turn: u32,
    pub(crate) cost: Cost,
    pub(crate) arrival_ns: u64,
    state: State,
    turn: u32,
    before: u32,
    behind: u32,
}

/// The waiting requests of a client: first, last, how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    first: u32,
    last: u32,
    /// How many there are.
    pub(crate) count: usize,
}

impl Line {
    /// Nothing waits.
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE, count: 0 };
}

/// All requests that the scheduler knows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Table {
    /// Adds a request at the end of its client's line.
    pub(crate) fn push(&mut self, line: &mut Line, new: NewEntry) -> Ticket {
        let index = self.place();
        let turn = self.entries[index as usize].turn;
        let NewEntry { token, client, client_turn, cost, arrival_ns } = new;
        let state = State::Waiting;
        let (before, behind) = (line.last, NONE);
        self.entries[index as usize] =
            Entry { token, client, client_turn, cost, arrival_ns, state, turn, before, behind };
        if line.last == NONE {
            line.first = index;
        } else {
            self.entries[line.last as usize].behind = index;
        }
        line.last = index;
        line.count += 1;
        Ticket { index, turn }
    }

    pub(crate) fn first(&self, line: &Line) -> Option<&Entry> {
        (line.first != NONE).then(|| &self.entries[line.first as usize])
    }

    /// The ticket of the first one, or of the last one.
    pub(crate) fn ticket(&self, line: &Line, last: bool) -> Option<Ticket> {
        let index = if last { line.last } else { line.first };
        (index != NONE).then(|| Ticket { index, turn: self.entries[index as usize].turn })
    }

    /// Takes a waiting request out of its line; it is under way from now on.
    pub(crate) fn begin(&mut self, line: &mut Line, ticket: Ticket) -> Entry {
        let entry = self.unlink(line, ticket);
        self.entries[ticket.index as usize].state = State::UnderWay;
        entry
    }

    /// Takes a waiting request out of its line and forgets it.
    pub(crate) fn drop_waiting(&mut self, line: &mut Line, ticket: Ticket) -> Entry {
        let entry = self.unlink(line, ticket);
        self.release(ticket.index);
        entry
    }

    /// Forgets a request that was under way.
    ///
    /// # Panics
    /// When it was not: a completion that comes twice would let more begin than the depth allows.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Entry {
        let entry = self.entry(ticket).expect("a request is completed once");
        assert!(entry.state == State::UnderWay, "a request is completed after it was begun");
        self.release(ticket.index);
        entry
    }

    /// A request that waits, if it does.
    pub(crate) fn waiting(&self, ticket: Ticket) -> Option<Entry> {
        self.entry(ticket).filter(|entry| entry.state == State::Waiting)
    }

    fn entry(&self, ticket: Ticket) -> Option<Entry> {
        let entry = self.entries.get(ticket.index as usize)?;
        (entry.turn == ticket.turn && entry.state != State::Free).then_some(*entry)
    }

    fn unlink(&mut self, line: &mut Line, ticket: Ticket) -> Entry {
        let entry = self.waiting(ticket).expect("it waits");
        if entry.before == NONE {
            line.first = entry.behind;
        } else {
            self.entries[entry.before as usize].behind = entry.behind;
        }
        if entry.behind == NONE {
            line.last = entry.before;
        } else {
            self.entries[entry.behind as usize].before = entry.before;
        }
        line.count -= 1;
        entry
    }

    fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.state = State::Free;
        entry.turn = entry.turn.wrapping_add(1);
        self.free.push(index);
    }

    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                token: 0,
                client: 0,
                client_turn: 0,
                cost: Cost::ZERO,
                arrival_ns: 0,
                state: State::Free,
                turn: 0,
                before: NONE,
                behind: NONE,
            });
            self.entries.len() as u32 - 1
        })
    }
}

/// What is known of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry {
    pub(crate) token: u64,
    pub(crate) client: u32,
    pub(crate) client_turn: u32,
    pub(crate) cost: Cost,
    pub(crate) arrival_ns: u64,
}
