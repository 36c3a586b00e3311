//! Which requests are under way, noted in memory that outlives this process.
//!
//! After "Inflight I/O tracking" of the vhost-user protocol, for split rings. The memory is a memfd
//! that this process makes. The front-end keeps it and passes it to the next process that serves
//! it. For each queue it holds a head and a note for each descriptor:
//!
//! ```text
//! head: features u64 · version u16 · descriptors u16 · last_batch_head u16 · used_index u16
//! note: in_flight u8 · padding [u8; 5] · next u16 · counter u64
//! ```
//!
//! Taking a request sets its counter, then `in_flight`. Giving back a batch links its heads
//! (`next`, `last_batch_head`), publishes the used index, clears `in_flight` of each, then sets
//! `used_index`. A process that dies in between leaves a `used_index` that differs from the ring's:
//! then the batch last linked was seen by the driver, and is done.
//!
//! Behind the queues there is a page of our own: whether the driver chose write-back, which QEMU
//! does not tell a new server.
//!
//! The front-end can write to all of it: nothing in it is trusted that could harm another guest.

use super::budget::Account;
use super::limits::{QUEUE_SIZE_MAX, QUEUES_MAX};
use super::mapping::{Mapping, MappingError};
use super::proto::InflightSpec;
use super::reason::DisconnectReason;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

const HEAD_BYTES: usize = 16;
const NOTE_BYTES: usize = 16;
/// Each queue's part begins at a multiple of a cache line.
const ALIGN_BYTES: usize = 64;
/// The page behind the queues.
const OWN_BYTES: usize = 4096;
const VERSION: u16 = 1;
/// First bytes of our own page.
const MAGIC: [u8; 8] = *b"cinnabar";

/// Offsets within a queue's head.
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_INDEX_AT: usize = 14;
/// Offsets within a note.
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

const fn queue_bytes(size: u16) -> usize {
    (HEAD_BYTES + NOTE_BYTES * size as usize).next_multiple_of(ALIGN_BYTES)
}

/// The shared memory that holds the notes of all queues.
#[derive(Clone, Debug)]
pub(super) struct Inflight {
    mapping: Arc<Mapping>,
    queues: u16,
    queue_size: u16,
}

impl Inflight {
    /// New memory for so many queues, and what to tell the front-end of it. It is not touched, so that
    /// it costs nothing before it comes back with [`Self::open`].
    pub(super) fn create(
        queues: u16,
        queue_size: u16,
    ) -> Result<(InflightSpec, OwnedFd), DisconnectReason> {
        check(queues, queue_size)?;
        let len = usize::from(queues) * queue_bytes(queue_size);
        let len = (len.next_multiple_of(OWN_BYTES) + OWN_BYTES) as u64;
        let make = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("cinnabar-inflight", flags)?;
            ftruncate(&file, len)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            rustix::io::Result::Ok(file)
        };
        let file = make().map_err(|_| DisconnectReason::CannotMap)?;
        Ok((InflightSpec { len, offset: 0, queues, queue_size }, file))
    }

    /// Memory that a front-end kept.
    pub(super) fn open(
        account: &Arc<Account>,
        spec: &InflightSpec,
        fd: BorrowedFd<'_>,
    ) -> Result<Self, DisconnectReason> {
        let (queues, queue_size) = (spec.queues, spec.queue_size);
        check(queues, queue_size)?;
        let needed = usize::from(queues) * queue_bytes(queue_size);
        if spec.len < needed as u64 || !spec.offset.is_multiple_of(8) {
            return Err(DisconnectReason::Inflight);
        }
        let mapping =
            Mapping::new(account, fd, spec.offset, spec.len).map_err(|error| match error {
                MappingError::NotShared => DisconnectReason::NotShared,
                MappingError::TooShort => DisconnectReason::TooShort,
                MappingError::Length => DisconnectReason::Inflight,
                MappingError::Refused | MappingError::TooMuch => DisconnectReason::CannotMap,
            })?;
        Ok(Self { mapping: Arc::new(mapping), queues, queue_size })
    }

    /// The notes of one queue; `None` if there are none.
    pub(super) fn queue(&self, index: u16) -> Option<QueueNotes> {
        let first = usize::from(index) * queue_bytes(self.queue_size);
        (index < self.queues).then(|| QueueNotes {
            head: self.mapping.first().wrapping_add(first),
            mapping: Arc::clone(&self.mapping),
            size: self.queue_size,
        })
    }

    /// What the driver chose when it was last asked, if that is known.
    pub(super) fn writeback(&self) -> Option<bool> {
        let own = self.own()?;
        // SAFETY: `own` has room for both.
        let (magic, value) =
            unsafe { (own.cast::<[u8; 8]>().read_volatile(), own.add(8).read_volatile()) };
        (magic == MAGIC && value < 2).then_some(value == 1)
    }

    /// Notes what the driver chose.
    pub(super) fn set_writeback(&self, writeback: bool) {
        let Some(own) = self.own() else { return };
        // SAFETY: as above.
        unsafe {
            own.add(8).write_volatile(u8::from(writeback));
            own.cast::<[u8; 8]>().write_volatile(MAGIC);
        }
    }

    /// The page behind the queues, if this memory has one.
    fn own(&self) -> Option<*mut u8> {
        let at = usize::from(self.queues) * queue_bytes(self.queue_size);
        let at = at.next_multiple_of(OWN_BYTES);
        (at + OWN_BYTES <= self.mapping.len()).then(|| self.mapping.first().wrapping_add(at))
    }
}

