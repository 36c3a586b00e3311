//! One request queue: how it is set up, and what is under way in it.

use super::inflight::{Inflight, QueueNotes};
use super::memory::GuestMemory;
use super::proto::RingAddresses;
use super::reason::DisconnectReason;
use super::ring::Ring;
use crate::load::Shortage;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue, set up or not.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) size: u16,
    pub(super) addresses: Option<RingAddresses>,
    /// Where to begin in the available ring.
    pub(super) base: u16,
    /// The kick and its name among the watches.
    pub(super) kick: Option<(OwnedFd, u64)>,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// The driver is to be called at the end of this turn.
    pub(super) call_due: bool,
    pub(super) enabled: bool,
    pub(super) running: Option<Running>,
    /// Already in the server's list of queues with more to take.
    pub(super) in_backlog: bool,
    /// Already in its list of queues without room.
    pub(super) in_paused: bool,
    /// What its next request lacks, and its bytes, so that it is not walked again before they fit.
    pub(super) short: Option<(Shortage, u64)>,
}

/// What happens in a queue between its start and its stop.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) ring: Ring,
    notes: Option<QueueNotes>,
    /// Requests that an earlier server had taken, to be taken again before all others.
    replay: VecDeque<u16>,
    counter: u64,
    /// Heads under way: a chain may be offered again only when it was given back.
    busy: Vec<bool>,
    pub(super) in_flight: u32,
    /// Heads to be given back, and how much was written to them.
    done: Vec<(u16, u32)>,
    /// Nothing new is taken: the front-end wants it to stop.
    pub(super) stopping: bool,
}

/// A head to be taken next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) head: u16,
    pub(super) replayed: bool,
}

impl Queue {
    /// Whether everything is there that it takes to start.
    pub(super) const fn is_complete(&self) -> bool {
        self.size > 0 && self.addresses.is_some() && self.kick.is_some()
    }

    /// Starts, where an earlier server stopped if there are notes.
    pub(super) fn start(
        &mut self,
        index: u16,
        memory: &GuestMemory,
        inflight: Option<&Inflight>,
        event_index: bool,
    ) -> Result<(), DisconnectReason> {
        let addresses = self.addresses.as_ref().ok_or(DisconnectReason::RingAddress)?;
        let mut ring = Ring::new(memory, addresses, self.size, self.base, event_index)?;
        let notes = inflight.map(|inflight| inflight.queue(index));
        let notes = notes.map(|notes| notes.ok_or(DisconnectReason::Inflight)).transpose()?;
        let mut replay = VecDeque::new();
        let mut counter = 0;
        if let Some(notes) = &notes {
            let used = ring.used_index();
            if let Some(left) = notes.recover(self.size, used)? {
                ring.next_available = used.wrapping_add(left.heads.len() as u16);
                (replay, counter) = (left.heads.into(), left.counter);
            }
        }
        let busy = vec![false; usize::from(self.size)];
        self.running = Some(Running {
            ring,
            notes,
            replay,
            counter,
            busy,
            in_flight: 0,
            done: Vec::new(),
            stopping: false,
        });
        // A server that died may have given requests back without a call.
        self.call_due = true;
        Ok(())
    }

    /// Ends; to be gone on with at its base.
    pub(super) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.base = running.ring.next_available;
        }
    }

    /// Gives back what is done. True if the driver is to be called for it.
    pub(super) fn publish(&mut self) -> Result<bool, DisconnectReason> {
        let Some(running) = &mut self.running else { return Ok(false) };
        if running.done.is_empty() {
            return Ok(false);
        }
        let Running { ring, notes, busy, in_flight, done, .. } = running;
        for (head, len) in done.iter() {
            ring.put_used(*head, *len);
            if let Some(notes) = notes {
                notes.link(*head);
            }
        }
        let used = ring.publish();
        if let Some(notes) = notes {
            for (head, _) in done.iter() {
                notes.clear(*head);
            }
            notes.set_used_index(used);
            if notes.is_broken() {
                return Err(DisconnectReason::MemoryGone);
            }
        }
        for (head, _) in done.drain(..) {
            busy[usize::from(head)] = false;
            *in_flight -= 1;
        }
        let wanted = ring.needs_call();
        self.call_due |= wanted;
        Ok(wanted)
    }

    /// Who is to be called now, once.
    pub(super) fn take_call(&mut self) -> Option<&Arc<OwnedFd>> {
        if std::mem::take(&mut self.call_due) { self.call.as_ref() } else { None }
    }
}

impl Running {
    /// The request to be taken next.
    pub(super) fn next(&self) -> Result<Option<Next>, DisconnectReason> {
        if let Some(head) = self.replay.front() {
            return Ok(Some(Next { head: *head, replayed: true }));
        }
        if self.stopping || self.ring.waiting()? == 0 {
            return Ok(None);
        }
        let head = self.ring.head()?;
        if self.busy[usize::from(head)] {
            return Err(DisconnectReason::Descriptor);
        }
        Ok(Some(Next { head, replayed: false }))
    }

    pub(super) fn take(&mut self, next: Next) {
        if next.replayed {
            self.replay.pop_front();
        } else {
            self.ring.next_available = self.ring.next_available.wrapping_add(1);
            if let Some(notes) = &self.notes {
                notes.take(next.head, self.counter);
            }
            self.counter = self.counter.wrapping_add(1);
        }
        self.busy[usize::from(next.head)] = true;
        self.in_flight += 1;
    }

    /// Its status is written: to be given back with the next publication.
    pub(super) fn complete(&mut self, head: u16, len: u32) {
        self.done.push((head, len));
    }

    /// Whether something waits to be taken: one load of the guest's memory.
    pub(super) fn has_news(&self) -> bool {
        !self.replay.is_empty() || (!self.stopping && self.ring.has_news())
    }

    /// Whether everything taken was given back, and nothing is left to be replayed.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.replay.is_empty()
    }
}
