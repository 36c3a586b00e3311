//! Extents of a volume, the pools they lie in, and the names of their objects.

use crate::limits::{
    EXTENT_LOG2_MAX, EXTENT_LOG2_MIN, EXTENTS_MAX, GENERATION_MAX, PARTS_MAX, SECTOR_BYTES,
};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pool {
    /// Large and cheap: HDD.
    Slow = 0,
    /// Small and dear: SSD.
    Fast = 1,
}

impl Pool {
    /// The other one of the two.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Slow => Self::Fast,
            Self::Fast => Self::Slow,
        }
    }

    /// As an operator writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Fast => "fast",
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One object of an extent. No object of a volume ever has the name of an earlier one: each copy is
/// made under the next generation, so that what is late (a copy, a delete) meets no other object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The extent's number.
    pub extent: u32,
    /// Its pool; no part of the name.
    pub pool: Pool,
    /// 1 for the first object of an extent of a new volume; higher for each later one.
    pub generation: u32,
}

impl fmt::Display for Object {
    /// The part of the name behind the volume's: `0000002a.00000003`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{:08x}", self.extent, self.generation)
    }
}

/// A name that is no object's of a hybrid volume.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not the name of an extent's object; names are like 0000002a.00000003")]
pub struct NotAnObject;

impl Object {
    /// Reads the part of a name behind the volume's.
    ///
    /// # Errors
    /// When [`Object`]'s `Display` does not make such a name.
    pub fn parse(name: &str, pool: Pool) -> Result<Self, NotAnObject> {
        let (extent, generation) = name.split_once('.').ok_or(NotAnObject)?;
        let number = |text: &str| {
            let digits = text.len() == 8
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            digits.then(|| u32::from_str_radix(text, 16).ok()).flatten().ok_or(NotAnObject)
        };
        let (extent, generation) = (number(extent)?, number(generation)?);
        if extent >= EXTENTS_MAX || generation == 0 || generation > GENERATION_MAX {
            return Err(NotAnObject);
        }
        Ok(Self { extent, pool, generation })
    }
}

impl FromStr for Pool {
    type Err = NotAPool;
    fn from_str(text: &str) -> Result<Self, NotAPool> {
        match text {
            "slow" => Ok(Self::Slow),
            "fast" => Ok(Self::Fast),
            _ => Err(NotAPool),
        }
    }
}

/// A word that names no pool.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("pools are slow and fast")]
pub struct NotAPool;

/// How a volume is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    bytes: u64,
    extent_log2: u8,
}

/// Why a volume can't have a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// Out of its range.
    #[error("extents of 2^{0} bytes; they have 2^{EXTENT_LOG2_MIN} to 2^{EXTENT_LOG2_MAX}")]
    Extent(u8),
    /// Zero, or no number of sectors.
    #[error("a size of {0} bytes; a size is a multiple of {SECTOR_BYTES}, and not 0")]
    Sectors(u64),
    /// More extents than a table has.
    #[error("{bytes} bytes are {extents} extents, more than {EXTENTS_MAX}; larger extents fit")]
    Extents {
        /// The size.
        bytes: u64,
        /// Extents of that size.
        extents: u64,
    },
}

impl Geometry {
    /// A volume of `bytes` in extents of `1 << extent_log2` bytes.
    ///
    /// # Errors
    /// When one of them is out of its range.
    pub fn new(bytes: u64, extent_log2: u8) -> Result<Self, GeometryError> {
        if !(EXTENT_LOG2_MIN..=EXTENT_LOG2_MAX).contains(&extent_log2) {
            return Err(GeometryError::Extent(extent_log2));
        }
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(GeometryError::Sectors(bytes));
        }
        let extents = bytes.div_ceil(1 << extent_log2);
        if extents > u64::from(EXTENTS_MAX) {
            return Err(GeometryError::Extents { bytes, extents });
        }
        Ok(Self { bytes, extent_log2 })
    }

    /// The volume's size.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// The power of two that is an extent's size.
    pub const fn extent_log2(self) -> u8 {
        self.extent_log2
    }

    /// Bytes of an extent; the last one of a volume may have fewer, and counts as a whole one.
    pub const fn extent_bytes(self) -> u64 {
        1 << self.extent_log2
    }

    /// Extents of the volume.
    pub const fn extents(self) -> u32 {
        self.bytes.div_ceil(self.extent_bytes()) as u32
    }

    /// The extent of a byte of the volume.
    pub const fn extent_of(self, offset: u64) -> u32 {
        (offset >> self.extent_log2) as u32
    }

    /// Bytes of one of the parts whose changes are followed during a copy.
    pub const fn part_bytes(self) -> u64 {
        let part = self.extent_bytes() / PARTS_MAX as u64;
        if part < SECTOR_BYTES { SECTOR_BYTES } else { part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let object = Object { extent: 0x2a, pool: Pool::Fast, generation: 3 };
        assert_eq!(object.to_string(), "0000002a.00000003");
        assert_eq!(Object::parse(&object.to_string(), Pool::Fast), Ok(object));
        for wrong in ["", "2a.3", "0000002A.00000003", "0000002a.00000000", "ffffffff.00000001"] {
            assert_eq!(Object::parse(wrong, Pool::Slow), Err(NotAnObject), "{wrong}");
        }
        assert!(Object::parse("+000002a.00000003", Pool::Slow).is_err(), "no signs");
    }

    #[test]
    fn sizes_are_checked() {
        let geometry = Geometry::new((4 << 20) + 512, 22).expect("a size");
        assert_eq!((geometry.extents(), geometry.part_bytes()), (2, 4096));
        assert_eq!(geometry.extent_of(4 << 20), 1);
        assert_eq!(Geometry::new(16 << 40, 22).expect("a size").extents(), 4 << 20);
        assert_eq!(Geometry::new(4096, 12).expect("a size").part_bytes(), 512);
        assert_eq!(Geometry::new(0, 22), Err(GeometryError::Sectors(0)));
        assert_eq!(Geometry::new(513, 22), Err(GeometryError::Sectors(513)));
        assert_eq!(Geometry::new(512, 11), Err(GeometryError::Extent(11)));
        assert!(matches!(Geometry::new(1 << 60, 22), Err(GeometryError::Extents { .. })));
    }
}
