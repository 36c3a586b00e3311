//! Answers on their way back: from the engine into the rings.

use super::{Backlog, Served, Server};
use crate::load::Load;
use crate::request::{Body, Buffers, Command, Incoming, Ticket};
use crate::vhost::block::Status;
use crate::vhost::connection::Connection;
use crate::vhost::limits::MARKS_PER_TURN;
use crate::vhost::log::Log;
use crate::vhost::memory::{GuestMemory, Pieces};
use crate::vhost::reason::DisconnectReason;
use crate::vhost::slot::{Delivery, Slot};
use cinnabar_engine::seam::units::Instant;
use cinnabar_engine::seam::{Failure, Op, RawMemory};
use std::sync::Arc;

/// Something that waits for the end of a read into guest memory.
pub(super) enum Parked {
    /// A read that was answered with an error while it may still be under way. Its guest gets the
    /// reply when it has ended.
    Failed(Slot),
    /// A read of a connection that is gone.
    Orphan {
        /// Key of its export's entry in `lives`: the next connection of the same guest has to wait.
        life: u64,
        /// What is to be logged then.
        unlogged: Unlogged,
    },
}

/// Guest memory that a read may still write to.
pub(super) struct Unlogged {
    /// The log of its connection, if there was one.
    log: Option<Arc<Log>>,
    memory: Arc<GuestMemory>,
    data: Pieces,
}

impl Unlogged {
    /// The data of a request whose connection, with this log, is gone.
    pub(super) fn new(log: Option<&Arc<Log>>, slot: &Slot) -> Self {
        let (memory, data) = (Arc::clone(&slot.memory), slot.data.clone());
        Self { log: log.map(Arc::clone), memory, data }
    }
}

impl<M: RawMemory> Server<M> {
    /// A flush of our own for a connection whose driver relies on it. It covers what was answered
    /// before, so changes under way come first.
    pub(super) fn flush_when_due(&mut self, key: u64, incoming: &mut Vec<Incoming<M>>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.flush_due = connection.volatile > 0;
        if connection.flush_due {
            return;
        }
        let (one, own) = (Load { requests: 1, bytes: 0 }, connection.load);
        let served = self.exports.get(&connection.export);
        let past = served.map_or_else(Load::default, |served| self.past_load(served));
        let Some(connection) = self.connections.get_mut(key) else { return };
        // It needs no room among the requests of its guest, but front-ends that come and go must not
        // pile them up on a volume that answers none.
        if own.requests + past.requests > self.bounds.connection.requests {
            connection.flushed(false);
            return;
        }
        connection.load += one;
        self.load += one;
        let ticket = self.slots.insert(Slot {
            connection: key,
            life: connection.life,
            queue: 0,
            head: 0,
            len: 0,
            status: None,
            bytes: 0,
            volatile: false,
            memory: Arc::default(),
            data: Pieces::new(),
            delivery: Delivery::Internal,
        });
        incoming.push(Incoming {
            ticket: Ticket(ticket),
            export: connection.export,
            command: Command::Engine(Op::Flush),
        });
    }

    /// Whether the client of a request that is not answered yet is still there.
    pub fn is_waited_for(&self, ticket: Ticket) -> bool {
        let slot = self.slots.get(ticket.0);
        slot.is_some_and(|slot| self.connections.get(slot.connection).is_some())
    }

    /// Answers a request, each once (debug builds check it, others ignore what is answered again).
    pub fn reply(
        &mut self,
        ticket: Ticket,
        result: Result<Body<M>, Failure>,
        buffers: &mut impl Buffers<M>,
    ) {
        let Some(slot) = self.slots.remove(ticket.0) else {
            debug_assert!(false, "{ticket:?} is answered twice");
            return;
        };
        let (data, failure) = match result {
            Ok(Body::Data(data)) => (Some(data), None),
            Ok(_) => (None, None),
            Err(failure) => (None, Some(failure)),
        };
        let alive = self.connections.get(slot.connection).is_some();
        let status = match failure {
            Some(failure) => Status::from(failure),
            None if !alive => Status::Ok,
            None => match slot.deliver(data.as_ref()) {
                Some(bytes) => {
                    self.stats.sent_bytes += bytes;
                    Status::Ok
                }
                None => Status::IoError,
            },
        };
        if let Some(data) = data {
            buffers.give(data);
        }
        if !alive {
            self.load -= slot.load();
            self.change_past(slot.life, |life| life.load -= slot.load());
            self.released = true;
            return;
        }
        self.finish(slot, status);
    }

    /// Replies to the guest, at once or, after a failed read into guest memory, when that read has
    /// ended.
    fn finish(&mut self, mut slot: Slot, status: Status) {
        if status != Status::Ok && matches!(slot.delivery, Delivery::Direct(_)) {
            if let Delivery::Direct(lease) =
                std::mem::replace(&mut slot.delivery, Delivery::Nothing)
            {
                let place = self.parked.insert(Parked::Failed(slot));
                lease.await_return(place);
            }
            return;
        }
        self.complete(&slot, status);
    }

