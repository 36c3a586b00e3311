//! Pools of a Ceph cluster: an SSD pool and an HDD pool, with the table beside the slow objects.
//!
//! * `spec`: how a volume is written. `names`: objects and entries of a volume. `curves`: what a probe measured, as it is stored.
//! * `place`: a volume that is not open. `take_over`: how it becomes this process's.
//! * `pools`: a volume that is open. `flights`: its operations under way. `keeper`: renews the lock, lists.
//! * `calibrate`: the probe. `check`: the table against the pools.
//!
//! All but the first line and [`RadosSpec`] are there with the Cargo feature `ceph` only.
//!
//! # The table
//! One object holds it, in the slow pool or another replicated one (erasure-coded pools have no omap):
//!
//! | entry | is |
//! |---|---|
//! | `a.header` | the header, 80 bytes |
//! | `a.epoch` | the owner's epoch, 8 bytes, little-endian; changes with the header |
//! | `a.pools` | cluster and numbers of the pools, as text: `fsid=.. slow=2 fast=1` |
//! | `a.owner`, `a.address` | who has it and by which address that client is fenced off; gone after a clean end |
//! | `a.curves` | what the probe measured |
//! | `a.taking` | a random number of the last taking, 8 bytes |
//! | `e.0000002a` | the record of an extent, 16 bytes |
//!
//! Each change is one operation, which compares the epoch (or the header) and what it replaces.
//!
//! # Owners
//! The lock on the table has a lease of [`LEASE_S`] s; it says who lives, and keeps nobody from writing. A new
//! owner fences the former one off (the cluster's blocklist, for a week) unless that one said that it had ended,
//! waits for the map that says so, and raises the epoch: from then on the former owner changes no table.
//! Its writes of data are refused by each OSD that has the new map; [`Op::Probe`](crate::pools::Op::Probe) brings
//! the map to the source of a move, and waits there for what was accepted before.
//!
//! # Time-outs
//! While a volume is opened or closed, operations fail after 10 s. Later they take as long as they do: what is
//! given up may still be carried out. A silent OSD holds up what needs it until it comes back or the cluster
//! marks it out.

mod curves;
mod names;
mod spec;

#[cfg(feature = "ceph")]
mod calibrate;
#[cfg(feature = "ceph")]
mod check;
#[cfg(feature = "ceph")]
mod flights;
#[cfg(feature = "ceph")]
mod keeper;
#[cfg(feature = "ceph")]
mod place;
#[cfg(feature = "ceph")]
mod pools;
#[cfg(feature = "ceph")]
mod take_over;

pub use curves::{CURVES_VERSION, CurvesError, decode_curves, encode_curves};
pub use spec::{RadosSpec, RadosSpecError};

#[cfg(feature = "ceph")]
pub use calibrate::Calibration;
#[cfg(feature = "ceph")]
pub use place::RadosPlace;

use crate::pools::{OpenError, Place};

/// For how long the lock is held after it was renewed, by the OSD's clock, in s.
pub const LEASE_S: u64 = 30;

/// The volume, not open.
///
/// # Errors
/// [`OpenError::Other`] without the Cargo feature `ceph`.
#[cfg(feature = "ceph")]
pub fn place(spec: RadosSpec) -> Result<Box<dyn Place>, OpenError> {
    Ok(Box::new(RadosPlace::new(spec)))
}

/// The volume, not open.
///
/// # Errors
/// [`OpenError::Other`] without the Cargo feature `ceph`.
#[cfg(not(feature = "ceph"))]
pub fn place(_: RadosSpec) -> Result<Box<dyn Place>, OpenError> {
    let error = crate::librados::error::RadosError::NotBuiltIn;
    Err(OpenError::Other(format!("{error}; {}", error.hint())))
}
