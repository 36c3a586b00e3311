//! The queue between the engines' back-end I/O and the port of one thread: where I/O waits for its turn
//! among the volumes of a group (`docs/design/qos.md`).
//!
//! The group's [`Scheduler`] says whose turn it is; all threads have the same one, behind a lock of the
//! driver's, and each has a queue of its own, where its I/O waits. [`turn`](QosQueue::turn) is called once a
//! batch, with the scheduler: it reports what has ended, submits what has arrived, and takes what may
//! begin. That may be another thread's, whose queue then gets a [`Turn`].
//!
//! What waits stays bounded: engines have a bounded number of requests under way, and the scheduler a
//! bounded queue for each volume. Nothing waits without an end:
//!
//! * What has waited for as long as its volume allows is given up. It never reaches the back end.
//! * The place of an I/O that has been under way for [`PLACE_NS_MAX`], or for its own time-out, is given
//!   to another one: a volume whose back end is silent does not stop its neighbours.
//! * I/O of a volume that is not in the group any more begins at once.
//!
//! The thread that has taken turns last knows when the next limit lets something through, of
//! whichever volume, and asks again then.

use crate::qos::{Admitted, ClientId, Dispatch, Op, Refusal, Request, Scheduler, Ticket};
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::units::Instant;
use slab::Slab;

/// An I/O that is under way for longer than this, in ns, takes no place any more.
pub const PLACE_NS_MAX: u64 = 10_000_000_000;
/// Until what a full queue has refused is submitted again, in ns.
const AGAIN_AFTER_NS: u64 = 5_000_000;
/// Threads and I/Os have 32 bits each in a scheduler's token.
const INDEX_BITS: u32 = 32;

/// What wants to pass.
#[derive(Clone, Copy, Debug)]
pub struct QosRequest {
    /// Whose it is.
    pub client: ClientId,
    /// What it counts as.
    pub op: Op,
    /// How long it may wait, in ns; `None`: as long as it takes.
    pub patience_ns: Option<u64>,
}

/// What became of an I/O that waited.
#[derive(Debug)]
pub enum Admission<T> {
    /// It begins now; [`QosQueue::end`] when it has ended.
    Begins(QosPermit, T),
    /// It has waited for as long as it may, and never begins.
    GivenUp(T),
    /// It is the turn of an I/O of the thread of this number, for [`QosQueue::admit`] there.
    Elsewhere(usize, Turn),
}

/// An I/O of a queue may begin.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    index: u32,
    /// `None`: its volume has left the group.
    ticket: Option<Ticket>,
}

/// Of an I/O under way, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosPermit(u32);

/// See the module. `T` is the I/O, of which the queue knows nothing.
pub struct QosQueue<T> {
    thread: usize,
    waiting: Slab<Waiting<T>>,
    /// Those of them that the scheduler has yet to hear of.
    fresh: Vec<usize>,
    /// Those that it has refused, because their clients' queues were full.
    refused: Vec<usize>,
    /// It is asked again about these then.
    again_at: Option<Instant>,
    places: Slab<UnderWay>,
    /// Tickets of what has ended since the last turn.
    ended: Vec<Ticket>,
    /// A limit lets something through then.
    wake_at: Option<Instant>,
    /// The first I/O has waited for too long then.
    give_up_at: Option<Instant>,
    /// The first place has been taken for too long then.
    free_at: Option<Instant>,
    /// Something may have changed at the scheduler.
    asked: bool,
    taken: Vec<Dispatch>,
    mutants: Mutants,
}

/// An I/O that waits.
struct Waiting<T> {
    io: T,
    request: QosRequest,
    /// The scheduler has it.
    ticket: Option<Ticket>,
    /// It is given up then.
    until: Option<Instant>,
}

/// An I/O under way.
struct UnderWay {
    since: Instant,
    /// `None`: it takes no place, or not any more.
    ticket: Option<Ticket>,
}

impl<T> QosQueue<T> {
    /// Of the thread of this number, with nothing waiting.
    pub fn new(thread: usize, mutants: Mutants) -> Self {
        Self {
            thread,
            waiting: Slab::new(),
            fresh: Vec::new(),
            refused: Vec::new(),
            again_at: None,
            places: Slab::new(),
            ended: Vec::new(),
            wake_at: None,
            give_up_at: None,
            free_at: None,
            asked: false,
            taken: Vec::new(),
            mutants,
        }
    }

    /// An I/O arrives. It waits until one of the next turns.
    pub fn arrive(&mut self, now: Instant, request: QosRequest, io: T) {
        let until = request.patience_ns.map(|ns| now.plus_ns(ns));
        self.give_up_at = self.give_up_at.into_iter().chain(until).min();
        let index = self.waiting.insert(Waiting { io, request, ticket: None, until });
        self.fresh.push(index);
    }

    /// An I/O that has begun has ended.
    pub fn end(&mut self, place: QosPermit) {
        let under_way = self.places.remove(place.0 as usize);
        if !self.mutants.is(Mutant::PlaceKept) {
            self.ended.extend(under_way.ticket);
        }
    }

    /// An I/O takes too long: another one may have its place.
    pub fn free(&mut self, place: QosPermit) {
        self.ended.extend(self.places[place.0 as usize].ticket.take());
    }

    /// Has the next turn come at once: the settings of the group have changed.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// When the next turn is due; at once if there is something to tell the scheduler.
    pub fn deadline(&self) -> Option<Instant> {
        if self.asked || !self.fresh.is_empty() || !self.ended.is_empty() {
            return Some(Instant::default());
        }
        let times = [self.again_at, self.wake_at, self.give_up_at, self.free_at];
        times.into_iter().flatten().min()
    }

