//! On-disk structures: real bytes in every mode, encoded and decoded here and nowhere else.
//!
//! The layout is in `docs/design/on-disk-format.md`.

pub mod checkpoint;
pub mod chunk;
pub mod codec;
pub mod journal;
pub mod superblock;

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
