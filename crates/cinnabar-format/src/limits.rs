//! Every maximum of the format and of the engine, and how they relate.

use crate::units::BLOCK_BYTES;

/// Longest read or write, in bytes.
pub const DATA_BYTES_MAX: u64 = 32 << 20;
/// Blocks that such a request can touch: one more than its length when it is not block-aligned.
pub const DATA_BLOCKS_MAX: u64 = DATA_BYTES_MAX / BLOCK_BYTES + 1;
/// Largest volume, in blocks (256 TiB): what a block descriptor's 36 bits can name.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << 36;
/// Volumes known at a time, detached ones with cached blocks included.
pub const VOLUMES_MAX: u16 = 4095;
/// Bytes of a volume's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Requests in flight in one engine, waiting ones included; one more is refused with
/// `Failure::Limit`, unless it invalidates. Frontends keep far below it.
pub const REQUESTS_MAX: usize = 16_384;
/// Parts of split requests under way, beside the first one of each request. Together with the
/// requests that frontends let in they stay below [`REQUESTS_MAX`], so no engine ever has to refuse
/// one tenant's request for what others asked.
pub const EXTRA_PARTS_MAX: u32 = 1024;

const _: () = assert!((EXTRA_PARTS_MAX as usize) < REQUESTS_MAX);
const _: () = assert!(DATA_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(VOLUMES_MAX < u16::MAX);
// A journal record has 40 bits for a block, a byte offset 64, a request's block index 32.
const _: () = assert!(VOLUME_BLOCKS_MAX < 1 << 40);
const _: () = assert!(VOLUME_BLOCKS_MAX <= u64::MAX / BLOCK_BYTES);
const _: () = assert!(DATA_BLOCKS_MAX < u32::MAX as u64);
// A name's length has one byte on disk.
const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