    /// Whether a turn is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// Nothing waits, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.places.is_empty() && self.ended.is_empty()
    }

    /// I/Os that wait here.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The same, one by one.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(_, waiting)| &waiting.io)
    }

    /// Tells the group's scheduler what has ended and what has arrived, and takes what may begin.
    pub fn turn(&mut self, now: Instant, group: &mut Scheduler, passed: &mut Vec<Admission<T>>) {
        self.asked = false;
        self.free_places(now);
        group.complete(now.0, &self.ended);
        self.ended.clear();
        self.submit(now, group, passed);
        let mut taken = std::mem::take(&mut self.taken);
        group.take(now.0, &mut taken);
        for one in taken.drain(..) {
            let (thread, turn) = turn_of(one.token, Some(one.ticket));
            if thread == self.thread {
                let begins = self.admit(now, turn);
                passed.extend(begins.map(|(place, io)| Admission::Begins(place, io)));
            } else {
                passed.push(Admission::Elsewhere(thread, turn));
            }
        }
        self.taken = taken;
        self.give_up(now, group, passed);
        self.wake_at = group.wake_at().map(Instant);
    }

    /// It is the turn of an I/O that waits here.
    ///
    /// # Panics
    /// If it does not wait: a turn is for one I/O, once.
    pub fn admit(&mut self, now: Instant, turn: Turn) -> Option<(QosPermit, T)> {
        let index = turn.index as usize;
        if self.mutants.is(Mutant::GivenUpKeepsTurn) && !self.waiting.contains(index) {
            return None;
        }
        let waiting = self.waiting.remove(index);
        assert!(waiting.ticket.is_some(), "the scheduler has heard of it");
        Some((self.begin(now, turn.ticket), waiting.io))
    }

    fn begin(&mut self, now: Instant, ticket: Option<Ticket>) -> QosPermit {
        if ticket.is_some() {
            self.free_at.get_or_insert(now.plus_ns(PLACE_NS_MAX));
        }
        QosPermit(self.places.insert(UnderWay { since: now, ticket }) as u32)
    }

    /// What has arrived, and what was refused a while ago, goes to the scheduler.
    fn submit(&mut self, now: Instant, group: &mut Scheduler, passed: &mut Vec<Admission<T>>) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            // They have waited for longer.
            self.refused.append(&mut self.fresh);
            std::mem::swap(&mut self.refused, &mut self.fresh);
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        for index in fresh.drain(..) {
            let waiting = &mut self.waiting[index];
            let QosRequest { client, op, .. } = waiting.request;
            let token = (self.thread as u64) << INDEX_BITS | index as u64;
            match group.submit(now.0, Request { client, op, token }) {
                Ok(Admitted::Waits(ticket)) => waiting.ticket = Some(ticket),
                // What is there first has to begin.
                Err(Refusal::Full(_)) => {
                    self.refused.push(index);
                    self.again_at.get_or_insert(now.plus_ns(AGAIN_AFTER_NS));
                }
                // Exempt, or its volume leaves.
                Ok(Admitted::Exempt) | Err(_) => {
                    let io = self.waiting.remove(index).io;
                    passed.push(Admission::Begins(self.begin(now, None), io));
                }
            }
        }
        self.fresh = fresh;
    }

    /// Gives up what has waited for too long.
    fn give_up(&mut self, now: Instant, group: &mut Scheduler, passed: &mut Vec<Admission<T>>) {
        if self.give_up_at.is_none_or(|at| at > now) {
            return;
        }
        let mut late = Vec::new();
        self.give_up_at = None;
        for (index, waiting) in &self.waiting {
            match waiting.until {
                Some(until) if until <= now => late.push(index),
                until => self.give_up_at = self.give_up_at.into_iter().chain(until).min(),
            }
        }
        for index in late {
            let waiting = &mut self.waiting[index];
            let kept = self.mutants.is(Mutant::GivenUpKeepsTurn);
            if let Some(ticket) = waiting.ticket
                && !kept
                && group.withdraw(now.0, ticket).is_none()
            {
                // Another thread has taken its turn, and the word is on its way.
                waiting.until = None;
                continue;
            }
            self.refused.retain(|refused| *refused != index);
            passed.push(Admission::GivenUp(self.waiting.remove(index).io));
        }
    }

    /// Frees the places of what has been under way for too long.
    fn free_places(&mut self, now: Instant) {
        if self.free_at.is_none_or(|at| at > now) {
            return;
        }
        self.free_at = None;
        for (_, under_way) in &mut self.places {
            let Some(ticket) = under_way.ticket else { continue };
            let at = under_way.since.plus_ns(PLACE_NS_MAX);
            if at <= now {
                under_way.ticket = None;
                self.ended.push(ticket);
            } else {
                self.free_at = Some(self.free_at.map_or(at, |free_at| free_at.min(at)));
            }
        }
    }
}

/// A volume has left its group with these tokens waiting: whose turn it is at once, thread by thread.
pub fn turns_of_left(tokens: &[u64]) -> impl Iterator<Item = (usize, Turn)> {
    tokens.iter().map(|token| turn_of(*token, None))
}

fn turn_of(token: u64, ticket: Option<Ticket>) -> (usize, Turn) {
    let index = (token & u64::from(u32::MAX)) as u32;
    ((token >> INDEX_BITS) as usize, Turn { index, ticket })
}

#[cfg(test)]
mod tests;
