//! The payload of fault simulation: each 512-byte sector carries a stamp instead of 512 bytes.
//!
//! A stamp names who wrote the sector and when, so that the oracle can tell from a read which write
//! it saw.

use cinnabar_engine::Payload;
use cinnabar_engine::units::{BLOCK_BYTES, SECTOR_BYTES};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

pub const BLOCK_SECTORS: usize = (BLOCK_BYTES / SECTOR_BYTES) as usize;

const VOLUME_SHIFT: u32 = 56;
const SECTOR_SHIFT: u32 = 28;
const SECTOR_MASK: u64 = (1 << SECTOR_SHIFT) - 1;

/// Contents of one sector: volume (8 bits), sector (28 bits), version (28 bits), or one of two
/// values that no write has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(u64);

impl Stamp {
    pub const ZERO: Self = Self(0);
    /// Contents that were never written: fresh memory, or memory under a read.
    pub const POISON: Self = Self(u64::MAX);

    /// The stamp of a write. Version 0 is what a volume held before the simulation began.
    ///
    /// # Panics
    /// If a number does not fit.
    pub fn new(volume: usize, sector: u64, version: u64) -> Self {
        assert!(volume < 254, "volume {volume} does not fit in a stamp");
        assert!(sector <= SECTOR_MASK && version <= SECTOR_MASK, "{sector} v{version} do not fit");
        // Volume numbers are stored plus one, so that no stamp equals ZERO or POISON.
        Self((volume as u64 + 1) << VOLUME_SHIFT | sector << SECTOR_SHIFT | version)
    }

    /// Was this written to that sector of that volume?
    pub fn is_of(self, volume: usize, sector: u64) -> bool {
        self.0 | SECTOR_MASK == Self::new(volume, sector, SECTOR_MASK).0
    }

    /// Volume and sector it was written to; `None` for zeros and poison.
    pub fn origin(self) -> Option<(usize, u64)> {
        let written = self != Self::ZERO && self != Self::POISON;
        let volume = (self.0 >> VOLUME_SHIFT).wrapping_sub(1) as usize;
        written.then_some((volume, self.0 >> SECTOR_SHIFT & SECTOR_MASK))
    }

    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZERO => f.write_str("zeros"),
            Self::POISON => f.write_str("poison"),
            Self(bits) => {
                let volume = (bits >> VOLUME_SHIFT).wrapping_sub(1);
                let (sector, version) = (bits >> SECTOR_SHIFT & SECTOR_MASK, bits & SECTOR_MASK);
                write!(f, "vol{volume}/sector{sector}/v{version}")
            }
        }
    }
}

/// Memory full of stamps. A clone is a handle to the same memory.
#[derive(Clone)]
pub struct Stamped(Rc<RefCell<Vec<Stamp>>>);

impl Stamped {
    /// Memory holding these sectors.
    ///
    /// # Panics
    /// If they are not whole blocks.
    pub fn from_stamps(stamps: Vec<Stamp>) -> Self {
        assert!(stamps.len().is_multiple_of(BLOCK_SECTORS), "{} sectors", stamps.len());
        Self(Rc::new(RefCell::new(stamps)))
    }

    /// Number of sectors.
    pub fn sectors(&self) -> usize {
        self.0.borrow().len()
    }

    /// A copy of `count` sectors from number `first` on.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn get(&self, first: usize, count: usize) -> Vec<Stamp> {
        self.0.borrow()[first..first + count].to_vec()
    }

    /// Appends `count` sectors from number `first` on to `stamps`.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn append_to(&self, first: usize, count: usize, stamps: &mut Vec<Stamp>) {
        stamps.extend_from_slice(&self.0.borrow()[first..first + count]);
    }

    /// Overwrites the sectors from number `first` on.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn set(&self, first: usize, stamps: &[Stamp]) {
        self.0.borrow_mut()[first..first + stamps.len()].copy_from_slice(stamps);
    }

    /// Are both handles to the same memory?
    pub fn same_memory(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Its length only: the memory of a large request would drown a report.
impl fmt::Debug for Stamped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamped({} sectors)", self.sectors())
    }
}

fn sectors(bytes: u64) -> usize {
    assert!(bytes.is_multiple_of(SECTOR_BYTES), "{bytes} bytes are not whole sectors");
    (bytes / SECTOR_BYTES) as usize
}

impl Payload for Stamped {
    fn alloc(blocks: u32) -> Self {
        Self::from_stamps(vec![Stamp::POISON; blocks as usize * BLOCK_SECTORS])
    }

    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        let (at, from_at, len) = (sectors(at), sectors(from_at), sectors(len));
        if self.same_memory(from) {
            self.0.borrow_mut().copy_within(from_at..from_at + len, at);
        } else {
            self.0.borrow_mut()[at..at + len]
                .copy_from_slice(&from.0.borrow()[from_at..from_at + len]);
        }
    }

    fn zero(&self, at: u64, len: u64) {
        let (at, len) = (sectors(at), sectors(len));
        self.0.borrow_mut()[at..at + len].fill(Stamp::ZERO);
    }

    fn checksum(&self, at: u64, seed: u64) -> u32 {
        assert!(at.is_multiple_of(BLOCK_BYTES), "a checksum is one of a block, not of byte {at}");
        let at = sectors(at);
        let hash = self.0.borrow()[at..at + BLOCK_SECTORS]
            .iter()
            .fold(mix(seed), |hash, stamp| mix(hash ^ stamp.bits()));
        (hash >> 32) as u32
    }
}

/// A 64-bit finalizer: every input bit moves every output bit.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}
