//! What the table says of its volume: size, budget, owner's epoch, and the 80 bytes of it.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | CRC-32C of all that follows |
//! | 4 | 8 | `CINNHYBR` |
//! | 12 | 2 | version, 1 |
//! | 14 | 1 | power of two that is the size of an extent |
//! | 15 | 1 | 0 |
//! | 16 | 16 | the volume's identity |
//! | 32 | 8 | epoch of the owner |
//! | 40 | 8 | size of the volume in bytes |
//! | 48 | 8 | bytes of the fast pool that the volume may take |
//! | 56 | 4 | extents before a shrink whose objects are still being deleted, or 0 |
//! | 60 | 4 | floor: names of new extents' objects have a higher generation |
//! | 64 | 8 | epoch of the owner that last changed data otherwise than by writes, or 0 |
//! | 72 | 8 | 0 |

use crate::geometry::{Geometry, GeometryError};
use crate::limits::{EXTENTS_MAX, GENERATION_MAX};
use thiserror::Error;

/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 80;
/// The version that this code writes, and the highest that it reads.
pub const HEADER_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"CINNHYBR";

/// What the table says of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen at random when the volume is made.
    pub identity: [u8; 16],
    /// Raised by each owner when it takes the volume over; all its writes to the table carry it.
    pub epoch: u64,
    /// Size, and size of extents.
    pub geometry: Geometry,
    /// Bytes of the fast pool that the volume may take, copies under way included.
    pub budget_bytes: u64,
    /// While a shrink's objects are deleted, the extents that the volume had before; else 0.
    pub tail: u32,
    /// Objects of new extents have a higher generation: those up to it may have been used.
    pub floor: u32,
    /// Epoch of the owner that last changed data otherwise than by writes (it cut the volume off, or gave up what was
    /// lost); 0: none has. What a cache has from before is old.
    pub changed: u64,
}

impl Header {
    /// Of a volume that is made now.
    pub fn new(identity: [u8; 16], geometry: Geometry, budget_bytes: u64) -> Self {
        Self { identity, epoch: 1, geometry, budget_bytes, tail: 0, floor: 0, changed: 0 }
    }

    /// Of the next owner.
    ///
    /// # Panics
    /// If the epoch can't be raised: after 2^64 owners.
    #[must_use]
    pub fn taken_over(self) -> Self {
        Self { epoch: self.epoch.checked_add(1).expect("fewer than 2^64 owners"), ..self }
    }

    /// Extents that may have a record: those of the volume, and what a shrink has still to delete.
    pub fn records(&self) -> u32 {
        self.geometry.extents().max(self.tail)
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[4..12].copy_from_slice(&MAGIC);
        bytes[12..14].copy_from_slice(&HEADER_VERSION.to_le_bytes());
        bytes[14] = self.geometry.extent_log2();
        bytes[16..32].copy_from_slice(&self.identity);
        bytes[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.geometry.bytes().to_le_bytes());
        bytes[48..56].copy_from_slice(&self.budget_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.tail.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.floor.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.changed.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header. The magic and the version stand before the checksum, so that a foreign object
    /// and a newer table are named as such.
    ///
    /// # Errors
    /// When it is none, newer, damaged, or of a volume that can't be.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < 14 || bytes[4..12] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        let version = u16::from_le_bytes([bytes[12], bytes[13]]);
        if version > HEADER_VERSION {
            return Err(HeaderError::Version(version));
        }
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| HeaderError::Checksum)?;
        if bytes[..4] != crc32c::crc32c(&bytes[4..]).to_le_bytes() {
            return Err(HeaderError::Checksum);
        }
        if version != HEADER_VERSION {
            return Err(HeaderError::Version(version));
        }
        let wide = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[16..32]);
        let geometry = Geometry::new(wide(40), bytes[14])?;
        let (epoch, budget_bytes, changed) = (wide(32), wide(48), wide(64));
        let (tail, floor) = (number(56), number(60));
        let header = Self { identity, epoch, geometry, budget_bytes, tail, floor, changed };
        let tail = header.tail == 0 || header.tail > geometry.extents();
        if epoch == 0
            || changed > epoch
            || !tail
            || header.tail > EXTENTS_MAX
            || header.floor > GENERATION_MAX
        {
            return Err(HeaderError::Contents);
        }
        Ok(header)
    }
}

/// Why a header is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// No header of a hybrid volume.
    #[error("not the table of a hybrid volume")]
    Foreign,
    /// Written by a newer version.
    #[error("the table has version {0}; this program reads up to {HEADER_VERSION}")]
    Version(u16),
    /// Rotten or torn.
    #[error("the table's header does not match its checksum")]
    Checksum,
    /// The checksum is right, and the contents are impossible.
    #[error("the table's header says what can't be")]
    Contents,
    /// A size that no volume has.
    #[error("the table's header has a size that can't be")]
    Geometry(#[from] GeometryError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        let geometry = Geometry::new(16 << 40, 22).expect("a size");
        let made = Header::new([7; 16], geometry, 1 << 40);
        Header { tail: 5 << 20, floor: 9, epoch: 4, changed: 3, ..made }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let next = header().taken_over();
        assert_eq!(Header::decode(&next.encode()), Ok(next));
        assert_eq!((next.epoch, next.records()), (5, 5 << 20));
    }

    #[test]
    fn foreign_newer_and_damaged_ones_are_told_apart() {
        let bytes = header().encode();
        assert_eq!(Header::decode(b"an image"), Err(HeaderError::Foreign));
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(HeaderError::Foreign));
        let mut newer = bytes;
        newer[12] = 2;
        assert_eq!(Header::decode(&newer), Err(HeaderError::Version(2)));
        // A newer one may have another length and another checksum.
        assert_eq!(Header::decode(&newer[..40]), Err(HeaderError::Version(2)));
        let mut rotten = bytes;
        rotten[45] ^= 1;
        assert_eq!(Header::decode(&rotten), Err(HeaderError::Checksum));
        assert_eq!(Header::decode(&bytes[..79]), Err(HeaderError::Checksum));
        let wrong = Header { tail: 1, ..header() }.encode();
        assert_eq!(Header::decode(&wrong), Err(HeaderError::Contents));
    }

    proptest! {
        #[test]
        fn bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100), magic: bool) {
            if magic && bytes.len() >= 14 {
                bytes[4..12].copy_from_slice(&MAGIC);
                bytes[12..14].copy_from_slice(&[1, 0]);
            }
            let _ = Header::decode(&bytes);
        }
    }
}
