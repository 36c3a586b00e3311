//! The crate from outside: ports over real files, devices and servers, disks, locks and change proofs.
//!
//! Temporary files lie on the disk and, where there is one, on a tmpfs (`/dev/shm`), because the
//! kernel completes I/O on the two in different ways. What must hang, or count its flushes, lies on
//! a file system of the tests' own (`fuse`).

mod block_device;
mod bounds;
mod cache_device;
mod durable;
mod fuse;
mod hung;
mod hybrid;
mod locks;
mod many;
mod nbd;
mod opening;
mod proofs;
mod rig;
mod transfers;
mod watching;
