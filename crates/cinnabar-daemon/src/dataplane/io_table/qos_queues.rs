//! Back-end I/O that waits for its turn among the volumes of a group.

use super::{IoEvent, IoTable, Owner};
use crate::dataplane::data_thread::ThreadMessage;
use crate::dataplane::qos::{Group, op_of};
use cinnabar_backend::JobOp;
use cinnabar_backend::model::OpKind;
use cinnabar_backend::work::IoInfo;
use cinnabar_driver::QosQueue;
use cinnabar_driver::qos_queue::{Admission, QosPermit, QosRequest, Turn};
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{IoDone, IoError, IoId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The queues of one thread, by the number of their group. A group in which nothing takes turns has none.
#[derive(Default)]
pub(super) struct QosQueues {
    thread: usize,
    by_group: BTreeMap<u32, (Arc<Group>, QosQueue<Parked>)>,
    /// Empty between two turns.
    passed: Vec<Admission<Parked>>,
}

/// An I/O that has yet to begin. Its volume counts it as under way.
pub(super) struct Parked {
    pub(super) of: (u32, IoId),
    pub(super) key: usize,
    pub(super) what: IoInfo,
    pub(super) op: JobOp,
}

/// Where an I/O under way has its place: a group's number, and the queue's own name for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QosPlace {
    group: u32,
    place: QosPermit,
}

impl QosQueues {
    /// When a turn is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.by_group.values().filter_map(|(_, queue)| queue.deadline()).min()
    }

    /// An I/O has ended.
    pub(super) fn end(&mut self, seat: QosPlace) {
        self.queue(seat.group).end(seat.place);
    }

    /// An I/O takes too long: others need not wait for it.
    pub(super) fn free(&mut self, seat: QosPlace) {
        self.queue(seat.group).free(seat.place);
    }

    fn queue(&mut self, group: u32) -> &mut QosQueue<Parked> {
        &mut self.by_group.get_mut(&group).expect("a door stays while something is behind it").1
    }

    fn queue_of(&mut self, group: &Arc<Group>) -> &mut QosQueue<Parked> {
        let thread = self.thread;
        let new = || (Arc::clone(group), QosQueue::new(thread, Mutants::default()));
        &mut self.by_group.entry(group.number).or_insert_with(new).1
    }
}

impl IoTable {
    /// The thread of this number has the I/O table.
    pub(in super::super) fn belong_to(&mut self, thread: usize) {
        self.qos_queues.thread = thread;
    }

    /// Has an I/O wait for its turn, if that is so in the group of its volume.
    pub(super) fn park(&mut self, now: Instant, io: Parked) -> Option<Parked> {
        let volume = &self.volume(io.key).1;
        let Some(client) = volume.qos.client(&io.what) else { return Some(io) };
        let volume = Arc::clone(volume);
        volume.ios.begin();
        // A flush that was not even begun would count as one that failed. It has no guest any more
        // when its time is over.
        let bound = volume.qos.bound(volume.timeout, Some(client));
        let waits = volume.timeout > Duration::ZERO && io.what.kind != OpKind::Flush;
        let patience = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let wish =
            QosRequest { client, op: op_of(&io.what), patience_ns: waits.then_some(patience) };
        self.qos_queues.queue_of(&volume.qos.group).arrive(now, wish, io);
        None
    }

    /// The settings of a group have changed: it is looked at in the next turn.
    pub(in super::super) fn ask_group(&mut self, group: &Arc<Group>) {
        self.qos_queues.queue_of(group).ask();
    }

    /// It is the turn of an I/O that waits here.
    pub(in super::super) fn admit(&mut self, now: Instant, group: u32, turn: Turn) {
        if let Some((place, io)) = self.qos_queues.queue(group).admit(now, turn) {
            self.begin_parked(now, QosPlace { group, place }, io);
        }
    }

    /// Lets pass what may: here at once, and by letters to other threads.
    pub(in super::super) fn take_turns(
        &mut self,
        now: Instant,
        letters: &mut Vec<(usize, ThreadMessage)>,
    ) {
        if self.qos_queues.by_group.is_empty() {
            return;
        }
        let due = self.qos_queues.by_group.iter().filter(|(_, (_, queue))| queue.is_due(now));
        for group in due.map(|(group, _)| *group).collect::<Vec<_>>() {
            let QosQueues { by_group, passed, .. } = &mut self.qos_queues;
            let (shared, queue) = by_group.get_mut(&group).expect("it is due");
            queue.turn(now, &mut shared.scheduler(), passed);
            let is_idle = queue.is_idle() && queue.deadline().is_none();
            if is_idle && !shared.is_active() {
                by_group.remove(&group);
            }
            let mut passed = std::mem::take(&mut self.qos_queues.passed);
            for one in passed.drain(..) {
                match one {
                    Admission::Begins(place, io) => {
                        self.begin_parked(now, QosPlace { group, place }, io);
                    }
                    Admission::GivenUp(io) => self.give_up_parked(&io),
                    Admission::Elsewhere(thread, turn) => {
                        letters.push((thread, ThreadMessage::Turn(group, turn)));
                    }
                }
            }
            self.qos_queues.passed = passed;
        }
    }

    fn begin_parked(&mut self, now: Instant, seat: QosPlace, io: Parked) {
        let Parked { of: (shard, id), key, what, op } = io;
        self.begin(now, (Owner::Engine(shard, id), Some(seat)), key, what, op);
    }

    /// It has waited for as long as a guest does, and never reaches the back end.
    fn give_up_parked(&mut self, io: &Parked) {
        let (shard, id) = io.of;
        let late = IoDone::new(id, Err(IoError::TimedOut));
        self.told.push(IoEvent::Done(shard, late));
        if self.volume(io.key).1.ios.end() {
            self.told.push(IoEvent::Quiet(io.key));
        }
    }
}