const fn check(queues: u16, queue_size: u16) -> Result<(), DisconnectReason> {
    if queues == 0 || queues > QUEUES_MAX || queue_size == 0 || queue_size > QUEUE_SIZE_MAX {
        return Err(DisconnectReason::Inflight);
    }
    Ok(())
}

/// What an earlier server left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leftover {
    /// Heads of the requests under way, in the order in which they were taken.
    pub(super) heads: Vec<u16>,
    /// Counter of the next request.
    pub(super) counter: u64,
}

#[derive(Debug)]
pub(super) struct QueueNotes {
    head: *mut u8,
    mapping: Arc<Mapping>,
    size: u16,
}

// SAFETY: an address within a mapping that it holds.
unsafe impl Send for QueueNotes {}

impl QueueNotes {
    /// Reads what an earlier server left in the notes of a ring of `size` descriptors whose used
    /// index is `used`. `None`: there was none.
    pub(super) fn recover(
        &self,
        size: u16,
        used: u16,
    ) -> Result<Option<Leftover>, DisconnectReason> {
        if size > self.size {
            return Err(DisconnectReason::Inflight);
        }
        if self.u16_at(VERSION_AT).load(Ordering::Acquire) == 0 {
            self.u16_at(DESCRIPTORS_AT).store(size, Ordering::Relaxed);
            self.u16_at(USED_INDEX_AT).store(used, Ordering::Relaxed);
            self.u16_at(VERSION_AT).store(VERSION, Ordering::Release);
            return Ok(None);
        }
        let noted = self.u16_at(USED_INDEX_AT).load(Ordering::Acquire);
        let unnoted = used.wrapping_sub(noted);
        if unnoted > size {
            // The driver restarted, with nothing under way; or the memory was overwritten.
            return self.begin_anew(size, used);
        }
        let mut head = self.u16_at(LAST_BATCH_HEAD_AT).load(Ordering::Acquire);
        for _ in 0..unnoted {
            if head >= size {
                return Err(DisconnectReason::Inflight);
            }
            self.in_flight(head).store(0, Ordering::Release);
            head = self.next(head).load(Ordering::Acquire);
        }
        self.set_used_index(used);
        let mut under_way: Vec<(u64, u16)> = (0..size)
            .filter(|head| self.in_flight(*head).load(Ordering::Acquire) != 0)
            .map(|head| (self.counter(head).load(Ordering::Acquire), head))
            .collect();
        under_way.sort_unstable();
        let counter = under_way.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        let heads = under_way.into_iter().map(|(_, head)| head).collect();
        Ok(Some(Leftover { heads, counter }))
    }

    fn begin_anew(&self, size: u16, used: u16) -> Result<Option<Leftover>, DisconnectReason> {
        if (0..size).any(|head| self.in_flight(head).load(Ordering::Acquire) != 0) {
            return Err(DisconnectReason::Inflight);
        }
        self.set_used_index(used);
        Ok(None)
    }

    /// A request was taken.
    pub(super) fn take(&self, head: u16, counter: u64) {
        self.counter(head).store(counter, Ordering::Relaxed);
        self.in_flight(head).store(1, Ordering::Release);
    }

    /// A request is about to be given back with the next publication of the used index.
    pub(super) fn link(&self, head: u16) {
        let last = self.u16_at(LAST_BATCH_HEAD_AT);
        self.next(head).store(last.load(Ordering::Relaxed), Ordering::Release);
        last.store(head, Ordering::Release);
    }

    /// A request was given back: the used index was published.
    pub(super) fn clear(&self, head: u16) {
        self.in_flight(head).store(0, Ordering::Release);
    }

