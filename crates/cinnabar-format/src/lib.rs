//! On-disk structures: real bytes in every mode, encoded and decoded here and nowhere else; with
//! the units that they count in and the limits that their fields set.
//!
//! The layout is in `docs/design/on-disk-format.md`.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod chunk;
pub mod codec;
pub mod descriptor;
pub mod journal;
pub mod limits;
pub mod proof;
pub mod superblock;
pub mod units;

/// A page of metadata, aligned for direct I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(4096))]
pub struct MetaPage(pub [u8; 4096]);

impl MetaPage {
    /// A page of zeros.
    pub const fn zeroed() -> Self {
        Self([0; 4096])
    }
}
