//! Images of Ceph's RBD as backends, through librbd.
//!
//! * [`spec`]: `rbd:pool/image` and what else is written of an image.
//! * [`error`]: why an image can't be used.
//! * `sys`: the calls of librados and librbd; the only unsafe code.
//! * `open`: connecting, opening, measuring, taking the exclusive lock.
//!   `view`: reading what another host writes.
//! * `lineage`: of which snapshot it is a clone. `object_map`: what it has itself.
//! * `proof`: by which numbers an image proves that nobody else wrote it.
//! * `job`: a task of the port's as calls of librbd. `worker`: the thread of an image.
//!   `watched`: is the lock still ours?
//!   `returning`: what others have changed since a snapshot that was left.
//!   `mailbox`: how others talk to it. `client`: its handle.
//!
//! All but the first two are there with the Cargo feature `ceph` only.
//!
//! # What is promised
//! * Every job ends exactly once, its buffers untouched from then on: librbd holds them until then,
//!   whatever becomes of the cluster.
//! * A writable image is held by RBD's exclusive lock for as long as it is open. A client that lost
//!   the lock serves nothing more of the image, and nothing that is cached of it is believed.
//! * A standby's read shows every write that was acknowledged before it came.
//! * No thread of the daemon's own calls librbd for I/O or for closing an image: a call that hangs holds
//!   up this image alone. (Proofs are asked for by threads of their own.)

pub mod error;
pub mod spec;

#[cfg(feature = "ceph")]
mod claim;
#[cfg(not(feature = "ceph"))]
#[path = "no_claim.rs"]
mod claim;
#[cfg(feature = "ceph")]
mod client;
#[cfg(feature = "ceph")]
mod job;
#[cfg(feature = "ceph")]
mod lineage;
#[cfg(feature = "ceph")]
mod mailbox;
#[cfg(any(feature = "ceph", test))]
mod object_map;
#[cfg(feature = "ceph")]
mod open;
#[cfg(any(feature = "ceph", test))]
mod proof;
#[cfg(feature = "ceph")]
mod returning;
#[cfg(feature = "ceph")]
mod sys;
#[cfg(feature = "ceph")]
mod view;
#[cfg(feature = "ceph")]
mod watched;
#[cfg(feature = "ceph")]
mod worker;

pub use cinnabar_hybrid::librados::lock_state::LockState;
pub use error::RbdError;
pub use spec::{RbdSpec, RbdSpecError};

pub(crate) use claim::{read_claim, remove_claim, write_claim};
#[cfg(feature = "ceph")]
pub(crate) use client::Client;
#[cfg(feature = "ceph")]
pub(crate) use open::{Mode, Wait};
#[cfg(feature = "ceph")]
pub(crate) use proof::judge;
