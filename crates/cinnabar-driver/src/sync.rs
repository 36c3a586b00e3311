//! What threads share of a pool's shards: the standard library's. The model of the pool (`tests/it`) has
//! loom's in its place.

#![expect(clippy::disallowed_types, reason = "the pool says how its locks are held")]

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