    /// The whole batch was given back.
    pub(super) fn set_used_index(&self, used: u16) {
        self.u16_at(USED_INDEX_AT).store(used, Ordering::Release);
    }

    /// Whether the memory is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.mapping.is_broken()
    }

    fn note(&self, head: u16) -> *mut u8 {
        assert!(head < self.size, "a descriptor that has a note");
        self.head.wrapping_add(HEAD_BYTES + NOTE_BYTES * usize::from(head))
    }

    fn in_flight(&self, head: u16) -> &AtomicU8 {
        // SAFETY: within the mapping, which this holds.
        unsafe { AtomicU8::from_ptr(self.note(head)) }
    }

    fn next(&self, head: u16) -> &AtomicU16 {
        // SAFETY: within the mapping; aligned, as the mapping and the note are to 8 bytes.
        unsafe { AtomicU16::from_ptr(self.note(head).wrapping_add(NEXT_AT).cast()) }
    }

    fn counter(&self, head: u16) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.note(head).wrapping_add(COUNTER_AT).cast()) }
    }

    fn u16_at(&self, at: usize) -> &AtomicU16 {
        // SAFETY: within the queue's head; aligned, as above.
        unsafe { AtomicU16::from_ptr(self.head.wrapping_add(at).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn made(queues: u16, queue_size: u16) -> (Inflight, InflightSpec, OwnedFd) {
        let (spec, file) = Inflight::create(queues, queue_size).expect("memory");
        let inflight = Inflight::open(&Arc::default(), &spec, file.as_fd()).expect("mapped");
        (inflight, spec, file)
    }

    fn notes() -> QueueNotes {
        let (inflight, _, _) = made(2, 8);
        let notes = inflight.queue(1).expect("it has two");
        assert_eq!(notes.recover(8, 0), Ok(None), "no server was here before");
        notes
    }

    fn heads(notes: &QueueNotes, used: u16) -> Vec<u16> {
        notes.recover(8, used).expect("sound").expect("there was one before").heads
    }

    #[test]
    fn requests_come_back_in_the_order_they_were_taken() {
        let notes = notes();
        for (counter, head) in [5, 2, 7, 0].into_iter().enumerate() {
            notes.take(head, counter as u64);
        }
        let left = notes.recover(8, 0).expect("sound").expect("there was one before");
        assert_eq!(left, Leftover { heads: vec![5, 2, 7, 0], counter: 4 });
    }

    #[test]
    fn dying_at_any_step_of_giving_back_neither_loses_nor_doubles() {
        // Steps: link 2, link 0 | publish | clear 0, clear 2 | used index.
        for died_after in 0..6 {
            let notes = notes();
            for (counter, head) in [5, 2, 0].into_iter().enumerate() {
                notes.take(head, counter as u64);
            }
            let steps: [&dyn Fn(); 6] = [
                &|| notes.link(2),
                &|| notes.link(0),
                &|| {},
                &|| notes.clear(2),
                &|| notes.clear(0),
                &|| notes.set_used_index(2),
            ];
            steps[..=died_after].iter().for_each(|step| step());
            // The third step is the ring's: from then on the driver has seen both.
            let used = if died_after >= 2 { 2 } else { 0 };
            let expected: &[u16] = if died_after >= 2 { &[5] } else { &[5, 2, 0] };
            assert_eq!(heads(&notes, used), expected, "died after step {died_after}");
            assert_eq!(heads(&notes, used), expected, "and recovered twice");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let notes = notes();
        assert_eq!(notes.recover(16, 0).err(), Some(DisconnectReason::Inflight));
        notes.take(3, 0);
        assert_eq!(notes.recover(8, 9).err(), Some(DisconnectReason::Inflight));
        notes.link(3);
        notes.next(3).store(9, Ordering::Relaxed);
        assert_eq!(notes.recover(8, 2).err(), Some(DisconnectReason::Inflight));
        for (queues, size) in [(0, 8), (17, 8), (1, 0), (1, 1025)] {
            assert!(Inflight::create(queues, size).is_err());
        }
    }

    #[test]
    fn the_drivers_choice_outlives_the_server() {
        let (inflight, spec, file) = made(16, 1024);
        assert_eq!(inflight.writeback(), None);
        inflight.set_writeback(false);
        let again = Inflight::open(&Arc::default(), &spec, file.as_fd()).expect("the same");
        assert_eq!(again.writeback(), Some(false));
        let short = InflightSpec { len: 4096, ..spec };
        let refused = Inflight::open(&Arc::default(), &short, file.as_fd()).err();
        assert_eq!(refused, Some(DisconnectReason::Inflight));
    }
}
