//! Guest-facing servers: NBD now, vhost-user-blk later.
//!
//! Called by the daemon's data thread, which owns the event loop: nothing here waits, starts a
//! thread or reads a clock.

pub mod nbd;
