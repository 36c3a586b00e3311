//! The servers from outside. NBD: its state machines on bytes, its sockets on raw and real clients.
//! vhost-user: a front-end and driver of the tests' own that breaks every rule, and the `vhost`
//! crate's.

mod client;
mod clients;
mod handshake;
mod host;
mod hostile;
mod life;
mod lifecycle;
mod long;
mod memory;
mod policy;
mod pressure;
mod properties;
mod running;
mod sample;
mod scarce;
mod tenants;
mod terminator;
mod tls;
mod transmission;
mod unaligned;
mod vhost_bounds;
mod vhost_features;
mod vhost_guest;
mod vhost_host;
mod vhost_hostile;
mod vhost_library;
mod vhost_log;
mod vhost_migration;
mod vhost_pair;
mod vhost_restart;
mod vhost_script;
mod vhost_scripts;
