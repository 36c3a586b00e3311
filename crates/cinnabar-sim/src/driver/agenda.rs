//! The event heap: what is to happen, by virtual time, then by order of entry.

use cinnabar_engine::IoId;
use cinnabar_engine::units::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Something that will happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A part of an I/O happens on its medium. Its number tells it from others of the same name.
    Effect(IoId, u64, usize, usize),
    /// An I/O completes.
    Finish(IoId, u64),
    /// An I/O has taken longer than the driver's bound.
    Overdue(IoId, u64),
    /// A part of a dead daemon's write lands.
    Late(u64, usize, usize),
    /// The operator invalidates these sectors of a volume.
    Invalidate(usize, u64, u64),
    /// The engine is woken, if it was not since.
    Wake(u64),
    /// A thread is called, to do one thing or another.
    Call(u32),
    /// A queue has its turn, unless it had one since.
    Turn(usize, u64),
    /// A thread's queue hears of a turn that another one has taken.
    Letter(u64),
    /// A guest may use one of its request slots.
    Arrive(usize),
    /// A reply's buffer is no longer needed.
    Sent(u64),
    /// A volume comes back.
    Return(usize),
    /// A request's time is over.
    Due(u64),
    /// A request whose time is over must be answered by now.
    Judge(u64),
    /// A silent backend answers again, if it is still the same silence.
    Awake(usize, u64),
    /// The cache hears of a backend's new size.
    Grow(usize),
    /// A new cache device is open and formatted.
    NewDevice(u64),
    /// It is looked whether it gets on.
    LookAtNewDevice(u64),
    /// The host has recorded that the volumes are the new device's.
    Entrusted,
}

impl Item {
    pub(super) fn effect(id: IoId, number: u64, units: &Range<usize>) -> Self {
        Self::Effect(id, number, units.start, units.end)
    }
}

/// The heap.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Instant, u64, Item)>>,
    entered: u64,
}

impl Agenda {
    pub(super) fn enter(&mut self, at: Instant, item: Item) {
        self.entered += 1;
        self.heap.push(Reverse((at, self.entered, item)));
    }

    /// When the next item is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, Item)> {
        self.heap.pop().map(|Reverse((at, _, item))| (at, item))
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}
