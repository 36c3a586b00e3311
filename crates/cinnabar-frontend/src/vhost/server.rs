//! The server: owns listeners, connections and requests, and hands requests out and answers back.

mod accept;
mod lifecycle;
mod past;
mod replies;

use super::bell::{self, Bells};
use super::channel::Received;
use super::connection::{After, Connection, Taken, Turn};
use super::export::Export;
use super::lease::{Returned, Waker};
use super::limits::{Limits, MESSAGES_PER_TURN, QUANTUM};
use super::reason::DisconnectReason;
use super::slot::Slot;
use super::stats::Stats;
use super::watches::{Source, Watches};
use crate::interest::{Interest, Ready, Token};
use crate::load::{Bounds, Load, Rank, Shortage};
use crate::request::{Buffers, ExportId, Incoming};
use crate::socket::UnixListener;
use crate::starved::Starved;
use crate::table::Table;
use crate::turn_length::{SHORT, TurnLength};
use crate::warnings::Warnings;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::Instant;
use past::Life;
use replies::Parked;
use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

/// The vhost-user-blk server: all listeners, exports and connections of a daemon.
pub struct Server<M> {
    limits: Limits,
    bounds: Bounds,
    exports: BTreeMap<ExportId, Served>,
    connections: Table<Connection>,
    watches: Watches,
    slots: Table<Slot>,
    /// Requests, and connections of the past, that wait for the end of a read into guest memory.
    parked: Table<Parked>,
    returned: Arc<Returned>,
    /// What all connections hold, and requests whose connection is gone.
    load: Load,
    /// Something was let go since paused queues were last tried.
    released: bool,
    stats: Stats,
    warnings: Warnings,
    /// The time that the caller gave last.
    now: Instant,
    /// Which turn of the loop this is: each ends when what is done is given back.
    turn: u64,
    length: TurnLength,
    /// Connections with something to send or to give back.
    dirty: Vec<u64>,
    backlog: VecDeque<Backlog>,
    /// Queues without room for their next request.
    paused: Vec<(u64, u16)>,
    /// The one among them that has waited longest for what all share.
    starved: Starved<(u64, u16)>,
    /// Drivers to be called at the end of this turn.
    bells: Bells,
    /// Queues found by polling, kept for its memory.
    found: Vec<(u64, u16)>,
    /// When `tick` has to look at all connections.
    next_tick: Option<Instant>,
    /// Guests are asked not to kick.
    polling: bool,
    draining: bool,
    /// What exports and their connections have left behind.
    lives: Table<Life>,
    payload: PhantomData<fn() -> M>,
}

// A thread makes its server where it likes.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Server<()>>();
};

/// An export and its connections.
struct Served {
    export: Export,
    /// Its own entry in `lives`, and those of earlier exports that have left something behind.
    lives: Vec<u64>,
    /// `None`: closed for good.
    listener: Option<UnixListener>,
    watch: u64,
    /// Not accepting for a moment: the process is out of descriptors.
    resting: bool,
    connections: Vec<u64>,
    /// Requests answered with an error by the server itself.
    refused: u64,
    /// In which turn it was looked at last, and what it may have had in the rest of it; below 0 it owes that.
    turn: u64,
    credit: i64,
    /// What it may have in that turn.
    quantum: i64,
    /// Its listener is in the backlog.
    is_crowded: bool,
    /// Until when it counts as asking for much.
    much_until: Instant,
}

impl Served {
    /// Gives it what it may have in each turn since the last one.
    fn begin_turn(&mut self, turn: u64, quantum: i64) {
        let turns =
            i64::try_from(turn - std::mem::replace(&mut self.turn, turn)).unwrap_or(i64::MAX);
        if turns > 0 {
            self.credit = turns.saturating_mul(quantum).saturating_add(self.credit).min(quantum);
            self.quantum = quantum;
        }
    }

    fn life(&self) -> u64 {
        *self.lives.first().expect("its own")
    }
}

/// What a turn has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Listener(ExportId),
    Messages(u64),
    /// The driver switched write-back off, and all it wrote before is answered.
    Flush(u64),
    Queue(u64, u16),
}

