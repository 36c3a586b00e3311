//! The data plane as a whole: a real thread, real files, a small NBD client.

mod absent;
mod client;
mod crash;
mod degrade;
mod disks;
mod failures;
mod rig;
mod serving;
mod volumes;
