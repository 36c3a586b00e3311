//! Descriptor chains: from a head in the ring to pieces of memory.
//!
//! Nothing in a chain is believed: every descriptor is read once, its length bounded, its address
//! looked up, and their number counted, so that a loop ends.

use super::limits::CHAIN_MAX;
use super::memory::{self, GuestMemory, Pieces};
use super::reason::DisconnectReason;
use super::ring::{DESCRIPTOR_BYTES, Descriptor, Ring};

/// A request's memory: what the device reads, then what it writes.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) readable: Pieces,
    pub(super) writable: Pieces,
    /// Descriptors so far.
    pub(super) count: u32,
}

impl Chain {
    /// Follows the chain from `head` on; `indirect` says whether indirect tables were negotiated.
    pub(super) fn follow(
        ring: &Ring,
        memory: &GuestMemory,
        head: u16,
        indirect: bool,
    ) -> Result<Self, DisconnectReason> {
        let mut chain = Self::default();
        let mut index = head;
        loop {
            let descriptor = ring.descriptor(index).ok_or(DisconnectReason::Descriptor)?;
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                // The last one, and the only one of its kind.
                if !indirect || descriptor.flags & Descriptor::NEXT != 0 {
                    return Err(DisconnectReason::Indirect);
                }
                chain.follow_table(memory, &descriptor)?;
                return Ok(chain);
            }
            chain.add(memory, &descriptor)?;
            if descriptor.flags & Descriptor::NEXT == 0 {
                return Ok(chain);
            }
            if chain.count >= u32::from(ring.size()) {
                return Err(DisconnectReason::ChainTooLong);
            }
            index = descriptor.next;
        }
    }

    /// Follows a chain within a table in the guest's memory.
    fn follow_table(
        &mut self,
        memory: &GuestMemory,
        table: &Descriptor,
    ) -> Result<(), DisconnectReason> {
        let bytes = table.len as usize;
        let fits = bytes > 0 && bytes.is_multiple_of(DESCRIPTOR_BYTES);
        if !fits || bytes / DESCRIPTOR_BYTES > CHAIN_MAX as usize {
            return Err(DisconnectReason::Indirect);
        }
        let mut place = Pieces::new();
        if !memory.find(table.address, bytes as u64, &mut place) {
            return Err(DisconnectReason::ChainAddress);
        }
        // Nearly always the entries follow each other; copying all at once is the quick way.
        let mut entries = smallvec::SmallVec::<[u8; 24 * DESCRIPTOR_BYTES]>::from_elem(0, bytes);
        // SAFETY: as many bytes as `entries` has; `memory` is borrowed, so it is there.
        unsafe { memory::copy_from_guest(&place, entries.as_mut_ptr(), bytes) };
        let (entries, _) = entries.as_chunks::<DESCRIPTOR_BYTES>();
        let mut index = 0;
        for _ in 0..entries.len() {
            let entry = entries.get(index).ok_or(DisconnectReason::Descriptor)?;
            let descriptor = Descriptor::decode(entry);
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                return Err(DisconnectReason::Indirect);
            }
            self.add(memory, &descriptor)?;
            if descriptor.flags & Descriptor::NEXT == 0 {
                return Ok(());
            }
            index = usize::from(descriptor.next);
        }
        Err(DisconnectReason::ChainTooLong)
    }

    /// Adds a descriptor's memory.
    fn add(
        &mut self,
        memory: &GuestMemory,
        descriptor: &Descriptor,
    ) -> Result<(), DisconnectReason> {
        self.count += 1;
        if self.count > CHAIN_MAX {
            return Err(DisconnectReason::ChainTooLong);
        }
        let writable = descriptor.flags & Descriptor::WRITE != 0;
        if !writable && !self.writable.is_empty() {
            return Err(DisconnectReason::ChainOrder);
        }
        let pieces = if writable { &mut self.writable } else { &mut self.readable };
        if memory.find(descriptor.address, u64::from(descriptor.len), pieces) {
            Ok(())
        } else {
            Err(DisconnectReason::ChainAddress)
        }
    }
}