impl<M: RawMemory> Server<M> {
    /// A server without exports. Limits too small for one longest request are raised. `waker` is
    /// called, from any thread, when the server has something to do that no descriptor signals.
    pub fn new(limits: Limits, waker: Waker) -> Self {
        let limits = limits.raised();
        let requests = u64::from(limits.connection_requests_max);
        let connection = Load { requests, bytes: limits.connection_bytes_max };
        let total = Load { requests: u64::from(limits.requests_max), bytes: limits.bytes_max };
        Self {
            limits,
            bounds: Bounds { connection, total },
            exports: BTreeMap::new(),
            connections: Table::new(),
            watches: Watches::new(),
            slots: Table::new(),
            parked: Table::new(),
            returned: Arc::new(Returned::new(waker)),
            load: Load::default(),
            released: false,
            stats: Stats::default(),
            warnings: Warnings::new("vhost-user"),
            now: Instant::default(),
            turn: 1,
            length: TurnLength::default(),
            dirty: Vec::new(),
            backlog: VecDeque::new(),
            paused: Vec::new(),
            starved: Starved::new(),
            bells: Bells::default(),
            found: Vec::new(),
            next_tick: None,
            polling: false,
            draining: false,
            lives: Table::new(),
            payload: PhantomData,
        }
    }

    /// A device has become larger. Its driver sees it when it next reads the configuration space:
    /// front ends are not notified, because the channel for such a notice is not offered.
    pub fn set_size(&mut self, export: ExportId, size_bytes: u64) {
        if let Some(served) = self.exports.get_mut(&export) {
            served.export.size_bytes = size_bytes;
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The server's counters, since it was made.
    pub fn stats(&self) -> Stats {
        let Load { requests, bytes } = self.load;
        let mut stats = self.stats;
        (stats.held_requests, stats.held_bytes) = (requests, bytes);
        stats
    }

    /// Connections to one export; 0 if there is no such export.
    pub fn connections(&self, export: ExportId) -> usize {
        self.exports.get(&export).map_or(0, |served| served.connections.len())
    }

    /// The connections to one export, by numbers that no later connection gets.
    pub fn guests(&self, export: ExportId) -> &[u64] {
        self.exports.get(&export).map_or(&[], |served| &served.connections)
    }

    /// The number of the connection that an unanswered request came through, which may be gone.
    pub fn guest_of(&self, ticket: crate::Ticket) -> Option<u64> {
        self.slots.get(ticket.0).map(|slot| slot.connection)
    }

    /// Requests to one export that the server itself answered with an error: out of range, unknown and
    /// the like.
    pub fn refused(&self, export: ExportId) -> u64 {
        self.exports.get(&export).map_or(0, |served| served.refused)
    }

    /// Changes in what is to be watched, oldest first. To be applied before the loop waits; what is
    /// gone is closed with the next call.
    pub fn take_interests(&mut self) -> std::vec::Drain<'_, Interest> {
        self.watches.take()
    }

    /// A descriptor is ready: accepts connections, handles messages, appends requests to
    /// `incoming`.
    pub fn on_ready(
        &mut self,
        token: Token,
        ready: Ready,
        now: Instant,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        self.now = now;
        match self.watches.source(token) {
            Some(Source::Listener(export)) => self.accept_later(export),
            Some(Source::Socket(key)) => self.socket_ready(key, ready, incoming),
            Some(Source::Kick(key, queue)) => {
                let Some(connection) = self.connections.get(key) else { return };
                if let Some((kick, _)) = &connection.queues[usize::from(queue)].kick {
                    bell::silence(kick);
                }
                self.stats.kicks += 1;
                self.queue_later(key, queue);
            }
            None => {}
        }
    }

    fn socket_ready(&mut self, key: u64, ready: Ready, incoming: &mut Vec<Incoming<M>>) {
        if ready.write && self.connections.get(key).is_some_and(|known| known.channel.has_output())
        {
            self.mark_dirty(key);
        }
        if ready.read || ready.hangup {
            self.hear(key, incoming);
        }
        let left = |known: &Connection| !known.in_backlog;
        if ready.hangup && self.connections.get(key).is_some_and(left) {
            // It waits for an answer that its peer will not read.
            self.disconnect(key, DisconnectReason::PeerClosed);
        }
    }

    /// Whether [`Self::resume`] or [`Self::flush`] has something to do now, so that the loop must not
    /// wait.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
            || !self.dirty.is_empty()
            || (self.released && !self.paused.is_empty())
            || self.returned.any()
    }

