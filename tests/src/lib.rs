//! Harness for the daemon as a real process with real clients.
//!
//! Nothing here knows the daemon from inside: it writes a configuration, starts a process, speaks to
//! sockets.

#![allow(clippy::missing_errors_doc, reason = "an error is a test that fails, and says why")]

pub mod binary;
pub mod books;
pub mod ceph;
pub mod control;
pub mod daemon;
pub mod debian;
pub mod disk_log;
pub mod fio;
pub mod kernel;
pub mod nbd;
pub mod page;
pub mod process;
pub mod python;
pub mod rng;
pub mod stamps;
pub mod tls;
pub mod tools;
pub mod unit;
pub mod unpacked;

pub use control::Status;
pub use daemon::{Config, Daemon, Site, Volume};
pub use fio::Fio;
pub use process::{Running, output};

/// A kibibyte.
pub const KIB: u64 = 1024;
/// A mebibyte.
pub const MIB: u64 = 1024 * KIB;
/// A gibibyte.
pub const GIB: u64 = 1024 * MIB;
