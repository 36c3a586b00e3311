//! How large each volume's share is and what happens to its writes: one file an allocator.
//!
//! Called by `analyze` and by the live manager, once an interval.

pub mod divide;
