//! Memory of the simulation: real bytes.

use cinnabar_engine::Payload;
use std::cell::RefCell;
use std::rc::Rc;

/// See the module; and whether it is a guest's own, which the guest reads into, and may change at any
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Mem(pub(crate) Rc<RefCell<Vec<u8>>>, bool);

impl Payload for Mem {
    fn alloc(blocks: u32) -> Self {
        // Not zeros: what is not written must not matter.
        Self(Rc::new(RefCell::new(vec![0xA5; blocks as usize * 4096])), false)
    }

    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        let bytes = from.bytes(from_at, len);
        self.0.borrow_mut()[at as usize..(at + len) as usize].copy_from_slice(&bytes);
    }

    fn zero(&self, at: u64, len: u64) {
        self.0.borrow_mut()[at as usize..(at + len) as usize].fill(0);
    }

    fn checksum(&self, at: u64, seed: u64) -> u32 {
        let mut sum = seed ^ 0xCBF2_9CE4_8422_2325;
        for word in self.0.borrow()[at as usize..at as usize + 4096].chunks(8) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
        (sum ^ (sum >> 32)) as u32
    }

    fn is_private(&self) -> bool {
        !self.1
    }
}

impl Mem {
    /// Memory of so many sectors: a buffer that ends where a volume does.
    pub(crate) fn sectors(count: usize) -> Self {
        Self(Rc::new(RefCell::new(vec![0xA5; count * 512])), false)
    }

    /// The same memory, as a guest's own.
    pub(crate) fn of_guest(self) -> Self {
        Self(self.0, true)
    }

    /// Memory whose sectors hold these values, from its `head`th sector on.
    pub(crate) fn of(head: usize, values: &[u64]) -> Self {
        let blocks = (head + values.len()).div_ceil(8);
        let mem = Self::alloc(blocks as u32);
        for (sector, value) in values.iter().enumerate() {
            let at = (head + sector) * 512;
            for word in mem.0.borrow_mut()[at..at + 512].chunks_mut(8) {
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        mem
    }

    /// Fills a sector with a value.
    pub(crate) fn put(&self, sector: usize, value: u64) {
        for word in self.0.borrow_mut()[sector * 512..][..512].chunks_mut(8) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Fills all of it with a value.
    pub(crate) fn fill(&self, value: u64) {
        let sectors = self.0.borrow().len() / 512;
        (0..sectors).for_each(|sector| self.put(sector, value));
    }

    /// Whether all of it is still so.
    pub(crate) fn is_full_of(&self, value: u64) -> bool {
        self.0.borrow().chunks(8).all(|word| word == value.to_le_bytes())
    }

    pub(crate) fn bytes(&self, at: u64, len: u64) -> Vec<u8> {
        self.0.borrow()[at as usize..(at + len) as usize].to_vec()
    }

    /// The value of a sector; one that is torn has none.
    pub(crate) fn value(&self, sector: usize) -> Option<u64> {
        let bytes = self.bytes(sector as u64 * 512, 512);
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        bytes.chunks(8).all(|word| word == first.to_le_bytes()).then_some(first)
    }
}