    /// Replies to the guest, with the next flush.
    fn complete(&mut self, slot: &Slot, status: Status) {
        self.load -= slot.load();
        self.released = true;
        let key = slot.connection;
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.load -= slot.load();
        connection.volatile -= u32::from(slot.volatile);
        if connection.flush_due && connection.volatile == 0 {
            connection.flush_due = false;
            self.backlog.push_back(Backlog::Flush(key));
        }
        if let Delivery::Internal = slot.delivery {
            connection.flushed(status == Status::Ok);
            self.mark_dirty(key);
            return;
        }
        slot.tell(status);
        if let Some(log) = connection.log() {
            slot.mark(log);
        }
        if let Some(running) = &mut connection.queues[usize::from(slot.queue)].running {
            running.complete(slot.head, slot.len);
        }
        self.mark_dirty(key);
    }

    /// Goes on with what waited for reads into guest memory that are over.
    pub(super) fn take_returned(&mut self) {
        for place in self.returned.take() {
            match self.parked.remove(place) {
                Some(Parked::Failed(slot)) => self.complete(&slot, Status::IoError),
                Some(Parked::Orphan { life, unlogged }) => {
                    self.mark_late(life, &unlogged);
                    self.orphan_ended(life);
                }
                None => {}
            }
        }
    }

    /// A read of a connection that is gone has ended: the next one's front-end, which has the same
    /// guest, may have begun to migrate it meanwhile.
    fn mark_late(&self, life: u64, unlogged: &Unlogged) {
        let Unlogged { log, memory, data } = unlogged;
        let same = self.exports.values().filter(|served| served.lives.contains(&life));
        let keys = same.flat_map(|served| &served.connections);
        let next = keys.filter_map(|key| self.connections.get(*key)?.log());
        next.chain(log).for_each(|log| memory.mark(data, log));
    }

    fn orphan_ended(&mut self, life: u64) {
        self.change_past(life, |past| past.leases -= 1);
        let freed = |served: &&Served| served.lives.contains(&life) && !self.has_leases(served);
        let freed = self.exports.values().filter(freed);
        let keys: Vec<u64> = freed.flat_map(|served| served.connections.iter().copied()).collect();
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if !std::mem::take(&mut connection.held) {
                continue;
            }
            match connection.start_queues() {
                Ok(started) => {
                    for index in started {
                        self.backlog.push_back(Backlog::Queue(key, index));
                        self.note_backlog(key, index);
                    }
                    self.mark_dirty(key);
                }
                Err(reason) => self.disconnect(key, reason),
            }
        }
    }

    fn note_backlog(&mut self, key: u64, index: u16) {
        if let Some(connection) = self.connections.get_mut(key) {
            let queue = &mut connection.queues[usize::from(index)];
            queue.in_backlog = true;
            if self.polling
                && let Some(running) = &queue.running
            {
                running.ring.refuse_kicks();
            }
        }
    }

    /// Gives back what is done and sends what is queued.
    pub fn flush(&mut self, now: Instant, _buffers: &mut impl Buffers<M>) {
        self.now = now;
        self.turn += 1;
        self.take_returned();
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut marks = MARKS_PER_TURN;
        for key in dirty.drain(..) {
            if let Err(reason) = self.flush_one(key, &mut marks) {
                self.disconnect(key, reason);
            }
        }
        self.bells.ring();
        // Nothing was added meanwhile: keep the list's memory.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    fn flush_one(&mut self, key: u64, marks: &mut u32) -> Result<(), DisconnectReason> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        connection.in_dirty = false;
        for queue in &mut connection.queues {
            self.stats.calls += u64::from(queue.publish()?);
            if let Some(call) = queue.take_call() {
                self.bells.add(call);
            }
        }
        if connection.has_lost_log() {
            return Err(DisconnectReason::LogGone);
        }
        if let Some(call) = connection.take_log_call() {
            self.bells.add(call);
        }
        let waited = connection.waiting.is_some();
        connection.finish_stop();
        let marks_on = connection.mark_more(marks);
        let was_full = connection.channel.is_full();
        connection.channel.send(self.now)?;
        // Messages that came meanwhile were not read, and no event will report them again.
        if (waited || was_full) && connection.listens() {
            self.messages_later(key);
        }
        if marks_on {
            self.mark_dirty(key);
        }
        let Some(connection) = self.connections.get(key) else { return Ok(()) };
        match connection.closing {
            Some(reason) if Connection::is_idle(connection) => Err(reason),
            _ => {
                self.settle(key);
                Ok(())
            }
        }
    }
}
