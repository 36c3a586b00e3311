//! A split virtqueue: the guest's rings, as its driver and this device share them.
//!
//! After "Split Virtqueues" of the VIRTIO specification, 1.2. The driver offers heads of descriptor
//! chains in the available ring, the device gives them back in the used ring; each side's index runs
//! on modulo 2^16 and says how many there ever were.

use super::limits::QUEUE_SIZE_MAX;
use super::log::Log;
use super::memory::GuestMemory;
use super::proto::RingAddresses;
use super::reason::DisconnectReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// Bytes before the first entry of either ring: flags and index.
const HEAD_BYTES: usize = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`: no call, no kick is needed.
const QUIET: u16 = 1;

/// A descriptor, as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Guest physical address.
    pub(super) address: u64,
    /// Length in bytes.
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    /// Another follows.
    pub(super) const NEXT: u16 = 1;
    /// The device writes to it.
    pub(super) const WRITE: u16 = 2;
    /// It holds a table of descriptors.
    pub(super) const INDIRECT: u16 = 4;

    /// Little endian, as all of a modern device.
    pub(super) fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let value = u128::from_le_bytes(*bytes);
        Self {
            address: value as u64,
            len: (value >> 64) as u32,
            flags: (value >> 96) as u16,
            next: (value >> 112) as u16,
        }
    }
}

/// A ring in use.
#[derive(Debug)]
pub(super) struct Ring {
    /// Descriptors, a power of two.
    size: u16,
    descriptors: *mut u8,
    available: *mut u8,
    used: *mut u8,
    /// Where the used ring lies in guest physical addresses.
    used_address: u64,
    /// Where what is written to it is logged, and which address its first byte has there.
    log: Option<(Arc<Log>, u64)>,
    /// Next entry of the available ring to be looked at.
    pub(super) next_available: u16,
    /// Next entry of the used ring to be filled.
    next_used: u16,
    /// Used index at the last call to the driver; `None`: the driver must be called in any case.
    told: Option<u16>,
    /// `VIRTIO_F_EVENT_IDX`: each side says at which index it wants to be notified by the other.
    event_index: bool,
}

// SAFETY: addresses within memory that the owner of the ring holds.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of `size` descriptors at `addresses`, to be gone on with at `base`.
    pub(super) fn new(
        memory: &GuestMemory,
        addresses: &RingAddresses,
        size: u16,
        base: u16,
        event_index: bool,
    ) -> Result<Self, DisconnectReason> {
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(DisconnectReason::RingSize);
        }
        let null = std::ptr::null_mut();
        let mut ring = Self {
            size,
            descriptors: null,
            available: null,
            used: null,
            used_address: 0,
            log: None,
            next_available: base,
            next_used: 0,
            told: None,
            event_index,
        };
        ring.place(memory, addresses)?;
        ring.next_used = ring.used_index();
        Ok(ring)
    }

    /// Finds its place in memory, again if that has changed.
    pub(super) fn place(
        &mut self,
        memory: &GuestMemory,
        addresses: &RingAddresses,
    ) -> Result<(), DisconnectReason> {
        let size = u64::from(self.size);
        let find =
            |at, len, align| memory.find_user(at, len, align).ok_or(DisconnectReason::RingAddress);
        self.descriptors = find(addresses.descriptors, 16 * size, 16)?;
        // Each ring ends with an index of the other side's.
        self.available = find(addresses.available, 6 + 2 * size, 2)?;
        self.used = find(addresses.used, self.used_bytes(), 4)?;
        let used_address = memory.guest_address(self.used).ok_or(DisconnectReason::RingAddress)?;
        self.used_address = used_address.0;
        Ok(())
    }

    /// Bytes of the used ring.
    fn used_bytes(&self) -> u64 {
        6 + 8 * u64::from(self.size)
    }

    /// From now on what is written to the used ring is logged there, or not at all. `address` is what
    /// the front-end gave as the ring's, if it did.
    ///
    /// All of the ring is marked at once: what was written before, by this server or one that died,
    /// may not have been.
    pub(super) fn log_to(
        &mut self,
        log: Option<Arc<Log>>,
        address: Option<u64>,
    ) -> Result<(), DisconnectReason> {
        let address = address.unwrap_or(self.used_address);
        let end = address.checked_add(self.used_bytes());
        if log.as_ref().is_some_and(|log| !end.is_some_and(|end| log.covers(end))) {
            return Err(DisconnectReason::LogTooSmall);
        }
        self.log = log.map(|log| (log, address));
        self.mark_used(0, self.used_bytes());
        Ok(())
    }

    /// Marks what was written to the used ring, `at` bytes behind its beginning.
    fn mark_used(&self, at: u64, len: u64) {
        if let Some((log, address)) = &self.log {
            log.mark(address + at, len);
        }
    }

    /// Writes a number to the used ring.
    fn store_used(&self, at: usize, value: u16, order: Ordering) {
        store(self.used, at, value, order);
        self.mark_used(at as u64, 2);
    }

    pub(super) const fn size(&self) -> u16 {
        self.size
    }

    /// Entries offered and not taken. More than there are descriptors can't be.
    pub(super) fn waiting(&self) -> Result<u16, DisconnectReason> {
        let waiting = self.available_index().wrapping_sub(self.next_available);
        if waiting > self.size { Err(DisconnectReason::AvailableIndex) } else { Ok(waiting) }
    }

    /// Whether there is anything new: one load.
    pub(super) fn has_news(&self) -> bool {
        self.available_index() != self.next_available
    }

    /// The chain's head in the next entry, which has been offered.
    pub(super) fn head(&self) -> Result<u16, DisconnectReason> {
        let at = usize::from(self.next_available % self.size);
        let head = load(self.available, HEAD_BYTES + 2 * at, Ordering::Relaxed);
        if head < self.size { Ok(head) } else { Err(DisconnectReason::Descriptor) }
    }

    /// A descriptor of the ring's own table.
    pub(super) fn descriptor(&self, index: u16) -> Option<Descriptor> {
        if index >= self.size {
            return None;
        }
        let from = self.descriptors.wrapping_add(DESCRIPTOR_BYTES * usize::from(index));
        let mut bytes = [0; DESCRIPTOR_BYTES];
        for (at, half) in bytes.chunks_exact_mut(8).enumerate() {
            // SAFETY: the table has `size` descriptors, and is aligned to one (`place`). The guest may change it
            // meanwhile: whatever comes out is judged afterwards, and not read a second time.
            let word = unsafe { AtomicU64::from_ptr(from.wrapping_add(8 * at).cast()) };
            half.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Some(Descriptor::decode(&bytes))
    }

    /// Fills the next entry of the used ring; the driver sees it after [`Self::publish`].
    pub(super) fn put_used(&mut self, head: u16, len: u32) {
        let at = HEAD_BYTES + 8 * usize::from(self.next_used % self.size);
        for (at, value) in [(at, u32::from(head)), (at + 4, len)] {
            // SAFETY: the ring has `size` entries, and is aligned to four bytes (`place`).
            let to = unsafe { AtomicU32::from_ptr(self.used.wrapping_add(at).cast()) };
            to.store(value.to_le(), Ordering::Relaxed);
        }
        self.mark_used(at as u64, 8);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Lets the driver see all entries put; returns the used index.
    pub(super) fn publish(&self) -> u16 {
        self.store_used(2, self.next_used, Ordering::Release);
        self.next_used
    }

    /// Whether the driver wants to be called for what was published since it was last.
    pub(super) fn needs_call(&mut self) -> bool {
        // The driver writes its op, then looks at the index; we do it the other way round.
        fence(Ordering::SeqCst);
        let told = self.told.replace(self.next_used);
        if !self.event_index {
            return load(self.available, 0, Ordering::Relaxed) & QUIET == 0;
        }
        let at = HEAD_BYTES + 2 * usize::from(self.size);
        let event = load(self.available, at, Ordering::Relaxed);
        told.is_none_or(|told| passes(event, told, self.next_used))
    }

    /// The driver must be called with whatever is published next, or nothing: it may have missed a
    /// call.
    pub(super) const fn forget_calls(&mut self) {
        self.told = None;
    }

    /// Asks for a kick with the next entry. True if one has come meanwhile, for which there may be
    /// none.
    pub(super) fn ask_for_kicks(&self) -> bool {
        if self.event_index {
            let at = HEAD_BYTES + 8 * usize::from(self.size);
            self.store_used(at, self.next_available, Ordering::Relaxed);
        } else {
            self.store_used(0, 0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.has_news()
    }

    /// Asks for no kicks, as far as that is possible.
    pub(super) fn refuse_kicks(&self) {
        if self.event_index {
            // One kick more comes at most, then the driver's index has passed this one: not again
            // before it went round.
            let at = HEAD_BYTES + 8 * usize::from(self.size);
            self.store_used(at, self.next_available.wrapping_sub(1), Ordering::Relaxed);
        } else {
            self.store_used(0, QUIET, Ordering::Relaxed);
        }
    }

    /// The used index in the guest's memory.
    pub(super) fn used_index(&self) -> u16 {
        load(self.used, 2, Ordering::Acquire)
    }

    fn available_index(&self) -> u16 {
        load(self.available, 2, Ordering::Acquire)
    }
}

/// Reads a number of a ring, `at` bytes behind its beginning.
fn load(base: *mut u8, at: usize, order: Ordering) -> u16 {
    // SAFETY: called with places within a ring (`Ring::place`), whose memory is held; they are
    // even, as the ring's own address. The guest's side uses the same kind of access.
    let value = unsafe { AtomicU16::from_ptr(base.wrapping_add(at).cast()) };
    u16::from_le(value.load(order))
}

/// Writes one.
fn store(base: *mut u8, at: usize, value: u16, order: Ordering) {
    // SAFETY: as above.
    let place = unsafe { AtomicU16::from_ptr(base.wrapping_add(at).cast()) };
    place.store(value.to_le(), order);
}

/// Whether an index that went from `old` to `new` passed `event`, modulo 2^16.
const fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn an_event_is_passed_once() {
        assert!(passes(4, 4, 5));
        assert!(!passes(5, 4, 5));
        assert!(!passes(3, 4, 5));
        assert!(passes(6, 4, 9));
        assert!(passes(u16::MAX, u16::MAX - 1, 2));
        assert!(!passes(2, u16::MAX - 1, 2));
        assert!(!passes(9, 9, 9), "nothing new, nothing to tell");
    }
}