    /// Goes on with what was left in an earlier turn.
    pub fn resume(
        &mut self,
        now: Instant,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        self.now = now;
        self.take_returned();
        let mut unserved = VecDeque::new();
        for _ in 0..self.backlog.len() {
            match self.backlog.pop_front() {
                Some(Backlog::Listener(export)) => self.accept(export),
                Some(Backlog::Messages(key)) => {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.in_backlog = false;
                        self.hear(key, incoming);
                    }
                }
                Some(Backlog::Flush(key)) => self.flush_when_due(key, incoming),
                Some(Backlog::Queue(key, index)) if self.has_had_its_turn(key) => {
                    unserved.push_back(Backlog::Queue(key, index));
                }
                Some(Backlog::Queue(key, index)) => {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.queues[usize::from(index)].in_backlog = false;
                        self.serve(key, index, buffers, incoming);
                    }
                }
                None => break,
            }
        }
        // Other queues of theirs were served.
        unserved.append(&mut self.backlog);
        self.backlog = unserved;
        if std::mem::take(&mut self.released) {
            for (key, index) in std::mem::take(&mut self.paused) {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.queues[usize::from(index)].in_paused = false;
                    self.serve(key, index, buffers, incoming);
                }
            }
        }
    }

    /// Whether the export of a connection has had all that it may have in this turn.
    fn has_had_its_turn(&mut self, key: u64) -> bool {
        let quantum = self.quantum();
        let Some(connection) = self.connections.get(key) else { return false };
        let Some(served) = self.exports.get_mut(&connection.export) else { return false };
        served.begin_turn(self.turn, quantum);
        served.credit <= 0
    }

    /// What an export may have in a turn.
    fn quantum(&self) -> i64 {
        if self.length.is_short(self.now) { SHORT } else { QUANTUM }
    }

    /// Turns are short until then, for an export that asks for little.
    pub fn short_until(&self) -> Instant {
        self.length.short_until()
    }

    /// Turns are short until then, for an export of a server beside this one.
    pub fn follow(&mut self, short_until: Instant) {
        self.length.follow(short_until);
    }

    /// Looks at all queues without waiting for a kick; costs a load of guest memory for each. True if there is
    /// something for [`Self::resume`].
    pub fn poll(&mut self, now: Instant) -> bool {
        self.now = now;
        self.take_returned();
        self.find_news();
        // A read that has ended may be the only event, and has to be reported.
        self.has_backlog()
    }

    fn find_news(&mut self) {
        let mut found = std::mem::take(&mut self.found);
        for (key, connection) in self.connections.iter() {
            found.extend(connection.news().map(|index| (key, index)));
        }
        found.drain(..).for_each(|(key, index)| self.queue_later(key, index));
        self.found = found;
    }

    /// While `polling`, guests are asked not to kick, and the caller has to call [`Self::poll`].
    /// When polling ends, kicks are enabled again and all queues checked once more: true if
    /// something came meanwhile, which is backlog then.
    ///
    /// Costs nothing while nothing changes, so it may be said each time round.
    pub fn set_polling(&mut self, polling: bool) -> bool {
        if std::mem::replace(&mut self.polling, polling) == polling {
            return !polling && self.has_backlog();
        }
        for (_, connection) in self.connections.iter() {
            for running in connection.queues.iter().filter_map(|queue| queue.running.as_ref()) {
                if polling {
                    running.ring.refuse_kicks();
                } else {
                    running.ring.ask_for_kicks();
                }
            }
        }
        let marked = self.connections.iter().filter(|(_, connection)| connection.has_log_call());
        for key in marked.map(|(key, _)| key).collect::<Vec<_>>() {
            self.mark_dirty(key);
        }
        if polling {
            return false;
        }
        self.find_news();
        self.has_backlog()
    }

    /// Handles a connection's messages, up to a turn's budget.
    fn hear(&mut self, key: u64, incoming: &mut Vec<Incoming<M>>) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let Some(served) = self.exports.get(&connection.export) else { return };
            if !connection.listens() {
                break;
            }
            let heard = match connection.channel.receive(self.now) {
                Ok(Received::Message(message)) => connection
                    .hear(key, &served.export, message, &mut self.watches, self.now)
                    .and_then(|after| Ok((after, connection.start_queues()?))),
                Ok(Received::Nothing) => {
                    self.settle(key);
                    return;
                }
                Ok(Received::Closed) => Err(DisconnectReason::PeerClosed),
                Err(reason) => Err(reason),
            };
            self.mark_dirty(key);
            match heard {
                Ok((after, started)) => {
                    if after == After::Flush {
                        self.flush_when_due(key, incoming);
                    }
                    for index in started {
                        self.begin(key, index);
                    }
                    self.look_again(key);
                }
                Err(reason) => {
                    self.disconnect(key, reason);
                    return;
                }
            }
        }
        // The budget is used up, or it does not listen now: no event will report the remaining
        // messages.
        if self.connections.get(key).is_some_and(Connection::listens) {
            self.messages_later(key);
        }
        self.settle(key);
    }

    /// A message may have changed whether or where a queue is served: kicks that came before went
    /// nowhere, so all queues are looked at once more.
    fn look_again(&mut self, key: u64) {
        let Some(connection) = self.connections.get(key) else { return };
        for index in connection.unwatched() {
            self.queue_later(key, index);
        }
    }

    /// A queue has started.
    fn begin(&mut self, key: u64, index: u16) {
        if self.polling
            && let Some(connection) = self.connections.get(key)
            && let Some(running) = &connection.queues[usize::from(index)].running
        {
            running.ring.refuse_kicks();
        }
        self.queue_later(key, index);
    }

    /// Takes what a queue offers, up to a turn's budget.
    fn serve(
        &mut self,
        key: u64,
        index: u16,
        buffers: &mut impl Buffers<M>,
        incoming: &mut Vec<Incoming<M>>,
    ) {
        let Some(connection) = self.connections.get(key) else { return };
        let Some(served) = self.exports.get(&connection.export) else { return };
        let past = self.past_load(served);
        let others = served.connections.iter().filter(|other| **other != key);
        let others =
            others.filter_map(|other| Some(self.connections.get(*other)?.load.requests)).sum();
        self.released |= self.starved.pass_over(self.now);
        let (rank, quantum) = (self.starved.rank((key, index)), self.quantum());
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(served) = self.exports.get_mut(&connection.export) else { return };
        served.begin_turn(self.turn, quantum);
        if served.credit <= 0 {
            // What it waited for is kept, too.
            self.queue_later(key, index);
            return;
        }
        let (waiter, credit) = (connection.waiter, served.credit);
        let mut turn = Turn {
            export: &served.export,
            bounds: &self.bounds,
            total: &mut self.load,
            past,
            others,
            rank,
            slots: &mut self.slots,
            stats: &mut self.stats,
            refused: &mut served.refused,
            returned: &self.returned,
            polling: self.polling,
            credit: &mut served.credit,
            buffers: &mut *buffers,
            incoming: &mut *incoming,
        };
        let taken = connection.take_requests(key, index, &mut turn);
        let still_starved = turn.rank == Rank::Starved;
        if served.credit < credit {
            let much = taken == Ok(Taken::Some) || served.credit < served.quantum - SHORT;
            self.length.note(self.now, &mut served.much_until, much);
        }
        // Those that waited behind it may go on, if it does not wait for something else now.
        self.released |= waiter.is_some() && connection.waiter != waiter;
        if rank == Rank::Starved && !still_starved {
            self.starved.ends(|starved| starved == (key, index));
        }
        if !std::mem::replace(&mut connection.in_dirty, true) {
            self.dirty.push(key);
        }
        match taken {
            Ok(Taken::All) => self.stop_waiting(key, Some(index)),
            Ok(Taken::Some) => self.queue_later(key, index),
            Ok(Taken::NoRoom(short)) => self.wait_for_room(key, index, short),
            Err(reason) => {
                let reason = connection.blame(reason);
                self.disconnect(key, reason);
            }
        }
    }

    fn wait_for_room(&mut self, key: u64, index: u16, short: Shortage) {
        if short == Shortage::Total {
            self.starved.waits((key, index), self.now);
        } else {
            self.released |= self.starved.steps_back((key, index));
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.queues[usize::from(index)].in_paused, true) {
            self.stats.pauses += 1;
            self.paused.push((key, index));
        }
        if self.starved.is_any() {
            self.arm_tick();
        }
    }

    /// A queue, or all of a connection, wants nothing more: if it waited longest, the next one does.
    fn stop_waiting(&mut self, key: u64, index: Option<u16>) {
        let is_it = |(of, at)| of == key && index.is_none_or(|index| index == at);
        self.released |= self.starved.ends(is_it);
    }

    fn accept_later(&mut self, export: ExportId) {
        let Some(served) = self.exports.get_mut(&export) else { return };
        if !std::mem::replace(&mut served.is_crowded, true) {
            self.backlog.push_back(Backlog::Listener(export));
        }
    }

    fn queue_later(&mut self, key: u64, index: u16) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let queue = &mut connection.queues[usize::from(index)];
        if !std::mem::replace(&mut queue.in_backlog, true) {
            self.backlog.push_back(Backlog::Queue(key, index));
        }
    }

    fn messages_later(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.in_backlog, true) {
            self.backlog.push_back(Backlog::Messages(key));
        }
    }

    fn mark_dirty(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.in_dirty, true) {
            self.dirty.push(key);
        }
    }
}
