//! The data plane as a whole: a real thread, real files, a small NBD client.

mod absent;
mod addresses;
mod claims;
mod client;
mod clones;
mod crash;
mod degrade;
mod disks;
mod failures;
mod forced;
mod guest_limits;
mod leaving;
mod lost;
mod managed;
mod migrate;
mod mirror;
mod paused;
mod qos;
mod renewal;
mod replacing;
pub(super) mod resizing;
pub(super) mod rig;
mod serving;
mod silent;
mod starts;
mod state_folder;
mod threads;
mod turns;
mod vhost;
#[path = "../../../../cinnabar-frontend/tests/it/vhost_guest.rs"]
#[allow(dead_code, reason = "the front end's own tests need more of it")]
mod vhost_guest;
mod volumes;
mod warm;
mod write_back;
mod write_groups;
mod write_memory;
