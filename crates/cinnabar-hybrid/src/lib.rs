//! Hybrid volumes in action: a disk that is spread over a fast and a slow pool.
//!
//! * [`pools`]: what a pair of pools is.
//! * [`local`]: pools in two folders. [`rados`]: pools of a Ceph cluster.
//! * [`runtime`]: a volume's thread: requests in, operations of the pools out. [`settings`]: how it moves extents.
//! * [`check`]: a table compared with its pools. [`upkeep`]: what is done to a volume that nothing serves.
//! * [`buffers`]: memory that requests read into and write from.
//!
//! Where extents lie, and when they move, is decided by `cinnabar-placement`.

pub mod buffers;
pub mod check;
pub mod librados;
pub mod local;
pub mod pools;
pub mod rados;
pub mod runtime;
pub mod settings;
pub mod upkeep;
