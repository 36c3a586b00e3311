//! Every maximum of hybrid volumes, and the constants that relate them.

/// The smallest extent, as a power of two: 4 KiB, for simulations.
pub const EXTENT_LOG2_MIN: u8 = 12;
/// The largest extent, as a power of two: 64 MiB.
pub const EXTENT_LOG2_MAX: u8 = 26;
/// Extents of a volume: 64 TiB at 4 MiB each.
pub const EXTENTS_MAX: u32 = 16 << 20;
/// A sector, the unit of all sizes of volumes and requests.
pub const SECTOR_BYTES: u64 = 512;
/// Parts of an extent that are followed one by one while it is copied.
pub const PARTS_MAX: usize = 1024;
/// The highest number that an object's name may have: a volume that moves an extent each second
/// comes to it after 34 years.
pub const GENERATION_MAX: u32 = (1 << 30) - 1;
/// Extents on their way at a time, left objects that wait for their delete included.
pub const MOVES_MAX: usize = 64;
/// Moves that wait for their turn; a plan's further ones are dropped.
pub const QUEUE_MAX: usize = 256;
/// Copies of one move, at most.
pub const COPIES_MAX: u8 = 16;
/// Requests of a volume under way, held ones included.
pub const IOS_MAX: usize = 1 << 16;
/// Extents that one event looks at while a volume shrinks.
pub const SHRINK_STEP: u32 = 4096;
/// Points of a curve of a device model.
pub const POINTS_MAX: usize = 8;
/// Moves that a planner makes in a round.
pub const ROUND_MOVES_MAX: usize = 50;
/// Requests whose end is kept to find sequential ones.
pub const RECENT_ENDS: usize = 16;

// Parts of an extent are numbered by 16 bits, and none is smaller than a sector.
const _: () = assert!(PARTS_MAX <= 1 << 16);
// A packed table entry has 30 bits for each generation.
const _: () = assert!(GENERATION_MAX < 1 << 30);
const _: () = assert!(MOVES_MAX <= QUEUE_MAX && ROUND_MOVES_MAX <= QUEUE_MAX);
