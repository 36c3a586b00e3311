//! A request in the engine's hands.

use super::block::Status;
use super::lease::Lease;
use super::log::Log;
use super::memory::{self, GuestMemory, Piece, Pieces};
use crate::load::Load;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::ByteSpan;
use std::sync::Arc;

/// What is to be done with the engine's answer.
pub(super) enum Delivery {
    /// Nothing but to tell it.
    Nothing,
    /// Copy what was read to the guest.
    Copy {
        /// Where it lies in the volume.
        span: ByteSpan,
    },
    /// Nothing either: it was read into the guest's memory.
    Direct(Arc<Lease>),
    /// A flush of the server's own.
    Internal,
}

/// A request in the engine's hands.
pub(super) struct Slot {
    /// Key of its connection, which may be gone.
    pub(super) connection: u64,
    /// Key of its export's entry in the server's `lives`, where the remains of closed connections
    /// are counted.
    pub(super) life: u64,
    pub(super) queue: u16,
    /// Where its chain begins.
    pub(super) head: u16,
    /// Bytes of the guest's memory that are the device's to write, status included.
    pub(super) len: u32,
    /// Where the status goes.
    pub(super) status: Option<Piece>,
    /// Bytes of its private buffer.
    pub(super) bytes: u64,
    /// It changes the disk, and need not be durable when it is answered.
    pub(super) volatile: bool,
    /// As it was when the request was taken: all addresses are in it.
    pub(super) memory: Arc<GuestMemory>,
    /// The guest's memory that the answer's data go to, whichever way.
    pub(super) data: Pieces,
    pub(super) delivery: Delivery,
}

impl Slot {
    /// What it holds until it is answered.
    pub(super) const fn load(&self) -> Load {
        Load { requests: 1, bytes: self.bytes }
    }

    /// Copies what was read to the guest, if that is its delivery; returns how much. `None`: the engine
    /// brought too little.
    pub(super) fn deliver<M: RawMemory>(&self, data: Option<&M>) -> Option<u64> {
        let Delivery::Copy { span } = &self.delivery else { return Some(0) };
        let (data, head) = (data?, span.head_bytes());
        if head + span.len > data.len_bytes() {
            return None;
        }
        // SAFETY: the range is within the buffer, which the engine has handed over; `self.memory`
        // holds what `self.data` is in.
        let copied = unsafe {
            let from = data.as_ptr().add(head as usize);
            memory::copy_to_guest(&self.data, from, span.len as usize)
        };
        Some(copied as u64)
    }

    /// Writes the status.
    pub(super) fn tell(&self, status: Status) {
        if let Some(place) = &self.status {
            let byte = status as u8;
            // SAFETY: one byte; `self.memory` holds what the place is in.
            unsafe { memory::copy_to_guest(std::slice::from_ref(place), &raw const byte, 1) };
        }
    }

    /// Marks what was written to the guest's memory. For data that may have been written only in part,
    /// or not at all, that is too much, which does no harm.
    pub(super) fn mark(&self, log: &Log) {
        self.memory.mark(&self.data, log);
        self.memory.mark(self.status.as_slice(), log);
    }
}
