//! What the table says of an extent: its states, the steps between them, and the 16 bytes of it.
//!
//! A record is written whole, by compare-and-set under the owner's epoch. Byte by byte:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | CRC-32C of the extent's number (4 bytes) and of all that follows |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | state: 1 fresh, 2 stable, 3 copying, 4 cleaning, 5 dropping |
//! | 6 | 1 | pool of the truth: 0 slow, 1 fast |
//! | 7 | 1 | 0 |
//! | 8 | 4 | generation of the truth |
//! | 12 | 4 | generation of the other object; without one the highest that was used, or 0 |
//!
//! An absent extent has no record.

use crate::geometry::{Object, Pool};
use crate::limits::GENERATION_MAX;
use thiserror::Error;

/// Bytes of an encoded record.
pub const RECORD_BYTES: usize = 16;
/// The version that this code writes, and the highest that it reads.
pub const RECORD_VERSION: u8 = 1;

/// The state of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never written: reads as zeros, has no object.
    Absent = 0,
    /// About to be written for the first time: without an object it reads as zeros.
    Fresh = 1,
    /// Has one object.
    Stable = 2,
    /// The truth is where it was; the other object is a copy that is being made.
    Copying = 3,
    /// The other object is garbage: a former truth, or a copy that was given up.
    Cleaning = 4,
    /// Behind the end of the volume: its object is to be deleted.
    Dropping = 5,
}

/// What the table says of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// See [`State`].
    pub state: State,
    /// Where the truth lies.
    pub pool: Pool,
    /// Generation of the truth; 0 if absent.
    pub generation: u32,
    /// Generation of the object in the other pool. Without one, the highest that was ever used, or 0.
    pub other: u32,
}

impl Record {
    /// Of an extent that was never written.
    pub const ABSENT: Self =
        Self { state: State::Absent, pool: Pool::Slow, generation: 0, other: 0 };

    /// The object that holds the extent's data, if there may be one.
    pub fn truth(self, extent: u32) -> Option<Object> {
        let object = Object { extent, pool: self.pool, generation: self.generation };
        (self.state != State::Absent).then_some(object)
    }

    /// The object in the other pool: a copy under way, or garbage.
    pub fn second(self, extent: u32) -> Option<Object> {
        let object = Object { extent, pool: self.pool.other(), generation: self.other };
        matches!(self.state, State::Copying | State::Cleaning).then_some(object)
    }

    /// Whether the extent may have an object in `pool`.
    pub fn occupies(self, pool: Pool) -> bool {
        match self.state {
            State::Absent => false,
            State::Copying | State::Cleaning => true,
            State::Fresh | State::Stable | State::Dropping => self.pool == pool,
        }
    }

    /// The highest generation that the extent has used.
    pub fn highest(self) -> u32 {
        self.generation.max(self.other)
    }

    /// The first object, in `pool`.
    ///
    /// # Panics
    /// If the extent has one.
    #[must_use]
    pub fn allocated(self, pool: Pool, generation: u32) -> Self {
        assert_eq!(self, Self::ABSENT, "only an absent extent gets its first object");
        assert!(generation > 0 && generation <= GENERATION_MAX, "a generation that names have");
        Self { state: State::Fresh, pool, generation, other: 0 }
    }

    /// The first object was written.
    ///
    /// # Panics
    /// If the extent is not fresh.
    #[must_use]
    pub fn settled(self) -> Self {
        assert_eq!(self.state, State::Fresh, "only a fresh extent settles");
        Self { state: State::Stable, ..self }
    }

    /// A copy begins in the other pool, under a name that no object has had.
    ///
    /// # Panics
    /// If the extent is not stable, or has used all generations.
    #[must_use]
    pub fn copying(self) -> Self {
        assert_eq!(self.state, State::Stable, "only a stable extent moves");
        let other = self.highest() + 1;
        assert!(other <= GENERATION_MAX, "an extent without a free generation does not move");
        Self { state: State::Copying, other, ..self }
    }

    /// The copy is the truth now, and what was the truth is garbage.
    ///
    /// # Panics
    /// If no copy is under way.
    #[must_use]
    pub fn flipped(self) -> Self {
        assert_eq!(self.state, State::Copying, "only a copy becomes the truth");
        let (generation, other) = (self.other, self.generation);
        Self { state: State::Cleaning, pool: self.pool.other(), generation, other }
    }

    /// The copy is given up.
    ///
    /// # Panics
    /// If no copy is under way.
    #[must_use]
    pub fn aborted(self) -> Self {
        assert_eq!(self.state, State::Copying, "only a copy is given up");
        Self { state: State::Cleaning, ..self }
    }

