//! The device as a driver sees it: feature bits and configuration space.
//!
//! After "Block Device" of the VIRTIO specification, 1.2.

use super::export::Export;
use super::limits::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, ZERO_SECTORS_MAX};
use cinnabar_engine::seam::units::{BLOCK_BYTES, SECTOR_BYTES};

/// Feature bits, of the device, of the rings and of the protocol.
pub(super) mod feature {
    pub(crate) const SIZE_MAX: u64 = 1 << 1;
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLOCK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MULTI_QUEUE: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    /// `VHOST_F_LOG_ALL`: the front-end wants to know which pages are written. Not for drivers.
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    /// The front-end may ask for the protocol's own features.
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// Features of every export.
const ALWAYS: u64 = feature::SIZE_MAX
    | feature::SEG_MAX
    | feature::BLOCK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::CONFIG_WCE
    | feature::LOG_ALL
    | feature::INDIRECT
    | feature::EVENT_INDEX
    | feature::PROTOCOL_FEATURES
    | feature::VERSION_1;

/// What is offered for an export.
pub(super) const fn features(export: &Export) -> u64 {
    let changes = if export.read_only {
        feature::READ_ONLY
    } else {
        feature::DISCARD | feature::WRITE_ZEROES
    };
    let queues = if export.queues_max > 1 { feature::MULTI_QUEUE } else { 0 };
    ALWAYS | changes | queues
}

/// Bytes of the configuration space; reading beyond gives zeros, up to [`SPACE_BYTES_MAX`].
const SPACE_BYTES: usize = 60;
/// Bytes that a configuration space may have.
pub(super) const SPACE_BYTES_MAX: usize = 256;
/// Where the write-back bit lies: the only byte that a driver may change.
pub(super) const WRITEBACK_AT: u32 = 32;

/// The configuration space. `writeback`: writes are answered before they are durable.
pub(super) fn space(export: &Export, writeback: bool) -> [u8; SPACE_BYTES_MAX] {
    let mut space = [0; SPACE_BYTES_MAX];
    let mut put = |at: usize, bytes: &[u8]| {
        assert!(at + bytes.len() <= SPACE_BYTES, "a field within the space");
        space[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let block = u64::from(export.min_block_bytes);
    let blocks_log2 = (BLOCK_BYTES / block).ilog2() as u8;
    // What a guest does best: whole blocks of the cache.
    let min_io_blocks = (BLOCK_BYTES / block) as u16;
    put(0, &(export.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &export.min_block_bytes.to_le_bytes());
    put(24, &[blocks_log2, 0]);
    put(26, &min_io_blocks.to_le_bytes());
    put(WRITEBACK_AT as usize, &[u8::from(writeback)]);
    put(34, &export.queues_max.to_le_bytes());
    // Discards and zeroes: one range a request.
    put(36, &ZERO_SECTORS_MAX.to_le_bytes());
    put(40, &1_u32.to_le_bytes());
    put(44, &((BLOCK_BYTES / SECTOR_BYTES) as u32).to_le_bytes());
    put(48, &ZERO_SECTORS_MAX.to_le_bytes());
    put(52, &1_u32.to_le_bytes());
    put(56, &[1]);
    space
}

/// Whether writes may be answered before they are durable, by what was agreed on: a driver that
/// knows no flush gets a disk that needs none.
pub(super) const fn is_writeback(features: u64, chosen: bool) -> bool {
    if features & feature::CONFIG_WCE != 0 { chosen } else { features & feature::FLUSH != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ExportId;

    #[test]
    fn the_space_is_where_drivers_look() {
        let export = Export {
            id: ExportId(0),
            name: "a".into(),
            size_bytes: 3 << 30,
            read_only: false,
            min_block_bytes: 512,
            queues_max: 4,
            memory_bytes_max: 1 << 40,
        };
        let seen = space(&export, true);
        assert_eq!(seen[..8], (3_u64 << 21).to_le_bytes());
        assert_eq!(seen[20..28], [0, 2, 0, 0, 3, 0, 8, 0]);
        assert_eq!((seen[32], space(&export, false)[32]), (1, 0));
        assert_eq!(seen[34..36], [4, 0]);
        let large = Export { min_block_bytes: 4096, ..export };
        assert_eq!(space(&large, true)[20..28], [0, 16, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn a_driver_without_flush_gets_durable_writes() {
        assert!(is_writeback(feature::FLUSH, false));
        assert!(!is_writeback(0, true));
        assert!(is_writeback(feature::CONFIG_WCE, true));
        assert!(!is_writeback(feature::CONFIG_WCE | feature::FLUSH, false));
    }
}