    /// The garbage is deleted.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn cleaned(self) -> Self {
        assert_eq!(self.state, State::Cleaning, "only garbage is cleaned up");
        Self { state: State::Stable, other: self.highest(), ..self }
    }

    /// The volume ends before the extent.
    ///
    /// # Panics
    /// If a copy or garbage of it is left.
    #[must_use]
    pub fn dropping(self) -> Self {
        let alone = matches!(self.state, State::Fresh | State::Stable);
        assert!(alone, "an extent with one object is dropped");
        Self { state: State::Dropping, ..self }
    }

    /// The record's bytes, bound to its extent.
    ///
    /// # Panics
    /// If the extent is absent: such a record is removed instead, or if it breaks a rule of
    /// [`Record::decode`].
    pub fn encode(self, extent: u32) -> [u8; RECORD_BYTES] {
        assert!(self.state != State::Absent, "an absent extent has no record");
        assert!(self.is_sound(), "a record is written as it would be read");
        let mut bytes = [0; RECORD_BYTES];
        bytes[4..8].copy_from_slice(&[RECORD_VERSION, self.state as u8, self.pool as u8, 0]);
        bytes[8..12].copy_from_slice(&self.generation.to_le_bytes());
        bytes[12..].copy_from_slice(&self.other.to_le_bytes());
        let crc = Self::checksum(extent, &bytes);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a record of `extent`.
    ///
    /// # Errors
    /// When it is of a newer version, damaged, or another extent's.
    pub fn decode(extent: u32, bytes: &[u8]) -> Result<Self, RecordError> {
        let bytes: &[u8; RECORD_BYTES] =
            bytes.try_into().map_err(|_| RecordError::Length { extent, length: bytes.len() })?;
        let crc = Self::checksum(extent, bytes).to_le_bytes();
        if bytes[..4] != crc {
            return Err(RecordError::Checksum { extent });
        }
        if bytes[4] != RECORD_VERSION {
            return Err(RecordError::Version { extent, version: bytes[4] });
        }
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let state = match bytes[5] {
            1 => State::Fresh,
            2 => State::Stable,
            3 => State::Copying,
            4 => State::Cleaning,
            5 => State::Dropping,
            _ => return Err(RecordError::Contents { extent }),
        };
        let pool = match bytes[6] {
            0 => Pool::Slow,
            1 => Pool::Fast,
            _ => return Err(RecordError::Contents { extent }),
        };
        let record = Self { state, pool, generation: number(8), other: number(12) };
        if !record.is_sound() || bytes[7] != 0 {
            return Err(RecordError::Contents { extent });
        }
        Ok(record)
    }

    /// Whether the numbers are possible in the state.
    fn is_sound(self) -> bool {
        let used = self.generation > 0 && self.highest() <= GENERATION_MAX;
        used && match self.state {
            State::Absent => false,
            State::Fresh => self.other == 0,
            State::Stable | State::Dropping => true,
            State::Copying => self.other > self.generation,
            State::Cleaning => self.other > 0 && self.other != self.generation,
        }
    }

    fn checksum(extent: u32, bytes: &[u8; RECORD_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&extent.to_le_bytes()), &bytes[4..])
    }
}

/// Why a record is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Not the size of one.
    #[error("the record of extent {extent} has {length} bytes instead of {RECORD_BYTES}")]
    Length {
        /// Its number.
        extent: u32,
        /// Bytes found.
        length: usize,
    },
    /// Rotten, or another extent's.
    #[error("the record of extent {extent} does not match its checksum")]
    Checksum {
        /// Its number.
        extent: u32,
    },
    /// Written by a newer version.
    #[error(
        "the record of extent {extent} has version {version}; this program reads up to {RECORD_VERSION}"
    )]
    Version {
        /// Its number.
        extent: u32,
        /// Found there.
        version: u8,
    },
    /// The checksum is right, and the contents are impossible.
    #[error("the record of extent {extent} says what can't be")]
    Contents {
        /// Its number.
        extent: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stable() -> Record {
        Record::ABSENT.allocated(Pool::Slow, 7).settled()
    }

    #[test]
    fn a_move_and_an_abort_use_each_generation_once() {
        let copying = stable().copying();
        assert_eq!((copying.pool, copying.generation, copying.other), (Pool::Slow, 7, 8));
        let flipped = copying.flipped();
        assert_eq!((flipped.pool, flipped.generation, flipped.other), (Pool::Fast, 8, 7));
        assert_eq!(flipped.cleaned().copying().other, 9);
        let aborted = copying.aborted().cleaned();
        assert_eq!((aborted.pool, aborted.generation), (Pool::Slow, 7));
        assert_eq!(aborted.copying().other, 9, "8 may still be written by a late copy");
    }

    #[test]
    fn what_is_newer_rotten_or_not_its_own_is_refused() {
        let bytes = stable().encode(5);
        assert_eq!(Record::decode(5, &bytes), Ok(stable()));
        assert_eq!(Record::decode(6, &bytes), Err(RecordError::Checksum { extent: 6 }));
        assert!(matches!(Record::decode(5, &bytes[..15]), Err(RecordError::Length { .. })));
        let sealed = |change: fn(&mut [u8; RECORD_BYTES])| {
            let mut bytes = bytes;
            change(&mut bytes);
            let crc = Record::checksum(5, &bytes);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            Record::decode(5, &bytes)
        };
        assert_eq!(sealed(|b| b[4] = 2), Err(RecordError::Version { extent: 5, version: 2 }));
        let wrong: [fn(&mut [u8; RECORD_BYTES]); 4] =
            [|b| b[5] = 0, |b| b[5] = 3, |b| b[6] = 2, |b| b[8] = 0];
        for change in wrong {
            assert_eq!(sealed(change), Err(RecordError::Contents { extent: 5 }));
        }
    }

    proptest! {
        #[test]
        fn bytes_never_panic(extent in any::<u32>(), bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = Record::decode(extent, &bytes);
        }

        #[test]
        fn a_changed_bit_is_seen(extent in any::<u32>(), bit in 0usize..128) {
            let mut bytes = stable().copying().encode(extent);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(extent, &bytes).is_err());
        }
    }
}
